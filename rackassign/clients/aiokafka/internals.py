"""What the other modules read of aiokafka's private attributes. Each docstring names them; all exist in 0.14.0.

Rules of this module and of `patches`:

* No other module uses a private name of aiokafka.
* Nothing is patched globally: methods are shadowed on one instance.
* If aiokafka does not have what is needed (any more), the feature that needs it stays off and a warning is logged
  once. The consumer works as it would without the feature.

A consumer's view of its cluster and its membership are found here, because aiokafka passes neither to an assignor.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from rackassign.assignor.adapter import DescribedMember, MetadataListener, SharedPartitions
from rackassign.clients.fetch_metrics import Traffic, count_records
from rackassign.clients.local_leaders import RECORD_BYTES, LocalLeaders
from rackassign.clients.write_metrics import WriteMeter
from rackassign.errors import MissingExtraError
from rackassign.model import Broker, Partition, Partitions, TopicPartition, Topology
from rackassign.text import WarnOnce, with_version

try:
    from aiokafka.errors import KafkaError
    from aiokafka.protocol.admin import DescribeGroupsRequest
except ModuleNotFoundError:
    raise MissingExtraError("aiokafka", "aiokafka") from None

log = logging.getLogger(__name__)

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


def near_replica_elsewhere(cluster: Any, rack: str, broker: int, partition: TopicPartition) -> bool:
    """Return whether a broker is in another rack than the consumer's while an in-sync replica is in that rack.

    Reads `_partitions[topic][partition].isr`.
    """
    if rack_of(cluster, broker) in {None, rack}:
        return False
    known = cluster._partitions.get(partition.topic, {}).get(partition.partition)
    return known is not None and any(rack_of(cluster, replica) == rack for replica in known.isr)


def rack_of(cluster: Any, broker: int) -> str | None:
    metadata = cluster.broker_metadata(broker)
    return None if metadata is None else metadata.rack


def client_rack(consumer: Consumer) -> str | None:
    return getattr(consumer, "_client_rack", None) or None


def set_client_rack(consumer: Consumer, rack: str | None) -> None:
    """Set the rack that a consumer sends with its fetches, before it is started; sets `_client_rack`.

    For a framework that creates the consumer and passes no `client_rack`.
    """
    if not hasattr(consumer, "_client_rack"):
        raise AttributeError(f"{with_version('aiokafka')} has no _client_rack")
    consumer._client_rack = rack


_PARTITION_ARGUMENTS = ("topic", "partition", "key", "value", "serialized_key", "serialized_value")


def choose_partitions(producer: Any, leaders: LocalLeaders, once: WarnOnce) -> None:
    """Let `leaders` choose the partitions of a producer's records without key and partition.

    Shadows `_partition`, which `send` and `send_batch` call once the topic is in `client.cluster`: a partitioner of
    aiokafka gets no topic, so it cannot look up leaders. `send_batch` calls it with neither key nor value. Reads
    `_message_accumulator._batches`, which has a queue for each partition.
    """
    original = getattr(producer, "_partition", None)
    cluster = getattr(getattr(producer, "client", None), "cluster", None)
    if cluster is None or not callable(original) or (*inspect.signature(original).parameters,) != _PARTITION_ARGUMENTS:
        once.warn("partition", "%s differs: records go to leaders in all racks", with_version("aiokafka"))
        return

    # A producer that refers to itself would stay, once it is dropped, until the collector runs.
    of_class, owner = type(producer)._partition, weakref.ref(producer)

    def choose(  # noqa: PLR0917 - aiokafka's interface
        topic: str, partition: int | None, key: Any, value: Any, serialized_key: Any, serialized_value: Any
    ) -> Any:
        if partition is None and serialized_key is None:
            size = leaders.batch_size if serialized_value is None else RECORD_BYTES + len(serialized_value)
            chosen = leaders.choose(topic, size, cluster)
            if chosen is not None:
                return chosen
        return of_class(owner(), topic, partition, key, value, serialized_key, serialized_value)

    producer._partition = choose
    queues = getattr(getattr(producer, "_message_accumulator", None), "_batches", None)
    if isinstance(queues, dict):
        leaders.queued = lambda partition: len(queues.get(partition, ()))
    else:
        once.warn("queues", "%s differs: slow leaders get as many records", with_version("aiokafka"))


_PRODUCE = 0
"""API key of produce requests in Kafka's protocol."""


def count_writes(producer: Any, meter: WriteMeter, once: WarnOnce) -> None:
    """Count every produce request of a producer that a broker has responded to.

    Shadows `client.send`, and reads `_topics` of the request: a list of topics with a list of partitions and bytes
    each.
    """
    client = getattr(producer, "client", None)
    original = getattr(client, "send", None)
    if original is None or tuple(inspect.signature(original).parameters) != ("node_id", "request", "group"):
        once.warn("writes", "%s differs: what is written is not counted", with_version("aiokafka"))
        return

    # As in `choose_partitions`.
    of_class, owner = type(client).send, weakref.ref(client)  # type: ignore[union-attr]

    async def send(node_id: Any, request: Any, **options: Any) -> Any:
        response = await of_class(owner(), node_id, request, **options)
        try:
            if getattr(request, "API_KEY", None) == _PRODUCE:
                meter(node_id, _written(request))
        except Exception:  # noqa: BLE001 - a request that could not be counted was still sent
            once.warn("writes", "%s differs: a request could not be counted", with_version("aiokafka"), exc_info=True)
        return response

    client.send = send  # type: ignore[union-attr]


def _written(request: Any) -> Iterator[tuple[TopicPartition, Traffic]]:
    for topic, partitions in request._topics:
        for partition, batches in partitions:
            yield TopicPartition(topic, partition), Traffic(len(batches), count_records(batches))


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
    `_select_read_replica` removes an expired one, and this is called on any thread. If it is missing, the leader is
    returned.
    """
    leader = getattr(cluster_of(consumer), "leader_for_partition", lambda _: None)
    preferred: Mapping[Any, Any] = getattr(getattr(consumer, "_fetcher", None), "_preferred_read_replica", {})
    found: dict[TopicPartition, int | None] = {}
    for tp in partitions:
        named = preferred.get(tp)
        broker = leader(tp) if named is None else named[0]
        found[tp] = None if broker is None or broker < 0 else broker
    return found


Coordinator = Any
"""aiokafka's `GroupCoordinator`, untyped."""

AssignorT = TypeVar("AssignorT")
T = TypeVar("T")


class Membership:
    """A view of a coordinator; it may be used on the consumer's loop.

    Args:
        coordinator: aiokafka's `GroupCoordinator`.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self._request: asyncio.Task[None] | None = None

    def same_consumer(self, other: Membership) -> bool:
        """Return whether both memberships belong to one consumer."""
        return self.coordinator is other.coordinator

    def over(self) -> bool:
        """Return whether its consumer was stopped or has failed; reads `_closing` and `_coordination_task`."""
        ends = (getattr(self.coordinator, name, None) for name in ("_closing", "_coordination_task"))
        return any(end is not None and end.done() for end in ends)

    def owned(self) -> Partitions:
        """Return nothing: an eager member has revoked everything before this is called."""
        return {}

    def cooperative(self) -> bool:
        """Return False: aiokafka revokes everything before it joins (`_on_join_prepare`)."""
        return False

    def session_timeout_s(self) -> float | None:
        """Return the session timeout; reads `_session_timeout_ms`. None if the attribute is missing."""
        timeout_ms = getattr(self.coordinator, "_session_timeout_ms", None)
        return timeout_ms / 1000 if isinstance(timeout_ms, int | float) else None

    def generation(self) -> int | None:
        """Return the group's generation as of the last join response; None if there is none.

        Reads `generation`, which is set before a leader computes an assignment.
        """
        generation = getattr(self.coordinator, "generation", None)
        return generation if isinstance(generation, int) and generation >= 0 else None

    def member_id(self) -> str:
        """Return the member ID, which is empty before the first join; reads `member_id`."""
        return str(getattr(self.coordinator, "member_id", ""))

    def static(self) -> bool:
        """Return whether it is a static member; reads `_group_instance_id`. False if missing."""
        return getattr(self.coordinator, "_group_instance_id", None) is not None

    def leads(self) -> bool:
        """Return whether it leads; reads `_group_subscription`, which `watch_as_returned_leader` sets, too."""
        return getattr(self.coordinator, "_group_subscription", None) is not None

    def describe_group(self, done: Callable[[Sequence[DescribedMember]], None]) -> None:
        """Request the members of the group; sends with `_send_req`, and reads `group_id`."""

        async def request() -> None:
            try:
                response = await self.coordinator._send_req(DescribeGroupsRequest([self.coordinator.group_id]))
            except KafkaError:
                return
            error, _, state, _, _, members, *_ = response.groups[0]
            if error == 0 and state == "Stable" and not self.over():
                # aiokafka's versions of this request have no instance IDs.
                done([DescribedMember(name, None, metadata, given) for name, _, _, metadata, given, *_ in members])

        # Of a task that is under way asyncio itself keeps no reference.
        self._request = asyncio.get_running_loop().create_task(request())

    def cluster(self) -> Any:
        """Return the consumer's live view of the cluster; reads `_cluster`."""
        return self.coordinator._cluster

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call this on the loop after some seconds, unless the consumer was stopped; it must not raise."""
        asyncio.get_running_loop().call_later(delay_s, lambda: None if self.over() else callback())

    def compute(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Work on a thread: the user's own tasks are on the loop."""
        compute_on_thread(work, lambda result: None if self.over() else done(result))

    def refresh_metadata(self) -> None:
        """Make the client request new metadata from the brokers; calls `_client.force_metadata_update()`."""
        self.coordinator._client.force_metadata_update()

    def request_rejoin(self) -> None:
        """Make it rejoin. The request is lost between JoinGroup and SyncGroup, so call this after a join."""
        self.coordinator.request_rejoin()


def compute_on_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Call `work` on a thread, and `done` with its result on the running loop, unless that is closed by then.

    The thread is none of the loop's own, which may all be occupied by the user's work for any time.
    """
    loop = asyncio.get_running_loop()

    def run() -> None:
        result = work()
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done, result)

    try:
        threading.Thread(target=run, name="rackassign-plan", daemon=True).start()
    except RuntimeError:
        # No thread can be started now.
        done(work())


def membership_of(consumer: Consumer) -> Membership | None:
    """Return the membership of a started consumer; reads `_coordinator`. None before, or without a group."""
    return _checked(getattr(consumer, "_coordinator", None))


def find_membership(cluster: Any) -> Membership | None:
    """Return the membership of the consumer with this view of the cluster, None if it cannot be determined.

    The coordinator is a listener of the view: it is found in `_listeners`, behind its bound method.
    """
    listeners: Iterable[Any] = getattr(cluster, "_listeners", ())
    found = (_checked(getattr(listener, "__self__", None)) for listener in tuple(listeners))
    return next((membership for membership in found if membership is not None), None)


_FAR_ENOUGH = 12
"""Number of callers to search. The coordinator is the second or third; some are of this package."""


def membership_from_stack() -> Membership | None:
    """Return the membership of the consumer that is calling `metadata` now, None if it cannot be determined.

    An assignor gets only topics then, and it is the last opportunity to arrange that racks of members can be read. The
    caller is the coordinator: `perform_group_join`, called by its `_do_rejoin_group`, whose `self` it is.
    """
    return next((found for caller in _callers() if (found := _checked(caller)) is not None), None)


def fetch_rack(membership: Membership) -> str | None:
    """Return the rack that the consumer of this membership sends with its fetches, "" if none.

    The coordinator does not know the fetcher, but both have the same subscription, and a fetcher that runs is the
    `self` of one of the loop's tasks. Reads `_subscription` of the one, and `_subscriptions` and `_client_rack` of the
    other. None if no such task is found.
    """
    subscription = getattr(membership.coordinator, "_subscription", None)
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        # No loop is running.
        return None
    for task in tasks:
        frame = getattr(task.get_coro(), "cr_frame", None)
        owner = None if frame is None else frame.f_locals.get("self")
        if subscription is not None and _attributes(owner).get("_subscriptions") is subscription:
            rack = _attributes(owner).get("_client_rack", "")
            return rack if isinstance(rack, str) else ""
    return None


def _attributes(owner: object) -> Mapping[str, Any]:
    """Return the attributes of an object of the application, which may raise any error when it is asked for one."""
    try:
        found: object = vars(owner)
    except Exception:  # noqa: BLE001 - it is not the fetcher
        return {}
    return found if isinstance(found, dict) else {}


def _callers() -> Iterator[Any]:
    frame = inspect.currentframe()
    for _ in range(_FAR_ENOUGH):
        frame = None if frame is None else frame.f_back
        if frame is None:
            return
        yield frame.f_locals.get("self")


def _checked(coordinator: Coordinator | None) -> Membership | None:
    fits = (
        callable(getattr(coordinator, "request_rejoin", None))
        and hasattr(coordinator, "generation")
        and hasattr(coordinator, "_cluster")
        and hasattr(coordinator, "_assignors")
    )
    return Membership(coordinator) if fits else None


def per_consumer_instance(
    kind: type[AssignorT], make: Callable[[], AssignorT], make_alone: Callable[[], AssignorT]
) -> AssignorT:
    """Return the calling consumer's instance of an assignor, if the class was passed to the consumer.

    aiokafka uses a class as it is, for all consumers. So at the first call the class is replaced by an instance in
    `_assignors` of the coordinator. If the caller cannot be determined, each call gets an instance of its own, which
    sends its rack and keeps no state.
    """
    membership = membership_from_stack()
    if membership is None:
        return make_alone()
    assignors: Sequence[Any] = membership.coordinator._assignors
    for each in assignors:
        if type(each) is kind:
            return each
    made = make()
    membership.coordinator._assignors = tuple(made if each is kind else each for each in assignors)
    return made
