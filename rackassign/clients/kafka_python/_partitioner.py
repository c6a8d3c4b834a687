"""A partitioner for kafka-python's `KafkaProducer` that writes to leaders in the producer's rack (KIP-1123).

A producer writes to the leaders of partitions. If the application leaves the choice of the partition to the client,
the client can choose one whose leader is in its own rack, and nothing crosses racks on the way to Kafka. Records with
a key are not affected: their partition is a matter of order.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable
from typing import Protocol

from kafka.partitioner import DefaultPartitioner, Partitioner
from kafka.structs import TopicPartition

from rackassign.assignor.member import resolve_rack
from rackassign.errors import ConfigError
from rackassign.text import WarnOnce, short_repr

log = logging.getLogger(__name__)

_RECORD_BYTES = 20
"""What a record takes in a batch beside its value, at most: then the last record is the first of the next batch."""

_DRAWS = 16
"""Random partitions looked at before all of them are. With three racks 16 fail with a probability of 0.2 %."""


class _Broker(Protocol):
    rack: str | None


class _Cluster(Protocol):
    """What is read of kafka-python's `ClusterMetadata`."""

    def brokers(self) -> Iterable[_Broker]: ...

    def broker_metadata(self, broker_id: int) -> _Broker | None: ...

    def partitions_for_topic(self, topic: str) -> set[int] | None: ...

    def available_partitions_for_topic(self, topic: str) -> set[int] | None: ...

    def leader_for_partition(self, partition: TopicPartition) -> int | None: ...


class RackAwarePartitioner(Partitioner):  # type: ignore[misc] # kafka-python is untyped
    """Sends records without a key to partitions whose leader is in the producer's rack (KIP-1123).

    `KafkaProducer(partitioner=RackAwarePartitioner("use1-az1"))`. One partition is used for the bytes of a batch and
    then another one at random, as by Java's producer (KIP-794). Batches themselves do not matter: those of a slow
    leader wait until they are full, so a choice for each batch (KIP-480) would send it the most. A partition whose
    leader has moved to another rack is left with the next record, once the producer's metadata show it. While no
    partition of a topic has its leader in the rack, all partitions are used, and a warning is logged once. Records with
    a key go where `DefaultPartitioner` sends them.

    It may be used by several producers and threads.

    Args:
        rack: Rack of the producer, as in `broker.rack`; by default that of `RACKASSIGN_RACK`. "auto" detects it.
            Without a rack all partitions are used, and a warning is logged once.
        batch_size: That of the producer, in bytes.

    Raises:
        ConfigError: The rack or the size is not valid, or "auto" found none.
    """

    def __init__(self, rack: str | None = None, *, batch_size: int = 16_384) -> None:
        if type(batch_size) is not int or batch_size < 0:
            raise ConfigError(f"batch_size must be a number of bytes, 0 or more, got {short_repr(batch_size)}")
        self.rack = resolve_rack(rack, "rack")
        self._keyed = DefaultPartitioner()
        self._once = WarnOnce(log)
        self._lock = threading.Lock()
        self._batch_size = batch_size
        self._sticky: dict[str, tuple[int, bool]] = {}
        """The partition in use by topic, and whether its leader was local when it was chosen."""
        self._bytes: dict[str, int] = {}
        """What was sent to that partition since it was chosen."""
        self._again = threading.local()
        """Of each thread: the topic and the partition of a record that kafka-python will ask for once more."""

    def partition(  # noqa: PLR0917 - kafka-python's interface
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: _Cluster,
    ) -> int:
        """Return the partition of a record; called by the producer.

        Raises:
            ValueError: The topic is not in the metadata.
        """
        if serialized_key is not None:
            chosen: int = self._keyed.partition(topic, key, serialized_key, value, serialized_value, cluster)
            return chosen
        again = vars(self._again).pop("chosen", None)
        if again is not None and again[0] == topic:
            return int(again[1])
        size = len(serialized_value or b"") + _RECORD_BYTES
        with self._lock:
            current = self._sticky.get(topic)
            more = self._bytes.get(topic, 0) + size
            if current is not None and more <= self._batch_size and self._is_usable(topic, *current, cluster):
                self._bytes[topic] = more
                return current[0]
            every = cluster.partitions_for_topic(topic)
            if not every:
                raise ValueError(f"Topic {topic} not found in ClusterMetadata")
            self._bytes[topic] = size
            return self._choose(topic, every, cluster, avoid=None if current is None else current[0])

    def on_new_batch(self, topic: str, cluster: _Cluster, prev_partition: int) -> None:
        """Keep the partition of the record that begins a batch; called by the producer.

        The producer asks for that record's partition twice. Counted twice, records of fast leaders, which begin a batch
        each, would be worth half, and a large record would be followed by a change that no record is written to.
        """
        del cluster
        self._again.chosen = topic, prev_partition

    def _is_usable(self, topic: str, partition: int, was_local: bool, cluster: _Cluster) -> bool:  # noqa: FBT001
        """Return whether the partition still has a leader, and one in this rack if it had one there."""
        leader = _leader(topic, partition, cluster)
        return leader is not None and (not was_local or _rack_of(leader, cluster) == self.rack)

    def _choose(self, topic: str, every: set[int], cluster: _Cluster, avoid: int | None = None) -> int:
        drawn = self._draw(topic, every, cluster, avoid)
        if drawn is not None:
            self._sticky[topic] = (drawn, True)
            return drawn
        available = sorted(cluster.available_partitions_for_topic(topic) or ())
        local = self._local(topic, available, cluster)
        candidates = local or available or sorted(every)
        chosen = random.choice([each for each in candidates if each != avoid] or candidates)  # noqa: S311 - no secret
        self._sticky[topic] = (chosen, bool(local))
        return chosen

    def _draw(self, topic: str, every: set[int], cluster: _Cluster, avoid: int | None) -> int | None:
        """Return a random partition whose leader is in this rack; None if a few draws find none.

        The result is distributed as a choice among all such partitions, and a topic with 1,000 partitions does not
        pay for looking at each of them with every batch.
        """
        if self.rack is None:
            return None
        numbers = list(every)
        for _ in range(_DRAWS):
            partition = random.choice(numbers)  # noqa: S311 - no secret
            leader = None if partition == avoid else _leader(topic, partition, cluster)
            if leader is not None and _rack_of(leader, cluster) == self.rack:
                return partition
        return None

    def _local(self, topic: str, available: list[int], cluster: _Cluster) -> list[int]:
        """Return the available partitions whose leader is in this rack; warn if there are none."""
        if self.rack is None:
            self._once.warn("no rack", "the partitioner has no rack, so records go to leaders in all racks")
            return []
        leaders = {partition: _leader(topic, partition, cluster) for partition in available}
        racks = {partition: _rack_of(leader, cluster) for partition, leader in leaders.items() if leader is not None}
        local = [partition for partition, rack in racks.items() if rack == self.rack]
        if racks and not local:
            self._warn_of_no_leader(topic, cluster)
        return local

    def _warn_of_no_leader(self, topic: str, cluster: _Cluster) -> None:
        known = sorted({broker.rack for broker in cluster.brokers() if broker.rack})
        if self.rack not in known:
            self._once.warn(
                "unknown rack",
                "rack %r of the partitioner is the rack of no broker, so records go to leaders in all racks; racks of"
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


def _leader(topic: str, partition: int, cluster: _Cluster) -> int | None:
    """Return the broker that leads a partition; None if there is none, or the partition is not known."""
    leader = cluster.leader_for_partition(TopicPartition(topic, partition))
    return None if leader is None or leader < 0 else leader


def _rack_of(broker: int, cluster: _Cluster) -> str | None:
    found = cluster.broker_metadata(broker)
    return None if found is None else found.rack or None
