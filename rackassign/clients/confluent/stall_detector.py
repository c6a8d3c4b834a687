"""Partitions that librdkafka has stopped reading without a word.

Now and then, after a change of leaders, it does not go on with a partition, though it says that it is active: seen in
two of a dozen runs of the chaos tests, with 2.16, when a follower that was read became the leader; its issues 3399 and
4492 are of the kind. Nobody is told, and the partition looks like one to which nothing is written. To take it away
from librdkafka and give it back does not wake it, so another client goes on.

Two things together give such a partition away: the statistics, by which nothing more was fetched though all that was
fetched is delivered, and its end, which the member can ask for. Both must hold twice, one after the other, since
neither is of this moment. Without statistics nothing is found.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from rackassign.clients.confluent.fetcher import Place
from rackassign.util.log_once import WarnOnce

log = logging.getLogger(__name__)

QUIET_S = 5.0
"""Nothing was fetched for so long: then it is asked for the end, and again after as long."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the statistics say of a partition, and since when.

    Args:
        offset: The next to be fetched.
        state: Of fetching, in librdkafka's words.
        since: When the offset was first seen.
        at: When it was last seen.
        behind: Since when the end is known to be further; None if it is not.
    """

    offset: int
    state: str
    since: float
    at: float
    behind: float | None = None


class StallDetector:
    """Looks for such partitions; all of it on the thread that polls.

    Args:
        clock: Seconds, only forward.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._once = WarnOnce(log)
        self._seen: dict[Place, _Seen] = {}
        self._tried: dict[Place, int] = {}
        self._next_look = 0.0

    def __call__(self, statistics: str) -> None:
        """Take note of librdkafka's statistics; never raises."""
        try:
            for topic, said in json.loads(statistics)["topics"].items():
                for partition in said["partitions"].values():
                    self._see(Place(topic, partition["partition"]), partition)
        except Exception:  # noqa: BLE001 - it would come out of the user's poll()
            self._once.warn("statistics", "librdkafka's statistics cannot be read", exc_info=True)

    def _see(self, place: Place, said: Mapping[str, Any]) -> None:
        now, offset, delivered = self._clock(), said["next_offset"], said["app_offset"]
        last = self._seen.get(place)
        if delivered >= 0 and delivered < offset:
            # There is something left to be delivered.
            self._seen.pop(place, None)
        elif last is None or last.offset != offset:
            self._seen[place] = _Seen(offset, str(said["fetch_state"]), now, now)
        else:
            self._seen[place] = replace(last, state=str(said["fetch_state"]), at=now)

    def forget(self, places: Iterable[Place]) -> None:
        """Begin anew with partitions: they were taken, dropped or sought."""
        for place in places:
            self._seen.pop(place, None)

    def suspects(self, among: Iterable[Place]) -> list[Place]:
        """Return those whose end should be asked for now."""
        now = self._clock()
        if now < self._next_look:
            return []
        self._next_look = now + QUIET_S
        return [
            place for place in among if (seen := self._seen.get(place)) is not None and seen.at - seen.since >= QUIET_S
        ]

    def stalled(self, ends: Mapping[Place, int]) -> list[Place]:
        """Return those that are behind their ends for the second time, and nothing was fetched in between.

        None of them is returned twice for the same offset: what did not help once will not help again.

        Args:
            ends: The next offset to be written, of those that were asked for.
        """
        now = self._clock()
        found: list[Place] = []
        for place, end in ends.items():
            seen = self._seen.get(place)
            if seen is None or end <= max(seen.offset, 0) or self._tried.get(place) == seen.offset:
                continue
            if seen.behind is None:
                self._seen[place] = replace(seen, behind=now)
            elif seen.at > seen.behind:
                log.warning(
                    "librdkafka reads nothing of %s-%d from %d on, though there is something up to %d (its state: %s);"
                    " another client of it goes on",
                    *(place.topic, place.partition, seen.offset, end, seen.state),
                )
                self._tried[place] = seen.offset
                found.append(place)
        return found
