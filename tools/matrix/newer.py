"""Versions of the clients that the package index has and the matrix has not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence

from packaging.version import Version

_LINE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


def available(package: str) -> list[str]:
    """Return the versions of a package on the index that pip is configured with.

    Raises:
        RuntimeError: If pip finds none.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _LINE.search(answer.stdout)
    if found is None:
        raise RuntimeError(f"pip finds no version of {package}: {answer.stderr.strip().splitlines()[-1:]}")
    return found[1].split(", ")


def newer(pinned: Sequence[str], found: Iterable[str], below: str) -> tuple[list[str], list[str]]:
    """Return the versions that are missing in a list, and those that are out of the supported range.

    Args:
        pinned: Versions of the matrix, oldest first.
        found: Versions of the index.
        below: The first version that is not supported.

    Missing is a version after the newest one, and a later patch release of any but the oldest.
    """
    known = [Version(version) for version in pinned]
    latest = {version.release[:2]: version for version in known[1:]}
    missing, outside = [], []
    for version in sorted(map(Version, found)):
        if version >= Version(below):
            outside.append(str(version))
        elif version > known[-1] or version > latest.get(version.release[:2], version):
            missing.append(str(version))
    return missing, outside
