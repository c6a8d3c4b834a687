"""The choice of partitions whose leader is in a producer's rack (KIP-1123), for the producers of all client libraries.

A producer writes to the leaders of partitions. If the application leaves the choice of the partition to the client,
the client can choose one whose leader is in its own rack, and nothing crosses racks on the way to Kafka. Records with
a key are not affected: their partition is a matter of order.

Rules of this module:

* It does no I/O and knows no client: metadata are read by the names that kafka-python and aiokafka have in common.
* A record costs a few lookups, however many topics and partitions there are. The partitions of a topic are listed once
  per metadata, with the first choice after them.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, short_repr

log = logging.getLogger(__name__)

RECORD_BYTES = 20
"""What a record takes in a batch beside its key and value, at most: the last record is then the first of the next."""

_DRAWS = 20
"""Partitions of a rack of which one is sought that may get more, with `max_share`."""

_RECENT_S = 120.0
"""What counts for `max_share` is what was written in the last one to two times as many seconds."""


class Node(Protocol):
    """A broker in a client's metadata."""

    @property
    def rack(self) -> str | None:
        """Rack of the broker."""


class Metadata(Protocol):
    """What is read of a client's metadata.

    With new metadata a broker is another object. A list of partitions that was made with the old object is out of date.
    """

    def brokers(self) -> Iterable[Node]:
        """Return the live brokers."""

    def broker_metadata(self, broker_id: int) -> Node | None:
        """Return a broker; None if it is not known."""

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        """Return the partitions of a topic; None if it is not known."""

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the leader of a partition; None or -1 if there is none."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The partitions of a topic to choose from."""

    # The first tier is used first, `local` if its leaders are in the producer's rack. Only with `max_share` there are
    # others: the partitions that are led in each other rack.
    tiers: tuple[Sequence[int], ...]
    local: bool
    # Those with a leader, of which each has a fair share.
    partitions: int


@dataclass(slots=True)
class Choice:
    """The partition in use for a topic.

    A record may be written to it without `choose` if `left` is enough, until `until`, and with the metadata `seen`.
    """

    partition: TopicPartition
    # Its leader when it was chosen, and whether that was in the producer's rack.
    node: Node | None
    local: bool
    # Bytes that it may still get, and when another one is chosen in any case, by the clock.
    left: float
    until: float
    # The metadata it was chosen by, if these cannot change.
    seen: Metadata | None
    candidates: Candidates
    written: float = 0.0


class RecentBytes:
    """Bytes that were written to the partitions of a topic in the last minutes.

    Two windows are counted, the current one and the one before, so that a partition is remembered at constant cost.
    """

    __slots__ = ("_before", "_now", "_until", "total")

    def __init__(self) -> None:
        self._now: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._until = -inf
        self.total = 0.0

    def add(self, partition: int, size: float, now: float) -> None:
        """Count bytes at a time, in seconds."""
        if now >= self._until:
            # After a longer pause both windows are over.
            self._before = self._now if now < self._until + _RECENT_S else {}
            self._now, self._until = {}, now + _RECENT_S
            self.total = sum(self._before.values())
        self._now[partition] = self._now.get(partition, 0.0) + size
        self.total += size

    def of(self, partition: int) -> float:
        return self._now.get(partition, 0.0) + self._before.get(partition, 0.0)


class LocalLeaders:
    """Chooses a partition for each record without a key: one whose leader is in the producer's rack.

    One partition is used for the bytes of a batch and then another one at random, as by Java's producer (KIP-794).
    Batches themselves do not matter: those of a slow leader wait until they are full, so a choice for each batch
    (KIP-480) would send it the most. A partition whose leader has moved to another rack is left with the next record,
    once the metadata show it. While no partition of a topic has its leader in the rack, all partitions with a leader
    are used, and a warning is logged once. If leaders were there before, it is one INFO line each time they have left.

    It may be used by several threads.
    """

    __slots__ = (
        *("_clock", "_keep_s", "_lock", "_max_share", "_once", "_recent", "_rng", "_snapshots"),
        *("batch_size", "choices", "queued", "rack"),
    )

    def __init__(
        self,
        rack: str | None,
        *,
        batch_size: float = inf,
        keep_s: float = inf,
        max_share: float | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        snapshots: bool = False,
    ) -> None:
        # Another partition is chosen after `batch_size` bytes or `keep_s` seconds.
        # `max_share`: how many times its fair share of what was written in the last minutes a partition may get. What
        # exceeds that goes to the rack after this one, in the order of names, then to the next. None for no limit.
        # `snapshots`: whether metadata are never changed but replaced by another object. Then they are read only once.
        if batch_size != inf and (type(batch_size) is not int or batch_size < 0):
            raise ConfigError(f"batch_size must be a number of bytes, 0 or more, got {short_repr(batch_size)}")
        if max_share is not None and (type(max_share) not in {int, float} or not 1 <= max_share < inf):
            raise ConfigError(f"max_share must be a number, 1 or more, got {short_repr(max_share)}")
        self.rack = rack
        self.batch_size = batch_size
        self._max_share = max_share
        self._recent: dict[str, RecentBytes] = {}
        self._keep_s = keep_s
        self._rng = random.Random() if rng is None else rng  # noqa: S311 - no secret
        self._clock = clock
        self._snapshots = snapshots
        self._lock = threading.Lock()
        self._once = WarnOnce(log)
        self.choices: dict[str, Choice] = {}
        # Returns the batches of a partition that are to be sent; None if the client does not show them.
        self.queued: Callable[[TopicPartition], int] | None = None

    def choose(self, topic: str, size: float, metadata: Metadata) -> int | None:
        """Return the partition of a record of `size` bytes in a batch; None if the topic is not in the metadata."""
        with self._lock:
            choice = self.choices.get(topic)
            if choice is None or size > choice.left or not self._is_usable(choice, metadata):
                choice = self._next(topic, choice, metadata)
                if choice is None:
                    return None
            choice.left -= size
            choice.written += size
            return choice.partition.partition

    def _is_usable(self, choice: Choice, metadata: Metadata) -> bool:
        """Return whether the partition still has a leader, and one in this rack if there may be such."""
        if choice.until != inf and self._clock() >= choice.until:
            return False
        leader = metadata.leader_for_partition(choice.partition)
        if leader is None or leader < 0:
            return False
        node = metadata.broker_metadata(leader)
        # With new metadata one elsewhere is left: a leader may have moved into the rack.
        return node is choice.node or (choice.local and node is not None and node.rack == self.rack)

    def _next(self, topic: str, before: Choice | None, metadata: Metadata) -> Choice | None:
        if before is not None and self._max_share is not None:
            recent = self._recent.setdefault(topic, RecentBytes())
            recent.add(before.partition.partition, before.written, self._clock())
        drawn = None if before is None else self._draw_again(before, metadata)
        if drawn is None:
            candidates = self._candidates(topic, metadata, before)
            if not candidates.tiers[0]:
                self.choices.pop(topic, None)
                return None
            number, local = self._draw(topic, candidates, None if before is None else before.partition.partition)
            partition = TopicPartition(topic, number)
            drawn = Choice(partition, _leader(partition, metadata), local, 0, inf, None, candidates)
        drawn.left = self.batch_size
        drawn.until = self._clock() + self._keep_s if self._keep_s != inf else inf
        drawn.seen = metadata if self._snapshots else None
        self.choices[topic] = drawn
        return drawn

    def _draw_again(self, before: Choice, metadata: Metadata) -> Choice | None:
        """Return another one of the same candidates; None if the metadata are others, or it has another leader."""
        if before.node is None or _leader(before.partition, metadata) is not before.node:
            return None
        topic = before.partition.topic
        number, local = self._draw(topic, before.candidates, before.partition.partition)
        partition = TopicPartition(topic, number)
        node = _leader(partition, metadata)
        if node is None or (local and node.rack != self.rack):
            return None
        return Choice(partition, node, local, 0, inf, None, before.candidates)

    def _draw(self, topic: str, candidates: Candidates, avoid: int | None) -> tuple[int, bool]:
        """Return a random partition of the first tier with one that may get more, and whether it is in the rack."""
        recent = self._recent.get(topic)
        if recent is not None and self._max_share is not None:
            limit = self._max_share * recent.total / candidates.partitions
            above: list[tuple[float, int, int]] = []
            for tier, numbers in enumerate(candidates.tiers):
                # A topic may have thousands of partitions, and the work for a batch must not depend on that.
                some = numbers if len(numbers) <= _DRAWS else self._rng.sample(numbers, _DRAWS)
                below = [number for number in some if recent.of(number) <= limit]
                if below:
                    return self._draw_one(topic, below, avoid), candidates.local and tier == 0
                above += [(recent.of(number), tier, number) for number in some]
            # One that may get more was not among these.
            _, tier, number = min(above)
            return number, candidates.local and tier == 0
        return self._draw_one(topic, candidates.tiers[0], avoid), candidates.local

    def _draw_one(self, topic: str, candidates: Sequence[int], avoid: int | None) -> int:
        """Return a random candidate: of two, the one with fewer batches in its queue, and then not the given one.

        Java's producer compares all queues (KIP-794). Two are enough for a slow leader to get less, and cost the same
        however many there are (Mitzenmacher: The power of two choices in randomized load balancing, 2001).
        """
        if len(candidates) == 1:
            return candidates[0]
        one, other = self._rng.sample(candidates, 2)
        if self.queued is not None:
            queues = [self.queued(TopicPartition(topic, number)) for number in (one, other)]
            if queues[0] != queues[1]:
                return one if queues[0] < queues[1] else other
        return one if one != avoid else other

    def _candidates(self, topic: str, metadata: Metadata, before: Choice | None) -> Candidates:
        every = sorted(metadata.partitions_for_topic(topic) or ())
        leaders = {number: metadata.leader_for_partition(TopicPartition(topic, number)) for number in every}
        led = {number: leader for number, leader in leaders.items() if leader is not None and leader >= 0}
        anywhere = Candidates((tuple(led) or every,), local=False, partitions=len(led or every))
        if self.rack is None:
            self._once.warn("no rack", "the producer has no rack, so records go to leaders in all racks")
            return anywhere
        racks = {broker: node.rack for broker in set(led.values()) if (node := metadata.broker_metadata(broker))}
        by_rack: dict[str, list[int]] = {}
        for number, leader in led.items():
            by_rack.setdefault(racks.get(leader) or "", []).append(number)
        if self.rack not in by_rack:
            if racks and before is not None and before.local:
                log.info("the leaders of topic %s have left rack %r: its records go to other racks", topic, self.rack)
            elif racks:
                self._warn_of_no_leader(topic, metadata)
            return anywhere
        local = tuple(by_rack.pop(self.rack))
        others: list[str] = []
        if self._max_share is not None:
            # The racks after this one first, so that not all producers use the same one.
            others = [
                *sorted(rack for rack in by_rack if rack > self.rack),
                *sorted(r for r in by_rack if r < self.rack),
            ]
        return Candidates((local, *(tuple(by_rack[rack]) for rack in others)), local=True, partitions=len(led))

    def _warn_of_no_leader(self, topic: str, metadata: Metadata) -> None:
        known = sorted({broker.rack for broker in metadata.brokers() if broker.rack})
        if self.rack not in known:
            self._once.warn(
                "unknown rack",
                "rack %r of the producer is the rack of no broker, so records go to leaders in all racks; racks of"
                " brokers: %s",
                *(self.rack, ", ".join(known) or "none"),
            )
        else:
            self._once.warn(
                "no leader",
                "no partition of topic %s has its leader in rack %r, so its records go to leaders in all racks",
                *(topic, self.rack),
                about=topic,
            )


def _leader(partition: TopicPartition, metadata: Metadata) -> Node | None:
    leader = metadata.leader_for_partition(partition)
    return None if leader is None or leader < 0 else metadata.broker_metadata(leader)
