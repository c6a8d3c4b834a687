"""A consumer's view of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rackassign.clients.common.metadata_listener import MetadataListener
from rackassign.clients.common.shared_partitions import SharedPartitions
from rackassign.model import Broker, Partition, TopicPartition, Topology
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import with_version


class Cluster(Protocol):
    """The used part of kafka-python's `ClusterMetadata`: two public methods, and `_partitions` below."""

    def brokers(self) -> Iterable[Any]:
        """Return the brokers of the last metadata response."""

    def partitions_for_topic(self, topic: str) -> Iterable[int] | None:
        """Return the partition IDs of a topic; None if it is not known (yet)."""


def topology(cluster: Cluster, topics: Iterable[str]) -> Topology:
    """Return the live brokers, and the given topics that have metadata.

    Reads `cluster._partitions[topic][partition].replica_nodes` and `.leader_id`: the public methods return only
    replicas on online brokers. A replica list is shared here by all partitions with an equal list.
    """
    known = SharedPartitions(leader="leader_id", replicas="replica_nodes")
    found: dict[str, tuple[Partition, ...]] = {}
    for topic in topics:
        partitions: Mapping[int, Any] | None = cluster._partitions.get(topic)  # type: ignore[attr-defined]
        if partitions:
            found[topic] = known.of_topic(partitions)
    return Topology(brokers(cluster), found)


def brokers(cluster: Cluster) -> tuple[Broker, ...]:
    """Return the brokers in the metadata; an offline broker is not listed."""
    return tuple(Broker(broker.node_id, broker.rack) for broker in cluster.brokers())


def cluster_of(consumer: Any) -> Cluster | None:
    """Return a consumer's view of the cluster; reads `_cluster`, as there is no public attribute. None if missing."""
    return getattr(consumer, "_cluster", None)


def on_refresh(cluster: Any, callback: Callable[[], None], once: WarnOnce, *, key: object) -> None:
    """Call this on the IO thread after each refresh of the metadata, unless a callback with this key is registered.

    The set `_listeners` is replaced and not changed: the IO thread may be iterating over the old one. An exception of a
    listener would end kafka-python's refreshes for good, so the listener raises none.
    """
    listeners = getattr(cluster, "_listeners", None)
    if not isinstance(listeners, set):
        once.warn("listeners", "%s differs: changes of the metadata are not seen", with_version("kafka-python"))
        return
    if any(isinstance(listener, MetadataListener) and listener.key is key for listener in listeners):
        return
    cluster._listeners = {*listeners, MetadataListener(callback, once, key, with_version("kafka-python"))}


def request_update(cluster: Any) -> None:
    """Request new metadata; on any thread."""
    cluster.request_update()


def missed_local_replica(consumer: Any, rack: str, broker: int, partition: TopicPartition) -> bool:
    """Return whether a broker is in another rack than the consumer's while an in-sync replica is in that rack.

    Reads `_cluster._partitions[topic][partition].isr_nodes`.
    """
    # Called for every partition of every response: most come from this rack, and then one lookup is enough.
    cluster = consumer._cluster
    if _rack_of(cluster, broker) in {None, rack}:
        return False
    known = cluster._partitions.get(partition.topic, {}).get(partition.partition)
    return known is not None and any(_rack_of(cluster, replica) == rack for replica in known.isr_nodes)


def partitions_with_leader(consumer: Any, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those of the partitions whose leader the consumer knows.

    Before a request for offsets: kafka-python (3.0.12) sends it for these only, and then `end_offsets` raises KeyError
    for the first of the others. Reads `_cluster.leader_for_partition`, which is None for an unknown partition, and -1
    for one without a leader. If it is missing, all partitions are returned.
    """
    leader = getattr(cluster_of(consumer), "leader_for_partition", None)
    if not callable(leader):
        return list(partitions)
    return [tp for tp in partitions if leader(tp) not in {None, -1}]


def read_brokers(consumer: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Return the broker from which a consumer fetches each partition; None if it has no leader.

    That is the preferred read replica (KIP-392), and the leader until the leader has named one. Reads
    `_subscription.assignment[partition]._preferred_read_replica`: the method of that name removes an expired one, and
    this is called on any thread. If the attribute is missing, the leader is returned.
    """
    leader = getattr(cluster_of(consumer), "leader_for_partition", lambda _: None)
    states: Mapping[Any, Any] = getattr(getattr(consumer, "_subscription", None), "assignment", {})
    found: dict[TopicPartition, int | None] = {}
    for tp in partitions:
        broker = getattr(states.get(tp), "_preferred_read_replica", None)
        broker = leader(tp) if broker is None else broker
        found[tp] = None if broker is None or broker < 0 else broker
    return found


def _rack_of(cluster: Any, broker: int) -> str | None:
    metadata = cluster.broker_metadata(broker)
    return None if metadata is None else metadata.rack


def assignors(consumer: Any) -> list[Any]:
    """Return a consumer's assignors; reads `_coordinator._assignors`, since the configuration may contain classes."""
    return list(getattr(getattr(consumer, "_coordinator", None), "_assignors", {}).values())


def is_closed(consumer: Any, *, once: WarnOnce) -> bool:
    """Return whether `close()` was called; reads `_closed`, as there is no public attribute. False if missing."""
    closed = getattr(consumer, "_closed", None)
    if closed is None:
        once.warn("closed", "%s differs: metrics of a closed consumer stay", with_version("kafka-python"))
    return bool(closed)
