"""A command of rackassign, run as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def rackassign(
    name: str, bootstrap: str, *words: str, code: int = 0, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, on a wide terminal; check how it ends, and that problems are told in words.

    Args:
        name: Of the command, or of a command and what it is to do.
        bootstrap: Of the cluster.
        words: Further ones.
        code: With which it is to end.
        home: Where it leaves its files.
    """
    done = subprocess.run(
        [sys.executable, "-m", "rackassign", *name.split(), "--bootstrap-server", bootstrap, *words],
        cwd=home,
        capture_output=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
        text=True,
        timeout=600,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
