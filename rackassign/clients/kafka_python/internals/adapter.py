"""A consumer's view of its cluster, and its membership in its group: partitions, protocol, and requests to rejoin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kafka.errors import KafkaError, RebalanceInProgressError
from kafka.protocol.admin import DescribeGroupsRequest

from rackassign.assignor.adapter import DescribedMember, MetadataListener, SharedPartitions
from rackassign.clients.kafka_python.internals.attributes import Coordinator, is_cooperative
from rackassign.model import Broker, Partition, Partitions, TopicPartition, Topology
from rackassign.text import WarnOnce, with_version


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


def missed_local_replica(cluster: Any, rack: str, broker: int, partition: TopicPartition) -> bool:
    """Return whether a broker is in another rack than the consumer's while an in-sync replica is in that rack.

    Reads `_partitions[topic][partition].isr_nodes`.
    """
    # Called for every partition of every response: most come from this rack, and then one lookup is enough.
    if rack_of(cluster, broker) in {None, rack}:
        return False
    known = cluster._partitions.get(partition.topic, {}).get(partition.partition)
    return known is not None and any(rack_of(cluster, replica) == rack for replica in known.isr_nodes)


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


def rack_of(cluster: Any, broker: int) -> str | None:
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


T = TypeVar("T")


class Membership:
    """A view of a coordinator; it may be used on kafka-python's IO thread.

    Args:
        coordinator: kafka-python's `ConsumerCoordinator`.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def same_consumer(self, other: Membership) -> bool:
        """Return whether both memberships belong to one consumer."""
        return self._coordinator is other._coordinator

    def owned(self) -> Partitions:
        """Return the partitions that the consumer owns now; nothing once its membership was lost.

        Reads `_subscription.assigned_partitions()`, which kafka-python empties when it loses its generation and reduces
        when a topic is unsubscribed, without notifying assignors.
        """
        owned: dict[str, list[int]] = {}
        for topic, partition in self._coordinator._subscription.assigned_partitions():
            owned.setdefault(topic, []).append(partition)
        return {topic: tuple(sorted(partitions)) for topic, partitions in owned.items()}

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if there is none.

        Reads `_generation.generation_id`, which is set before a leader computes an assignment.
        """
        generation = getattr(getattr(self._coordinator, "_generation", None), "generation_id", None)
        return generation if isinstance(generation, int) and generation >= 0 else None

    def member_id(self) -> str:
        """Return the member ID, which is empty before the first join; reads `_generation.member_id`."""
        return str(getattr(getattr(self._coordinator, "_generation", None), "member_id", ""))

    def session_timeout_s(self) -> float | None:
        """Return the session timeout; reads `config["session_timeout_ms"]`. None if the attribute is missing."""
        timeout_ms = getattr(self._coordinator, "config", {}).get("session_timeout_ms")
        return timeout_ms / 1000 if isinstance(timeout_ms, int | float) else None

    def cooperative(self) -> bool:
        """Return whether it keeps its partitions while it joins; reads `_rebalance_protocol`."""
        return is_cooperative(self._coordinator)

    def static(self) -> bool:
        """Return whether it is a static member; reads `group_instance_id`. False if missing."""
        return getattr(self._coordinator, "group_instance_id", None) is not None

    def leads(self) -> bool:
        """Return whether it leads; reads `_is_leader`, which the patch `watch_as_returned_leader` sets, too."""
        return bool(getattr(self._coordinator, "_is_leader", False))

    def describe_group(self, done: Callable[[Sequence[DescribedMember]], None]) -> None:
        """Request the members of the group; sends to `coordinator_id` with `_manager.send`, as heartbeats are sent."""
        coordinator = self._coordinator

        async def request() -> None:
            try:
                response = await coordinator._manager.send(
                    DescribeGroupsRequest(groups=[coordinator.group_id]), node_id=coordinator.coordinator_id
                )
            except KafkaError:
                return
            (group,) = response.groups
            if group.error_code == 0 and group.group_state == "Stable":
                done(
                    [
                        DescribedMember(m.member_id, m.group_instance_id, m.member_metadata, m.member_assignment)
                        for m in group.members
                    ]
                )

        coordinator._manager.call_soon(request)

    def cluster(self) -> Cluster:
        """Return the consumer's live view of the cluster; reads `_cluster`."""
        cluster: Cluster = self._coordinator._cluster
        return cluster

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call this on kafka-python's IO thread after some seconds; it must not raise.

        Uses `_manager.call_soon` and the awaitable that `_manager._net.sleep` makes.
        """

        async def wait() -> None:
            await self._coordinator._manager._net.sleep(delay_s)
            callback()

        self._coordinator._manager.call_soon(wait)

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Work at once, on the IO thread, where `assign` plans too."""
        done(work())

    def refresh_metadata(self) -> None:
        """Make the client request new metadata from the brokers; calls `_cluster.request_update()`."""
        self._coordinator._cluster.request_update()

    def confirm(self, timeout_ms: float) -> bool:
        """Return whether the coordinator confirms this membership; blocks, and not to be used on the IO thread.

        Sends a heartbeat with `_send_heartbeat_request`, in the way of `commit_offsets_sync`. If it is refused,
        kafka-python gives the membership up and joins with the next `poll()`. During a join, of which `stable()`
        informs, nothing is confirmed.
        """
        coordinator = self._coordinator

        async def ask() -> None:
            future = coordinator._manager.call_soon(coordinator._send_heartbeat_request)
            await coordinator._manager.wait_for(future, timeout_ms)

        if not coordinator.stable():
            return False
        try:
            coordinator._net.run(ask)
        except RebalanceInProgressError:
            # Brokers check the generation first.
            return True
        except KafkaError:
            return False
        return True

    def request_rejoin(self) -> None:
        """Make it rejoin with its next `poll()`. Lost during a join, so call this only after a join is complete."""
        self._coordinator.request_rejoin()


def membership_of(consumer: Any) -> Membership | None:
    """Return the membership of a consumer; reads `_coordinator`. None if the attribute is missing."""
    return _checked(getattr(consumer, "_coordinator", None))


def find_membership(cluster: Any) -> Membership | None:
    """Return the membership of the consumer with this view of the cluster, None if it cannot be determined.

    An assignor gets only the cluster. The coordinator is a listener of it, so it is found in `_listeners`: behind a
    `kafka.util.WeakMethod`, whose `target` is a weak reference.
    """
    listeners: Iterable[Any] = getattr(cluster, "_listeners", ())
    for listener in tuple(listeners):
        target = getattr(listener, "target", None)
        found = _checked(target() if callable(target) else getattr(listener, "__self__", None))
        if found is not None:
            return found
    return None


def _checked(coordinator: Coordinator | None) -> Membership | None:
    subscription = getattr(coordinator, "_subscription", None)
    fits = (
        callable(getattr(subscription, "assigned_partitions", None))
        and callable(getattr(coordinator, "request_rejoin", None))
        and hasattr(coordinator, "_rebalance_protocol")
        and hasattr(coordinator, "_cluster")
    )
    return Membership(coordinator) if fits else None
