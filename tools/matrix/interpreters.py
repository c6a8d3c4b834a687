"""Find the interpreter of a Python version on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_QUESTION = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter that can make virtual environments, or None if there is none.

    Looked for is `python<version>` on the PATH, and what pyenv has installed.

    Args:
        version: Major and minor version, as in `3.12`.
    """
    return next((path for path in _candidates(version) if _is_version(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    installed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from sorted(installed.glob(f"{version}.*/bin/python{version}"), reverse=True)


def _is_version(path: Path, version: str) -> bool:
    """Ask the interpreter: a shim of pyenv is there for versions that it cannot start."""
    try:
        answer = subprocess.run([path, "-c", _QUESTION], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version
