"""Topics of a new subscription that are not in the metadata yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic

_SURE_S = 1.0
"""A topic does not exist if it is missing in metadata that are this much newer than the subscription."""

_PATIENCE_S = 5.0
"""Time limit for waiting for metadata."""


class PendingTopics:
    """Determines whether to wait for metadata before a join, and which topics do not exist.

    A member that joins before its topics are in the metadata is assigned nothing, and has to rejoin at once.
    `refreshed` is for kafka-python's IO thread, everything else for the polling thread.

    Args:
        known: Returns whether a topic is in the metadata.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, known: Callable[[str], bool], clock: Callable[[], float] = monotonic) -> None:
        self._known = known
        self._clock = clock
        self._unknown: frozenset[str] = frozenset()
        self._begun = 0.0
        self._refreshed = -inf

    def begin(self, topics: Iterable[str]) -> None:
        """Wait for these topics instead of those before."""
        self._unknown = frozenset(topics)
        self._begun = self._clock()

    def refreshed(self) -> None:
        """Record a refresh of the metadata."""
        self._refreshed = self._clock()

    def wait(self) -> bool:
        """Return whether to wait for metadata."""
        self._look()
        return bool(self._unknown) and not self._sure() and self._clock() - self._begun < _PATIENCE_S

    def take_missing(self) -> str | None:
        """Return a topic that does not exist, each once; None if there is none."""
        self._look()
        if not self._unknown or not self._sure():
            return None
        missing = min(self._unknown)
        self._unknown -= {missing}
        return missing

    def _look(self) -> None:
        self._unknown = frozenset(topic for topic in self._unknown if not self._known(topic))

    def _sure(self) -> bool:
        return self._refreshed - self._begun >= _SURE_S
