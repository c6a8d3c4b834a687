"""The age of local state, which grows while a machine is suspended as well.

State that was not read on for too long may miss deletions: compaction removes their records after the time of
`delete.retention.ms`, a day by default, whether this machine was awake or not. Linux' monotonic clock stops with the
machine, so `CLOCK_BOOTTIME` is used where it exists; elsewhere (macOS) `CLOCK_MONOTONIC` itself continues. Both stop
with a virtual machine that is paused from outside. The time of day is corrected after that, so the longer of both times
counts. A time of day that jumps forwards costs a restore at most, and one that jumps backwards has no effect.
"""

from __future__ import annotations

import time


def longest_left_s(deletes_ms: int) -> float:
    """Return the greatest age of a state in seconds, half of the time that the records of deletions are kept."""
    return deletes_ms / 2000


_FUTURE_S = 3600.0
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ElapsedTime:
    """The time since it was started."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start from now."""
        self._since = _now()

    def seconds(self) -> float:
        """Return the seconds since then, including those in which the machine was suspended."""
        return _between(self._since, _now())

    def lap(self) -> float:
        """Return the seconds as `seconds` does, and start from now; no time is between the two."""
        since, self._since = self._since, _now()
        return _between(since, self._since)


def _now() -> tuple[float, float]:
    return time.clock_gettime(_CLOCK), time.time()


def _between(since: tuple[float, float], now: tuple[float, float]) -> float:
    return max(end - begin for begin, end in zip(since, now, strict=True))


def time_of_day_ms() -> int:
    """Return the time to be stored with a state, in milliseconds since 1970."""
    return int(time.time() * 1000)


def is_too_old(stored_ms: int, deletes_ms: int) -> bool:
    """Return whether a state may miss deletions.

    Args:
        stored_ms: Time when it was known to be current. A time in the future shows that one of two clocks was wrong.
        deletes_ms: How long its changelog keeps the records of deletions.
    """
    return not -_FUTURE_S <= time.time() - stored_ms / 1000 <= longest_left_s(deletes_ms)
