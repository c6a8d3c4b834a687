"""Defects of aiokafka (0.14.0) that are worked around on one consumer. The rules are those of `internals`.

Metadata of joining members and fetch responses are read before aiokafka gets them. `UPSTREAM.md` has the defects.

Followers that a leader names and the consumer does not know (KIP-392): aiokafka reads from a follower only if its
metadata list that broker. If they are from a time at which the broker was down, aiokafka fetches from the leader again,
which returns no records and names the follower again. Nothing is read until the metadata are due, by default for five
minutes, and meanwhile one fetch follows the other without a pause. The Java client requests new metadata then.

Static members that lead: the broker names a leader that has returned by its former member ID. aiokafka takes itself for
a follower then, and no member sees partitions that are added until the next rebalance.

Requests that time out without a connection: aiokafka closes the connection of a request that has timed out, and raises
`KeyError` if it was lost meanwhile and another task has begun to open the next one. That ends the fetcher for good: no
record is read any more, and nothing is raised. A process that was suspended comes to that.

Joins to which a broker responds REBALANCE_IN_PROGRESS: a classic group that becomes a consumer group (KIP-848) does so
to all members that are joining. aiokafka does not know this response to a join and ends the consumer with a
`KafkaError`. The Java client joins again.

Offsets of a group that a broker does not coordinate, or has not loaded yet: the response has an error and no partitions
(since version 2). aiokafka reads only errors of partitions, and takes the group for one without offsets: after a
rebalance beside a change of the coordinator it begins as `auto_offset_reset` demands. The Java client asks again.

Heartbeats that are cancelled as they leave: a member that is not polled for `max_poll_interval_ms` leaves its group, on
the task of its heartbeats. aiokafka cancels that task before a join, and is cancelled with it while a broker does not
respond to the leave: it never joins again, reads nothing, and raises nothing.

Commits of a member that was removed: aiokafka forgets its generation after the first one that is refused, and sends the
next one as a consumer without a group would. A group without members takes that, and the offset goes back.

Commits that never end: aiokafka repeats a commit without a limit in time. One of a topic that was deleted holds up the
next join, and with it the whole group, until the topic is back (KAFKA-12256 in the Java client). One of a consumer that
stops while its coordinator is unknown is repeated for ever, as only a consumer that runs looks it up.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    for_code,
)

from rackassign.assignor.subscriptions import JoinMember, decode_join, is_former_id
from rackassign.clients.aiokafka.internals import Consumer, Coordinator, Membership, compute_on_thread
from rackassign.clients.fetch_metrics import FetchedPartition, Observer, count_records
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, with_version

log = logging.getLogger(__name__)


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


async def commit_while_stopping(
    coordinator: Coordinator, commit: Callable[[], Awaitable[None]], ends_at: float
) -> None:
    """Repeat the last commit until this time of the loop."""
    left_s = max(0.0, ends_at - asyncio.get_running_loop().time())
    try:
        await asyncio.wait_for(_commit_at_last(coordinator, commit), left_s)
    except asyncio.TimeoutError:
        # aiokafka repeats a commit after errors of other classes.
        raise KafkaError("the last commit was not accepted within a session") from None


async def _commit_at_last(coordinator: Coordinator, commit: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            if coordinator.coordinator_id is None:
                coordinator.coordinator_id = await coordinator._client.coordinator_lookup(
                    CoordinationType.GROUP, coordinator.group_id
                )
                coordinator._coordinator_dead_fut = asyncio.get_running_loop().create_future()
            return await commit()
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(coordinator._retry_backoff_ms / 1000)


async def of_existing_topics(coordinator: Coordinator, offsets: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the offsets of partitions that exist, by new metadata."""
    await coordinator._client.force_metadata_update()
    known = coordinator._cluster.partitions_for_topic
    return {tp: offset for tp, offset in offsets.items() if tp.partition in (known(tp.topic) or ())}


def raise_if_removed(coordinator: Coordinator) -> None:
    """Raise what a member gets that commits too late, if it has no generation: a group without members takes that."""
    if coordinator.generation < 0 and coordinator._subscription.partitions_auto_assigned():
        raise IllegalGenerationError(coordinator.group_id)


def stop_heartbeats(coordinator: Coordinator, once: WarnOnce) -> None:
    """Let a coordinator outlive a heartbeat that is cancelled as it leaves the group; a second call changes nothing.

    Shadows `_stop_heartbeat_task`, and sets `_heartbeat_task` as that does.
    """
    stop: Callable[[], Awaitable[None]] | None = getattr(coordinator, "_stop_heartbeat_task", None)
    if "_stop_heartbeat_task" in vars(coordinator):
        return
    if stop is None or inspect.signature(stop).parameters or not hasattr(coordinator, "_heartbeat_task"):
        once.warn("heartbeats", "%s differs: a consumer may stop to read", with_version("aiokafka"))
        return

    async def stop_task() -> None:
        task = coordinator._heartbeat_task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        coordinator._heartbeat_task = None

    coordinator._stop_heartbeat_task = stop_task


_NEEDED_BY_COMMITS = (
    *("_client", "_closing", "_cluster", "_retry_backoff_ms", "_session_timeout_ms", "_subscription"),
    *("coordinator_id", "generation"),
)


def end_commits(coordinator: Coordinator, once: WarnOnce) -> None:
    """Let commits end of topics that were deleted, of a consumer that stops, and of a member that was removed.

    A second call changes nothing. Shadows `_do_commit_offsets`, reads what `_NEEDED_BY_COMMITS` names, sets
    `coordinator_id` and `_coordinator_dead_fut`, and calls `_client.coordinator_lookup` and
    `_client.force_metadata_update`.
    """
    commit: Callable[..., Awaitable[None]] | None = getattr(coordinator, "_do_commit_offsets", None)
    if "_do_commit_offsets" in vars(coordinator):
        return
    needed = all(hasattr(coordinator, name) for name in _NEEDED_BY_COMMITS)
    if commit is None or not needed or tuple(inspect.signature(commit).parameters) != ("assignment", "offsets"):
        once.warn("commits", "%s differs: commits of deleted topics are repeated", with_version("aiokafka"))
        return

    async def commit_existing(assignment: Any, offsets: Mapping[Any, Any]) -> None:
        try:
            await commit(assignment, offsets)
        except UnknownTopicOrPartitionError:
            existing = await of_existing_topics(coordinator, offsets)
            if len(existing) == len(offsets):
                raise
            gone = sorted({tp.topic for tp in offsets.keys() - existing.keys()})
            log.warning("offsets of deleted topics or partitions are not committed: %s", ", ".join(gone))
            await commit(assignment, existing)

    ends_at: float | None = None

    async def commit_or_end(assignment: Any, offsets: Mapping[Any, Any]) -> None:
        nonlocal ends_at
        raise_if_removed(coordinator)
        if coordinator._closing.done():
            if ends_at is None:
                # After a session its membership is over.
                ends_at = asyncio.get_running_loop().time() + coordinator._session_timeout_ms / 1000
            await commit_while_stopping(coordinator, partial(commit_existing, assignment, offsets), ends_at)
        else:
            await commit_existing(assignment, offsets)

    coordinator._do_commit_offsets = commit_or_end


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
