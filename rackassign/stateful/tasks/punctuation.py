"""Functions that are called at intervals of stream time or wall-clock time (Kafka Streams' `Punctuator`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.errors import ConfigError
from rackassign.stateful.stores.state import State
from rackassign.stateful.tasks.process_call import check_process
from rackassign.stateful.transactions.output import Output
from rackassign.util.text import short_repr

Clock = Literal["stream", "wall"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)

_LEAST_S = 0.05
_LONGEST_S = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Punctuate:
    """A function that is called at intervals, for each active task.

    With stream time it is called behind the record whose timestamp reaches a multiple of the interval, with that
    multiple: the same calls happen whenever the input is read. With wall-clock time it is called in `poll`. Several
    intervals that pass at once cause one call. Its changes and the time of the call are in one commit, so a successor
    continues with the next interval.

    Args:
        call: Called with the time in milliseconds and the state of the task; with transactions, also with the output.
        interval_s: Seconds between calls.
        time: `stream` for timestamps of input records, `wall` for the clock of this machine.
        name: Name under which the last call is stored; the function's by default.

    Raises:
        ConfigError: An option is invalid.
    """

    call: Callable[[int, State], None] | Callable[[int, State, Output], None]
    interval_s: float
    time: Clock = "stream"
    name: str = ""

    def __post_init__(self) -> None:
        """Check the options."""
        check_process(self.call, "the function of punctuate")
        interval_s: object = self.interval_s
        number = isinstance(interval_s, (int, float)) and not isinstance(interval_s, bool)
        if not number or not _LEAST_S <= self.interval_s <= _LONGEST_S:
            raise ConfigError(
                f"interval_s of punctuate must be a number of seconds from {_LEAST_S} to {_LONGEST_S},"
                f" got {short_repr(interval_s)}"
            )
        if self.time not in CLOCKS:
            raise ConfigError(f"time of punctuate must be {' or '.join(CLOCKS)}, got {short_repr(self.time)}")
        if not isinstance(self.name, str):
            raise ConfigError(f"name of punctuate must be a string, got {short_repr(self.name)}")
        if not self.name:
            object.__setattr__(self, "name", getattr(self.call, "__name__", ""))
        if not self.name or self.name == "<lambda>":
            raise ConfigError("a function of punctuate without a name needs name=, under which its last call is stored")

    @property
    def interval_ms(self) -> int:
        """The interval in milliseconds."""
        return round(self.interval_s * 1000)

    def due(self, time_ms: int, last_ms: int | None) -> int | None:
        """Return the time to call it with; None if it is not due.

        Args:
            time_ms: The time now.
            last_ms: The time of the last call, or from which on intervals count; None at first.
        """
        if last_ms is None or time_ms - last_ms < self.interval_ms:
            return None
        return self.begin(time_ms)

    def begin(self, time_ms: int) -> int:
        """Return the time from which on the next interval counts."""
        return time_ms - time_ms % self.interval_ms if self.time == "stream" else time_ms


def check_punctuations(given: Iterable[Punctuate]) -> tuple[Punctuate, ...]:
    """Return functions that are called at intervals.

    Raises:
        ConfigError: One is no `Punctuate`, or two have one name.
    """
    if isinstance(given, (str, Punctuate)) or not isinstance(given, Iterable):
        raise ConfigError(f"punctuate must be a list of Punctuate, got {short_repr(given)}")
    found = tuple(given)
    for each in found:
        if not isinstance(each, Punctuate):
            raise ConfigError(f"punctuate must be a list of Punctuate, got {short_repr(each)} in it")
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two functions of punctuate have the name {short_repr(name)}: give one another name=")
    return found
