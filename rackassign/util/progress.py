"""What a long step tells its caller. The room itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step has come; `str()` of it is one line for people.

    Args:
        step: What is being done, such as "Fetching Kafka 4.3.0 (46 jars)".
        done: Bytes fetched so far; 0 where a step does not count.
        total: Bytes to fetch in all; 0 where a step does not count.
    """

    step: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        if not self.total:
            return self.step
        return f"{self.step}: {self.done / _MB:.1f} of {self.total / _MB:.1f} MB"


ProgressCallback = Callable[[Progress], None]
"""Called with each `Progress`, sometimes from a thread of ours but never from two at once. Must not raise."""


def ignore_progress(_: Progress) -> None:
    """Stand in for a caller that wants to hear nothing."""
