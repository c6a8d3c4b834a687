"""Progress of a long step, reported to its caller. This package itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a step; `str()` of it is one line for users.

    Args:
        step: Description of the step, such as "Fetching Kafka 4.4.0 (46 jars)".
        done: How much of the step is done; 0 if the step does not count it.
        total: How much there is to do in total; 0 if the step does not count it.
        unit: Unit of both: B for bytes; empty if the description of the step states what is counted.
    """

    step: str
    done: int = 0
    total: int = 0
    unit: Literal["B", ""] = "B"

    def __str__(self) -> str:
        if not self.total:
            return self.step
        if not self.unit:
            return f"{self.step}: {self.done} of {self.total}"
        return f"{self.step}: {self.done / _MB:.1f} of {self.total / _MB:.1f} MB"


ProgressCallback = Callable[[Progress], None]
"""Called with each `Progress`, sometimes from another thread but never from two at once. Must not raise."""


def ignore_progress(_: Progress) -> None:
    """Ignore the progress."""
