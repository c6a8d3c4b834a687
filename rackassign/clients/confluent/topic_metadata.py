"""Topics of a new subscription that are not in the metadata yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic

_SURE_S = 1.0
"""A topic does not exist if it is missing in metadata that are this much newer than the subscription."""

_SURE_REFRESHES = 2
"""The first refresh may be the response to a request from before the subscription, which may take long: kafka-python
has one request in flight at a time, so the second one was sent later."""

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
        self._refreshes = 0
        self._requested = False

    def begin(self, topics: Iterable[str]) -> None:
        """Wait for these topics instead of those before."""
        self._unknown = frozenset(topics)
        self._begun = self._clock()
        self._refreshes = 0
        self._requested = False

    def refreshed(self) -> None:
        """Record a refresh of the metadata."""
        self._refreshed = self._clock()
        self._refreshes += 1

    def take_request(self) -> bool:
        """Return whether new metadata have to be requested; true once, after the first refresh.

        If that was a response from before the subscription, kafka-python (3.0.12) has dropped the request that came
        with the subscription, and would make the next one after `metadata_max_age_ms`.
        """
        self._look()
        if self._requested or not self._unknown or self._refreshes == 0:
            return False
        self._requested = True
        return True

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
        return self._refreshes >= _SURE_REFRESHES and self._refreshed - self._begun >= _SURE_S
