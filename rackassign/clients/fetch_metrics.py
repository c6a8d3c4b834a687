"""Fetched bytes and records of a consumer: by broker and partition, and by topic and rack of the broker.

`ConsumerView` is what may be read of a consumer on any thread, the same for all client libraries: for its metrics.

`FollowerFetchCheck` finds whether a replica in the reader's rack is used for fetching. A plan with locality `any-
replica` counts a partition as local if any replica is in the member's rack. The bytes are local only if the brokers
name that replica. With a rack-aware replica selector, the leader's response to the first fetch of a consumer that sends
its rack names the follower to read from, and contains no records. So if a leader in another rack keeps sending records
of a partition with an in-sync replica in this rack, it has no such selector.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rackassign.locality import Kind, Locality, read_locality
from rackassign.model import TopicPartition

log = logging.getLogger(__name__)


class Traffic(NamedTuple):
    """Bytes and records that were fetched or written.

    Args:
        bytes: Bytes of record batches, as stored in the log, compressed if they are.
        records: Records in these batches; if a batch is fetched because of its last record, all its records count.
    """

    bytes: int = 0
    records: int = 0

    def plus(self, more: Traffic) -> Traffic:
        return Traffic(self.bytes + more.bytes, self.records + more.records)


class RackTraffic(NamedTuple):
    """What a consumer has fetched or a producer has written, by topic and by rack of the broker.

    Args:
        rack: Rack of the client; None if it has none.
        topics: For each topic the traffic with each rack. None is the key of brokers without a known rack.
        foreign: Whether no broker is in the client's rack, while brokers have racks: all its traffic is unknown.
    """

    rack: str | None
    topics: Mapping[str, Mapping[str | None, Traffic]]
    foreign: bool = False

    @classmethod
    def of(
        cls,
        rack: str | None,
        counts: Mapping[tuple[str, str | None], Traffic],
        racks: Iterable[str | None],
    ) -> RackTraffic:
        topics: dict[str, dict[str | None, Traffic]] = {}
        for (topic, other), amount in sorted(counts.items(), key=lambda pair: (pair[0][0], pair[0][1] or "")):
            topics.setdefault(topic, {})[other] = amount
        return cls(rack, topics, is_foreign(rack, racks, (other for _, other in counts)))

    def kind(self, other: str | None) -> Kind:
        """Return whether traffic with a broker in a rack is local."""
        return "unknown" if self.foreign else read_locality(other, self.rack)

    def by_rack(self, topic: str | None = None) -> dict[str | None, Traffic]:
        totals: dict[str | None, Traffic] = {}
        for name, of_topic in self.topics.items():
            if topic in {None, name}:
                for rack, amount in of_topic.items():
                    totals[rack] = totals.get(rack, Traffic()).plus(amount)
        return totals

    def local(self, topic: str | None = None) -> Traffic:
        return self._of("local", topic)

    def unknown(self, topic: str | None = None) -> Traffic:
        """Return the traffic that is neither local nor cross-rack, because one of the two racks is not known."""
        return self._of("unknown", topic)

    def cross(self, topic: str | None = None) -> Traffic:
        return self._of("cross", topic)

    def local_share(self, topic: str | None = None) -> float | None:
        """Return the local share of the bytes with known racks, 0 to 1; None if there are none."""
        local, cross = self.local(topic).bytes, self.cross(topic).bytes
        return local / (local + cross) if local + cross else None

    def _of(self, kind: Kind, topic: str | None) -> Traffic:
        total = Traffic()
        for rack, amount in self.by_rack(topic).items():
            if self.kind(rack) == kind:
                total = total.plus(amount)
        return total


def is_foreign(rack: str | None, racks: Iterable[str | None], used: Iterable[str | None]) -> bool:
    """Return whether no broker is in a client's rack, while brokers have racks: where the client is, is unknown."""
    # `racks`: of the brokers that are known now. `used`: of those it had traffic with, which may be offline by now.
    known = {other for other in racks if other is not None}
    return rack is not None and bool(known) and rack not in known.union(used)


class FetchedPartition(NamedTuple):
    """One partition of a fetch response."""

    partition: TopicPartition
    # Bytes of record batches, and the records of complete ones.
    size: int
    records: int
    # The preferred read replica, if the response names one (KIP-392).
    preferred_replica: int | None = None

    @property
    def topic(self) -> str:
        return self.partition.topic


class FetchMeter:
    """Counts the bytes and records of fetch responses: by broker and partition, and by topic and rack of the broker.

    It counts what brokers sent: batches as stored in the log, compressed if they are. Bytes that are sent twice count
    twice. It may be read from any thread at any time. The rack of a broker is the one at the time of the fetch.

    Args:
        rack: Rack of the consumer; None if it has none, or if several consumers share the meter.
        rack_of: Returns the rack of a broker, None if it is not known.
        on_pair: Called when a topic is read from a rack for the first time, or again after `forget_pairs`.
        racks: Returns the racks of all known brokers.
    """

    __slots__ = ("_by_partition", "_by_rack", "_known", "_lock", "_on_pair", "_rack_of", "_racks", "_responses", "rack")

    def __init__(
        self,
        rack: str | None = None,
        rack_of: Callable[[int], str | None] | None = None,
        on_pair: Callable[[str, str | None], None] | None = None,
        racks: Callable[[], Iterable[str | None]] = tuple,
    ) -> None:
        self.rack = rack
        self._rack_of = rack_of
        self._racks = racks
        self._on_pair = on_pair
        self._lock = threading.Lock()
        self._by_partition: dict[tuple[int, TopicPartition], int] = {}
        # A sum of its own: metrics read it for each topic, and there are many partitions.
        self._by_rack: dict[tuple[str, str | None], Traffic] = {}
        self._responses: dict[int, int] = {}
        self._known: set[tuple[str, str | None]] = set()

    def __call__(self, broker: int, fetched: Iterable[FetchedPartition]) -> None:
        """Count one fetch response of a broker."""
        rack = None if self._rack_of is None else self._rack_of(broker)
        new: list[str] = []
        with self._lock:
            self._responses[broker] = self._responses.get(broker, 0) + 1
            for each in fetched:
                if not each.size:
                    continue
                tp, pair = (broker, each.partition), (each.topic, rack)
                self._by_partition[tp] = self._by_partition.get(tp, 0) + each.size
                self._by_rack[pair] = self._by_rack.get(pair, Traffic()).plus(Traffic(each.size, each.records))
                if pair not in self._known:
                    self._known.add(pair)
                    new.append(each.topic)
        if self._on_pair is not None:
            for topic in new:
                self._on_pair(topic, rack)

    def bytes_by_partition(self) -> dict[tuple[int, TopicPartition], int]:
        """Return bytes by broker and partition; only those with bytes."""
        with self._lock:
            return dict(self._by_partition)

    def bytes_by_broker(self) -> dict[int, int]:
        """Return bytes by broker; only those with bytes."""
        totals: dict[int, int] = {}
        for (broker, _), size in self.bytes_by_partition().items():
            totals[broker] = totals.get(broker, 0) + size
        return totals

    def responses_by_broker(self) -> dict[int, int]:
        """Return the number of fetch responses of each broker, including empty ones and redirects."""
        with self._lock:
            return dict(self._responses)

    def amount(self, topic: str, rack: str | None) -> Traffic:
        """Return the traffic of a topic from a rack."""
        with self._lock:
            return self._by_rack.get((topic, rack), Traffic())

    def locality(self) -> RackTraffic:
        """Return all traffic counted so far, by topic and rack."""
        with self._lock:
            counts = dict(self._by_rack)
        return RackTraffic.of(self.rack, counts, self._racks())

    def forget_pairs(self, topics: Collection[str]) -> list[tuple[str, str | None]]:
        """Forget and return the pairs of all topics except these; their traffic stays counted."""
        with self._lock:
            over = [pair for pair in self._known if pair[0] not in topics]
            self._known.difference_update(over)
        return over


Observer = Callable[[int, Sequence[FetchedPartition]], None]
"""Called on the client's IO thread with a broker's node ID and the partitions of one of its fetch responses."""


_BATCH = struct.Struct(">8x i 4x b 4x h 34x i")
"""Header of a record batch: remaining length, version of the format, attributes, number of records."""

_LENGTH_FROM = 12
_CONTROL = 0x20


def count_records(batches: bytes) -> int:
    """Count the records in complete batches, by their headers; transaction markers are not counted."""
    count = position = 0
    while position + _BATCH.size <= len(batches):
        length, magic, attributes, records = _BATCH.unpack_from(batches, position)
        position += _LENGTH_FROM + max(length, 1)
        if position > len(batches):
            break
        if magic < _FIRST_WITH_COUNT:
            count += 1
        elif not attributes & _CONTROL:
            count += records
    return count


_FIRST_WITH_COUNT = 2


_ATTRIBUTE = "_rackassign_view"


class ConsumerView(NamedTuple):
    """How a consumer is read; it does not keep the consumer itself."""

    group: str | None
    # Returns what it has fetched so far; also after it was closed or garbage-collected.
    locality: Callable[[], RackTraffic]
    # Counts its partitions by the rack of the broker that it fetches each from, which is what a measurement from
    # outside counts: a local replica that no broker points to is not read.
    assigned_locality: Callable[[Any], Locality]
    is_closed: Callable[[Any], bool]


def count_reads(read: RackTraffic, brokers: Iterable[int | None], rack_of: Callable[[int], str | None]) -> Locality:
    """Count the partitions of a consumer by the racks of the brokers they are read from, None for no broker."""
    return Locality.of_reads(read.kind(None if broker is None else rack_of(broker)) for broker in brokers)


def set_view(consumer: object, view: ConsumerView) -> None:
    vars(consumer)[_ATTRIBUTE] = view


def view_of(consumer: object) -> ConsumerView | None:
    """Return how a consumer is read; None if it was not attached."""
    view: ConsumerView | None = getattr(consumer, _ATTRIBUTE, None)
    return view


ENOUGH = 20
"""Number of cross-rack responses with records before the warning. A follower may lag for a moment, so one is not
enough."""


class FollowerFetchCheck:
    """Checks the fetch responses of one consumer and warns once if it cannot read locally.

    The warning is logged if no broker is in the consumer's rack, which is checked at each response until there is one,
    or if local replicas are never named.
    """

    __slots__ = ("_cross_rack", "_done", "_found", "_near_elsewhere", "_rack", "_racks", "_warned")

    def __init__(
        self, rack: str, racks: Callable[[], Collection[str]], near_elsewhere: Callable[[int, TopicPartition], bool]
    ) -> None:
        self._rack = rack
        self._racks = racks
        self._found = self._warned = False
        # Whether the broker is in another rack, while a replica of the partition in this one is in sync.
        self._near_elsewhere = near_elsewhere
        self._cross_rack = 0
        self._done = False

    def __call__(self, broker: int, fetched: Iterable[FetchedPartition]) -> None:
        if self._done or not self._has_rack():
            return
        for partition in fetched:
            if partition.preferred_replica is not None:
                # The brokers name followers: the check is done for good.
                self._done = True
                return
            if partition.size and self._near_elsewhere(broker, partition.partition):
                self._cross_rack += 1
                if self._cross_rack >= ENOUGH:
                    self._warn(broker, partition.partition)
                    return

    def _has_rack(self) -> bool:
        """Return whether a broker is in the consumer's rack; warn once if there is none.

        In an outage of the rack there is none for a time, so it is looked for until it is found.
        """
        if self._found:
            return True
        racks = sorted(self._racks())
        self._found = self._rack in racks
        if not self._found and not self._warned:
            self._warned = True
            log.warning(
                "client_rack %r is the rack of no broker, so nothing is read locally; racks of brokers: %s",
                *(self._rack, ", ".join(racks) or "none"),
            )
        return self._found

    def _warn(self, broker: int, partition: TopicPartition) -> None:
        self._done = True
        log.warning(
            "%s-%d has an in-sync replica in rack %r, but broker %d in another rack sends it and names no follower:"
            " is replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector set on the brokers?"
            " Without it only partitions led in this rack are read locally (locality='leader')",
            *(partition.topic, partition.partition, self._rack, broker),
        )
