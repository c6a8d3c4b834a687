"""A command of rackassign, run as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.json_schemas import parsed

TIMEOUT_S = 600.0

NO_ANSWER = 3
"""Exit code of a command that has no reliable answer."""

READING = {
    "audit",
    "doctor",
    "bill",
    "inspect",
    "plan",
    "reassign plan",
    "reassign status",
    "snapshot",
    "state describe",
}
"""Commands that change nothing."""


def rackassign(
    name: str, bootstrap: str, *words: str, code: int = 0, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, on a wide terminal; check how it ends, and that problems are told in words.

    JSON that it writes has to be what its schema documents.

    A command that only reads is repeated, as a user would, while its exit code is that of "no reliable answer": brokers
    that are stalled on a busy machine do not answer it in time.
    """
    done = _run(name, bootstrap, *words, home=home)
    until = time.monotonic() + TIMEOUT_S
    while done.returncode == NO_ANSWER != code and name in READING and time.monotonic() < until:
        assert "Traceback" not in done.stderr
        done = _run(name, bootstrap, *words, home=home)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if "json" in words and done.stdout:
        parsed(name, done.stdout)
    return done


def _run(name: str, bootstrap: str, *words: str, home: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rackassign", *name.split(), "--bootstrap-server", bootstrap, *words],
        cwd=home,
        capture_output=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
        text=True,
        timeout=TIMEOUT_S,
    )
