"""The topics of a new subscription, until the cluster knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic

_SURE_S = 1.0
"""What is still unknown to metadata as much younger than the subscription is there not."""

_PATIENCE_S = 5.0
"""Metadata are waited for so long, and no longer."""


class PendingTopics:
    """Tells whether a join is worth while yet, and which topics there are not.

    Who joins without having heard of its topics is given nothing, and joins a second time at once.
    `refreshed` is for the host's IO thread, all else for the one that polls.

    Args:
        known: Tells whether a topic is known by now.
        clock: Seconds, only forward.
    """

    def __init__(self, known: Callable[[str], bool], clock: Callable[[], float] = monotonic) -> None:
        self._known = known
        self._clock = clock
        self._unknown: frozenset[str] = frozenset()
        self._begun = 0.0
        self._refreshed = -inf

    def begin(self, topics: Iterable[str]) -> None:
        """Wait for these instead of those before."""
        self._unknown = frozenset(topics)
        self._begun = self._clock()

    def refreshed(self) -> None:
        """Take note that there are new metadata."""
        self._refreshed = self._clock()

    def wait(self) -> bool:
        """Tell whether metadata should be waited for."""
        self._look()
        return bool(self._unknown) and not self._sure() and self._clock() - self._begun < _PATIENCE_S

    def take_missing(self) -> str | None:
        """Return a topic that does not exist, each once; None if there is no such."""
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
