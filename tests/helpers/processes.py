"""Waiting for what other processes do."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 600.0
"""How long a condition may take on a busy machine. Nothing is slower for it: waiting ends with the condition."""


def eventually(condition: Callable[[], object]) -> bool:
    """Tell whether a condition comes true in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


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
