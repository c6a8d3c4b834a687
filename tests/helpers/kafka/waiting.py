"""Waiting for what brokers and consumers do."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 180.0
"""How long a condition may take on a busy machine. Nothing is slower for it: waiting ends with the condition."""


def wait_until(condition: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Look until the condition holds; fail with what was waited for."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)
