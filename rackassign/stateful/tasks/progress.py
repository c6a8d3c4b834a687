"""How far a task is: part of its state, so that both are always those of one time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackassign.errors import WireError
from rackassign.stateful.files.sqlite_file import StoreError
from rackassign.stateful.stores.keys import PROGRESS
from rackassign.stateful.stores.state import StateSource

NO_TIME = -1


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a task.

    Args:
        next: Offset of the next record of each input topic that has been read.
        time_ms: Stream time: the latest timestamp of its input records, in milliseconds; -1 before the first.
        punctuated: When each function of `punctuate` was due last, in milliseconds of its clock.

    Raises:
        WireError: A number is missing.
    """

    next: Mapping[str, int] = field(default_factory=dict)
    time_ms: int = NO_TIME
    punctuated: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the numbers, which may come from a changelog."""
        numbers: tuple[object, ...] = (self.next, self.punctuated)
        time_ms: object = self.time_ms
        if not all(isinstance(each, Mapping) and _are_numbers(each) for each in numbers) or type(time_ms) is not int:
            raise WireError(0, "the progress of a task consists of numbers")

    def encode(self) -> bytes:
        """Return the progress as it is stored."""
        return json.dumps(
            {"next": dict(self.next), "time": self.time_ms, "punctuated": dict(self.punctuated)}, sort_keys=True
        ).encode()


def decode_progress(value: bytes | None) -> Progress:
    """Decode the progress of a task, which is empty if there is none.

    Raises:
        WireError: It is no progress of rackassign.
    """
    if value is None:
        return Progress()
    try:
        found = json.loads(value)
        return Progress(found["next"], found["time"], found["punctuated"])
    except (ValueError, KeyError, TypeError):
        raise WireError(0, "the progress of a task cannot be decoded") from None


def read_progress(state: StateSource, name: str) -> Progress:
    """Return the progress that is part of a state.

    Args:
        state: The state of a task.
        name: Its name in errors.

    Raises:
        StoreError: The state cannot be read, or its progress cannot be decoded.
    """
    try:
        return decode_progress(state.get(PROGRESS))
    except WireError as error:
        raise StoreError(f"{name}: {error}") from None


def _are_numbers(given: Mapping[object, object]) -> bool:
    return all(isinstance(name, str) and type(number) is int for name, number in given.items())
