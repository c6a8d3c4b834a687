"""Waiting for what other processes do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 600.0
"""How long a condition may take on a busy machine. Nothing is slower for it: waiting ends with the condition."""


def eventually(condition: Callable[[], object]) -> bool:
    """Tell whether a condition comes true in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


@contextmanager
def up(code: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code that prints `up` and then goes on, until the block ends.

    The code waits in short sleeps: `signal.pause()` would not return for a signal that arrives just before it.
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            # Popen waits without a limit for a process that goes on.
            process.kill()


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # The latter if it goes between opening and reading.
        return False


def heed_interrupts() -> None:
    """Undo what a shell does to a job in its background: such a run would ignore SIGINT, and so would all it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
