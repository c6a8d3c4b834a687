"""A consumer's view of its cluster, and its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rackassign.assignor.adapter import MetadataListener, SharedPartitions
from rackassign.errors import MissingExtraError
from rackassign.model import Broker, Partition, TopicPartition, Topology
from rackassign.text import WarnOnce, with_version

try:
    from aiokafka import AIOKafkaConsumer
except ModuleNotFoundError:
    raise MissingExtraError("aiokafka", "aiokafka") from None

FOLLOWS = "client_rack" in inspect.signature(AIOKafkaConsumer.__init__).parameters
"""Whether the installed aiokafka supports follower fetching, as it does since 0.14."""

Consumer = Any
"""aiokafka's `AIOKafkaConsumer`, untyped."""


def topology(cluster: Any, topics: Iterable[str]) -> Topology:
    """Return the live brokers, and the given topics that have metadata.

    Reads `cluster._partitions[topic][partition].replicas` and `.leader`: no public method returns replicas.
    """
    known = SharedPartitions(leader="leader", replicas="replicas")
    found: dict[str, tuple[Partition, ...]] = {}
    for topic in topics:
        partitions: Mapping[int, Any] | None = cluster._partitions.get(topic)
        if partitions:
            found[topic] = known.of_topic(partitions)
    return Topology(brokers(cluster), found)


def brokers(cluster: Any) -> tuple[Broker, ...]:
    """Return the brokers in the metadata; an offline broker is not listed, and bootstrap servers have no ID yet."""
    return tuple(Broker(each.nodeId, each.rack or None) for each in cluster.brokers() if isinstance(each.nodeId, int))


def cluster_of(consumer: Consumer) -> Any:
    """Return a consumer's view of the cluster; reads `_client.cluster`, which exists from the start. Otherwise None."""
    return getattr(getattr(consumer, "_client", None), "cluster", None)


def on_refresh(cluster: Any, callback: Callable[[], None], once: WarnOnce, *, key: object) -> None:
    """Call this on the loop after each refresh of the metadata, unless a callback with this key is registered.

    Reads `_listeners`. An exception of a listener would end aiokafka's refreshes for good, so the listener raises none.
    """
    listeners = getattr(cluster, "_listeners", None)
    if not isinstance(listeners, set) or not callable(getattr(cluster, "add_listener", None)):
        once.warn("listeners", "%s differs: changes of the metadata are not seen", with_version("aiokafka"))
        return
    if not any(isinstance(listener, MetadataListener) and listener.key is key for listener in listeners):
        # Replaced and not changed: this may be called by a listener.
        cluster._listeners = {*listeners, MetadataListener(callback, once, key, with_version("aiokafka"))}


def near_replica_elsewhere(consumer: Consumer, rack: str, broker: int, partition: TopicPartition) -> bool:
    """Return whether a broker is in another rack than the consumer's while an in-sync replica is in that rack.

    Reads `_client.cluster._partitions[topic][partition].isr`.
    """
    cluster = cluster_of(consumer)
    if _rack_of(cluster, broker) in {None, rack}:
        return False
    known = cluster._partitions.get(partition.topic, {}).get(partition.partition)
    return known is not None and any(_rack_of(cluster, replica) == rack for replica in known.isr)


def _rack_of(cluster: Any, broker: int) -> str | None:
    metadata = cluster.broker_metadata(broker)
    return None if metadata is None else metadata.rack


def client_rack(consumer: Consumer) -> str | None:
    """Return the rack that a consumer sends with its fetches; reads `_client_rack`."""
    return getattr(consumer, "_client_rack", None) or None


def set_client_rack(consumer: Consumer, rack: str | None) -> None:
    """Set the rack that a consumer sends with its fetches, before it is started; sets `_client_rack`, as 0.14 has it.

    For a framework that creates the consumer and passes no `client_rack`.

    Raises:
        AttributeError: The installed aiokafka differs.
    """
    if not hasattr(consumer, "_client_rack"):
        raise AttributeError(f"{with_version('aiokafka')} has no _client_rack")
    consumer._client_rack = rack


def assignors(consumer: Consumer) -> tuple[Any, ...]:
    """Return its assignors; reads `_partition_assignment_strategy`, or `_coordinator._assignors` once started."""
    coordinator = getattr(consumer, "_coordinator", None)
    return tuple(getattr(coordinator, "_assignors", getattr(consumer, "_partition_assignment_strategy", ())))


def set_assignors(consumer: Consumer, chosen: Sequence[Any]) -> None:
    """Set a consumer's assignors; sets what `assignors` reads. A join that is under way continues with the old ones."""
    consumer._partition_assignment_strategy = tuple(chosen)
    coordinator: Any = getattr(consumer, "_coordinator", None)
    if hasattr(coordinator, "_assignors"):
        coordinator._assignors = tuple(chosen)


def group_id(consumer: Consumer) -> str | None:
    """Return a consumer's group; reads `_group_id`. None if it has none, or the attribute is missing."""
    return getattr(consumer, "_group_id", None)


def is_closed(consumer: Consumer, *, once: WarnOnce) -> bool:
    """Return whether `stop()` was called; reads `_closed`, as there is no public attribute. False if missing."""
    closed = getattr(consumer, "_closed", None)
    if closed is None:
        once.warn("closed", "%s differs: metrics of a closed consumer stay", with_version("aiokafka"))
    return bool(closed)


def read_brokers(consumer: Consumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Return the broker from which a consumer fetches each partition; None if it has no leader.

    That is the preferred read replica (KIP-392), and the leader until the leader has named one. Reads
    `_fetcher._preferred_read_replica[partition]`, a pair of the broker and the time at which the leader is asked again:
    `_select_read_replica` removes an expired one, and this is called on any thread. Before 0.14, where it is missing,
    the leader is returned.
    """
    leader = getattr(cluster_of(consumer), "leader_for_partition", lambda _: None)
    preferred: Mapping[Any, Any] = getattr(getattr(consumer, "_fetcher", None), "_preferred_read_replica", {})
    found: dict[TopicPartition, int | None] = {}
    for tp in partitions:
        named = preferred.get(tp)
        broker = leader(tp) if named is None else named[0]
        found[tp] = None if broker is None or broker < 0 else broker
    return found
