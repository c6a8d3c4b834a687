"""All uses of private attributes of aiokafka. Each docstring names them; all exist in 0.14.0.

Rules of this module:

* No other module uses a private name of aiokafka.
* Nothing is patched globally: methods are shadowed on one instance.
* If aiokafka does not have what is needed (any more), the feature that needs it stays off and a warning is logged
  once. The consumer works as it would without the feature.

A consumer's view of its cluster and its membership are found here, because aiokafka passes neither to an assignor.
Metadata of joining members and fetch responses are read before aiokafka gets them.

Followers that a leader names and the consumer does not know (KIP-392): aiokafka (0.14.0) reads from a follower only if
its metadata list that broker. If they are from a time at which the broker was down, aiokafka fetches from the leader
again, which returns no records and names the follower again. Nothing is read until the metadata are due, by default for
five minutes, and meanwhile one fetch follows the other without a pause. The Java client requests new metadata then.

Static members that lead: the broker names a leader that has returned by its former member ID. aiokafka (0.14.0) takes
itself for a follower then, and no member sees partitions that are added until the next rebalance.

Requests that time out without a connection: aiokafka (0.14.0) closes the connection of a request that has timed out,
and raises `KeyError` if it was lost meanwhile and another task has begun to open the next one. That ends the fetcher
for good: no record is read any more, and nothing is raised. A process that was suspended comes to that.

Joins to which a broker responds REBALANCE_IN_PROGRESS: a classic group that becomes a consumer group (KIP-848) does so
to all members that are joining. aiokafka (0.14.0) does not know this response to a join and ends the consumer with a
`KafkaError`. The Java client joins again.

Offsets of a group that a broker does not coordinate, or has not loaded yet: the response has an error and no partitions
(since version 2). aiokafka (0.14.0) reads only errors of partitions, and takes the group for one without offsets: after
a rebalance beside a change of the coordinator it begins as `auto_offset_reset` demands. The Java client asks again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from rackassign.assignor.adapter import DescribedMember, MetadataListener, SharedPartitions
from rackassign.assignor.subscriptions import JoinMember, decode_join, is_former_id
from rackassign.clients.fetch_metrics import FetchedPartition, Observer, Traffic, count_records
from rackassign.clients.local_leaders import RECORD_BYTES, LocalLeaders
from rackassign.clients.write_metrics import WriteMeter
from rackassign.errors import MissingExtraError
from rackassign.model import Broker, Partition, Partitions, TopicPartition, Topology
from rackassign.text import WarnOnce, with_version

try:
    from aiokafka.errors import KafkaError, RequestTimedOutError, for_code
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

    def choose(  # noqa: PLR0917 - aiokafka's interface
        topic: str, partition: int | None, key: Any, value: Any, serialized_key: Any, serialized_value: Any
    ) -> Any:
        if partition is None and serialized_key is None:
            size = leaders.batch_size if serialized_value is None else RECORD_BYTES + len(serialized_value)
            chosen = leaders.choose(topic, size, cluster)
            if chosen is not None:
                return chosen
        return original(topic, partition, key, value, serialized_key, serialized_value)

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

    async def send(node_id: Any, request: Any, **options: Any) -> Any:
        response = await original(node_id, request, **options)
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


def close_when_dropped(consumer: Consumer) -> None:
    """Let a consumer that is garbage-collected without `stop()` leave its group; without a commit.

    aiokafka's tasks would send heartbeats until `max_poll_interval_ms` are over. What a consumer commits when it is
    stopped may be a record that has raised the exception for which it was dropped. Reads `_closed`, `_loop`,
    `_coordinator`, its `_enable_auto_commit`, `_fetcher` and `_client`.
    """
    # The attributes do not refer to the consumer.
    attributes = vars(consumer)

    async def stop() -> None:
        log.warning("a consumer was garbage-collected without stop(): it leaves its group")
        attributes["_coordinator"]._enable_auto_commit = False
        for part in ("_coordinator", "_fetcher", "_client"):
            await attributes[part].close()

    def drop() -> None:
        # The collector may run on any thread. Without its loop nothing is sent any more, also no heartbeats.
        loop, started = attributes.get("_loop"), attributes.get("_coordinator") is not None
        if attributes.get("_closed") is False and started and loop is not None and not loop.is_closed():
            asyncio.run_coroutine_threadsafe(stop(), loop)

    weakref.finalize(consumer, drop).atexit = False


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


@dataclass(slots=True)
class SentMember:
    """Metadata of a member, in the form that `decode_join` reads and cleans."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Later:
    """Result of an assignor's `assign` instead of assignments, if `_perform_assignment` is shadowed.

    aiokafka calls `assign` on the consumer's loop, which would be blocked while a large group is planned.
    """

    # May run on any thread; `finish` runs on the consumer's loop.
    plan: Callable[[], Any]
    finish: Callable[[Any], dict[str, bytes]]

    async def result(self) -> dict[str, bytes]:
        """Plan on a thread, and return the assignments."""
        planned: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        compute_on_thread(self.plan, lambda made: None if planned.done() else planned.set_result(made))
        return self.finish(await planned)


def read_joins(membership: Membership, once: WarnOnce) -> None:
    """Decode members' metadata before aiokafka does, and clean it; done once for a coordinator.

    aiokafka decodes only version 0, topics and user data, and fails on the first malformed member: then no member gets
    an assignment. Shadows `_perform_assignment`, and replaces `members` of the response it is called with: tuples of a
    member ID, from JoinGroup version 5 on an instance ID, and the bytes.
    """
    coordinator = membership.coordinator
    perform: Callable[[Any], Awaitable[Any]] | None = getattr(coordinator, "_perform_assignment", None)
    if isinstance(getattr(perform, "__self__", None), _Reading):
        return
    if perform is None or tuple(inspect.signature(perform).parameters) != ("response",):
        once.warn(
            "joins",
            "%s differs: racks of members are not read, and one malformed member breaks the group",
            with_version("aiokafka"),
        )
        return
    coordinator._perform_assignment = _Reading(coordinator, perform, once).perform


class _Reading:
    """Decodes each join that a coordinator leads, and continues it."""

    def __init__(self, coordinator: Coordinator, perform: Callable[[Any], Awaitable[Any]], once: WarnOnce) -> None:
        self._coordinator = coordinator
        self._perform = perform
        self._once = once

    async def perform(self, response: Any) -> Any:
        join = None
        try:
            join = _read(self._coordinator, response, self._once)
        except Exception:  # noqa: BLE001 - then aiokafka behaves as without this
            self._once.warn(
                "joins", "%s differs: members' metadata could not be read", with_version("aiokafka"), exc_info=True
            )
        token = _CURRENT.set(join)
        try:
            assigned = await self._perform(response)
        finally:
            _CURRENT.reset(token)
        return await self._planned(assigned) if isinstance(assigned, Later) else assigned

    async def _planned(self, later: Later) -> dict[str, bytes]:
        """Wait for a plan, and request the next rebalance if that was requested meanwhile.

        aiokafka relies on there being nothing to wait for between its view of the metadata in `_perform_assignment` and
        the reset of `_rejoin_needed_fut` that follows. A request in between, for new partitions, would be discarded.
        """
        coordinator = self._coordinator
        # The future itself cannot be asked: it is done already if this join was requested.
        snapshot = getattr(coordinator, "_metadata_snapshot", None)
        plan = await later.result()
        try:
            if getattr(coordinator, "_metadata_snapshot", None) != snapshot:
                asyncio.get_running_loop().call_soon(coordinator.request_rejoin)
        except Exception:  # noqa: BLE001 - then aiokafka behaves as without this
            self._once.warn(
                "rejoin", "%s differs: new partitions may be assigned late", with_version("aiokafka"), exc_info=True
            )
        return plan


@dataclass(frozen=True, slots=True)
class Join:
    """The join that a coordinator is calling its assignor for."""

    # It may wrap another one.
    assignor: object
    members: tuple[JoinMember, ...]


def current_join() -> Join | None:
    """Return the join that aiokafka is calling an assignor for; None if it was not decoded."""
    return _CURRENT.get()


_CURRENT: ContextVar[Join | None] = ContextVar("rackassign_join", default=None)
"""aiokafka passes members to an assignor in a dict that it builds itself, so they cannot be passed as an argument."""


def _read(coordinator: Coordinator, response: Any, once: WarnOnce) -> Join:
    """Clean the members of a join in place, and return them decoded."""
    chosen = coordinator._lookup_assignor(response.group_protocol)
    members = [SentMember(each[0], each[1] if len(each) > _PAIR else None, each[-1]) for each in response.members]
    context = decode_join(members, chosen, once)
    response.members = [(*old[:-1], new.metadata) for old, new in zip(response.members, members, strict=True)]
    read = context.subscriptions
    return Join(chosen, tuple(JoinMember(m.member_id, m.group_instance_id, read[m.member_id]) for m in members))


_PAIR = 2


Step = Callable[[Sequence[FetchedPartition]], Awaitable[None]]
"""What is done before a fetch response is returned; it must end soon."""


def observe_fetches(consumer: Consumer, observer: Observer, once: WarnOnce, *, key: object) -> None:
    """Pass every fetch response to an observer, unless there is one for this key already.

    Shadows `_client.send`, which is looked up for each request and exists from the start.
    """
    sending = _sending(consumer, once)
    if sending is not None:
        sending.observers.setdefault(key, observer)


def before_fetches_return(consumer: Consumer, step: Step, once: WarnOnce) -> None:
    """Do this before aiokafka gets a fetch response; only the first step that is given is done."""
    sending = _sending(consumer, once)
    if sending is not None and sending.step is None:
        sending.step = step


def _sending(consumer: Consumer, once: WarnOnce) -> _Sending | None:
    """Return what a consumer sends requests with, shadowed; None if aiokafka has changed."""
    client = getattr(consumer, "_client", None)
    send = getattr(client, "send", None)
    sending = getattr(send, "__self__", None)
    if isinstance(sending, _Sending):
        return sending
    if send is None or tuple(inspect.signature(send).parameters) != ("node_id", "request", "group"):
        once.warn(
            "responses",
            "%s differs: fetches are not observed, and joins and timeouts may end the consumer",
            with_version("aiokafka"),
        )
        return None
    sending = _Sending(send, once)
    client.send = sending.send  # type: ignore[union-attr]
    return sending


def join_again(owner: Consumer | Coordinator, once: WarnOnce) -> None:
    """Let a consumer join again when its group became a consumer group meanwhile; a second call changes nothing."""
    _sending(owner, once)


def watch_as_returned_leader(coordinator: Coordinator, once: WarnOnce) -> None:
    """Let a static member that is the leader since before its restart watch for new partitions, as leaders do.

    Shadows `_send_req`. Reads `_group_instance_id` and `_subscription.topics`, and sets `_group_subscription` and
    `_metadata_snapshot`, which only leaders have.
    """
    send: Callable[[Any], Awaitable[Any]] | None = getattr(coordinator, "_send_req", None)
    if "_send_req" in vars(coordinator):
        return
    if send is None or tuple(inspect.signature(send).parameters) != ("request",):
        once.warn("returned", "%s differs: a static leader misses new partitions", with_version("aiokafka"))
        return

    async def send_request(request: Any) -> Any:
        response = await send(request)
        try:
            if getattr(response, "API_KEY", None) == _JOIN and is_former_id(
                response.leader_id, coordinator._group_instance_id, response.member_id
            ):
                coordinator._group_subscription = set(coordinator._subscription.topics)
                coordinator._metadata_snapshot = coordinator._get_metadata_snapshot()
        except Exception:  # noqa: BLE001 - then aiokafka behaves as without this
            once.warn(
                "returned",
                "%s differs: a static leader misses new partitions",
                with_version("aiokafka"),
                exc_info=True,
            )
        return response

    coordinator._send_req = send_request


_FETCH, _OFFSET_FETCH, _JOIN = 1, 9, 11
"""API keys of these requests in Kafka's protocol."""
_COORDINATOR_LOAD_IN_PROGRESS, _REBALANCE_IN_PROGRESS = 14, 27


async def send_or_time_out(
    send: Callable[..., Awaitable[Any]], node_id: Any, request: Any, options: Mapping[str, Any]
) -> Any:
    """Send a request, and raise what aiokafka raises after a timeout also if there is no connection to close then."""
    try:
        return await send(node_id, request, **options)
    except KeyError as error:
        raise RequestTimedOutError from error


def raise_if_offsets_are_unknown(response: Any) -> None:
    """Raise the error of a response to a request for a group's offsets: after some, aiokafka asks again."""
    code = getattr(response, "error_code", 0) if getattr(response, "API_KEY", None) == _OFFSET_FETCH else 0
    if code:
        raise for_code(code)


class _Sending:
    """Passes fetch responses to observers before aiokafka gets them, and joins and timeouts as it knows them."""

    def __init__(self, send: Callable[..., Awaitable[Any]], once: WarnOnce) -> None:
        self.observers: dict[object, Observer] = {}
        self.step: Step | None = None
        self._send = send
        self._once = once

    async def send(self, node_id: Any, request: Any, **options: Any) -> Any:
        response = await send_or_time_out(self._send, node_id, request, options)
        raise_if_offsets_are_unknown(response)
        try:
            key = getattr(response, "API_KEY", None)
            if key == _JOIN and response.error_code == _REBALANCE_IN_PROGRESS:
                # After this response aiokafka waits for `retry_backoff_ms` and joins again, with the same member ID.
                response.error_code = _COORDINATOR_LOAD_IN_PROGRESS
            elif key == _FETCH and isinstance(node_id, int):
                fetched = _fetched(response)
                for observe in tuple(self.observers.values()):
                    observe(node_id, fetched)
                if self.step is not None:
                    await self.step(fetched)
        except Exception:  # noqa: BLE001 - a response that could not be observed must still be read
            self._once.warn(
                "responses", "%s differs: a response could not be observed", with_version("aiokafka"), exc_info=True
            )
        return response


_NAMES_FOLLOWERS = 11
"""First version of fetch responses that may name another replica; it comes before the records, which are last."""


def _fetched(response: Any) -> list[FetchedPartition]:
    fetched: list[FetchedPartition] = []
    for topic, partitions in response.topics:
        for partition, *rest in partitions:
            batches = rest[-1] or b""
            preferred = rest[-2] if response.API_VERSION >= _NAMES_FOLLOWERS else -1
            fetched.append(
                FetchedPartition(
                    TopicPartition(topic, partition),
                    len(batches),
                    count_records(batches),
                    preferred if preferred >= 0 else None,
                )
            )
    return fetched


_LONGEST_S = 0.1
"""How long a fetch response waits for new metadata. Brokers may list a broker later than its leader names it, and then
this is the time between two requests for metadata."""


def find_unknown_followers(owner: Consumer | Coordinator, once: WarnOnce) -> None:
    """Request metadata when a leader names a follower that is not among the brokers; a second call changes nothing.

    Uses `_client.cluster.broker_metadata` and `_client.force_metadata_update`.
    """
    client: Any = getattr(owner, "_client", None)
    known = getattr(getattr(client, "cluster", None), "broker_metadata", None)
    update = getattr(client, "force_metadata_update", None)
    if not callable(known) or not callable(update):
        once.warn(
            "unknown followers",
            "%s differs: a follower that is back may not be read from before metadata_max_age_ms",
            with_version("aiokafka"),
        )
        return

    async def find(fetched: Iterable[FetchedPartition]) -> None:
        named = {partition.preferred_replica for partition in fetched} - {None}
        if any(known(broker) is None for broker in named):
            await asyncio.wait([asyncio.ensure_future(update())], timeout=_LONGEST_S)

    before_fetches_return(owner, find, once)
