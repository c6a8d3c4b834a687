"""Remedies for kafka-python's defects, each a small piece of its own: the defect, the proof, what it needs of the host.

What a remedy may rely on: the coordinator's coroutines run on the host's IO thread, one at a time, and switch only
where they await something unfinished. `poll()` runs on the user's thread and drives them from there.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from kafka.coordinator.base import MemberState
from kafka.errors import (
    IllegalGenerationError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)

from rackassign.clients.once import Once
from rackassign.errors import WireError
from rackassign.wire import Subscription, SubscriptionReader, encode_subscription

log = logging.getLogger(__name__)

Coordinator = Any
"""kafka-python's `ConsumerCoordinator`, untyped."""

_LEGAL_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

_REJOIN_ERRORS = (
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    RetriableError,
    UnknownMemberIdError,
)
"""A join that fails with one of these is simply made again; any other error is the user's to see."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A cure for one defect of the host, put on one coordinator.

    Args:
        name: By which it can be left out.
        defect: What happens without it.
        proof: The test that fails without it.
        methods: Methods it shadows, with the parameters they must have.
        needs: Attributes it reads.
        install: Puts it on a coordinator.
    """

    name: str
    defect: str
    proof: str
    methods: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...]
    install: Callable[[Coordinator, Once], None]

    def misfit(self, coordinator: Coordinator) -> str | None:
        """Return what of the host has changed so that the remedy cannot work; None if it fits."""
        for path in (*self.methods, *self.needs):
            value = coordinator
            for part in path.split("."):
                if not hasattr(value, part):
                    return f"there is no {path}"
                value = getattr(value, part)
        for name, expected in self.methods.items():
            parameters = tuple(inspect.signature(getattr(coordinator, name)).parameters)
            if parameters != expected:
                return f"{name} takes {', '.join(parameters) or 'nothing'}"
        return None


def install(consumer: Any, remedies: Sequence[Remedy], once: Once) -> None:
    """Put remedies on a consumer; those it has already are left as they are."""
    coordinator = getattr(consumer, "_coordinator", None)
    if coordinator is None:
        once.warn("coordinator", "%s has no coordinator to mend; all remedies are off", host_version())
        return
    installed: set[str] = vars(coordinator).setdefault("_rackassign", set())
    for remedy in remedies:
        if remedy.name in installed:
            continue
        misfit = remedy.misfit(coordinator)
        if misfit is None:
            remedy.install(coordinator, once)
            installed.add(remedy.name)
        else:
            once.warn(remedy.name, "%s differs (%s): remedy %s is off", host_version(), misfit, remedy.name)


def host_version() -> str:
    """Name the host and its version, for messages."""
    return f"kafka-python {version('kafka-python')}"


def _guard_members(coordinator: Coordinator, once: Once) -> None:
    """Clean what members sent before the host decodes it, and spare it most of that where the assignor is ours."""
    original = coordinator._perform_assignment

    def perform_assignment(leader_id: str, protocol_name: str, members: Sequence[Any]) -> Any:
        try:
            read_join(members, coordinator._lookup_assignor(protocol_name), once)
        except Exception:  # noqa: BLE001 - then the host sees what it would have seen without us
            once.warn("guard", "%s: remedy guard_members failed", host_version(), exc_info=True)
        return original(leader_id, protocol_name, members)

    coordinator._perform_assignment = perform_assignment


def read_join(members: Sequence[Any], assignor: Any, once: Once) -> None:
    """Read what members sent: make it readable for the host, and hand it to an assignor that takes it."""
    read = make_readable(members, once)
    take = getattr(assignor, "take_subscriptions", None)
    if take is not None:
        take(read)
        _leave_the_topics(members, read)


def make_readable(members: Iterable[Any], once: Once) -> dict[str, Subscription]:
    """Replace in place the metadata of those members that kafka-python could not decode.

    Returns:
        What each member sent, by member id.
    """
    reader = SubscriptionReader()
    # Members that own nothing often send the same bytes, and nearly all list the same topics.
    sound: dict[bytes, Subscription] = {}
    legal: dict[tuple[str, ...], tuple[str, ...]] = {}
    read: dict[str, Subscription] = {}
    for member in members:
        known = sound.get(member.metadata)
        if known is None:
            known, member.metadata = _readable(member, reader, legal, once)
            sound[member.metadata] = known
        read[member.member_id] = known
    return read


def _readable(
    member: Any, reader: SubscriptionReader, legal: dict[tuple[str, ...], tuple[str, ...]], once: Once
) -> tuple[Subscription, bytes]:
    """Return a subscription and bytes of it that kafka-python can decode: the member's own if it can."""
    name = member.member_id
    try:
        subscription = reader.read(member.metadata)
    except WireError as error:
        once.warn(f"member {name}", "member %s gets nothing: its subscription is broken %s", name, error)
        return _NOTHING, encode_subscription(_NOTHING, version=0)
    topics = subscription.topics
    if topics not in legal:
        legal[topics] = tuple(topic for topic in topics if _LEGAL_TOPIC.fullmatch(topic))
    if len(legal[topics]) == len(topics):
        return subscription, member.metadata
    once.warn(f"member {name}", "member %s subscribes to topics that cannot exist; they are left out", name)
    cleaned = replace(subscription, topics=legal[topics])
    return cleaned, encode_subscription(cleaned)


_NOTHING = Subscription(())


def _leave_the_topics(members: Sequence[Any], read: Mapping[str, Subscription]) -> None:
    """Leave the host nothing to decode but the topics of all members, once: it uses nothing else."""
    topics = sorted({topic for subscription in set(map(_topics_of, read.values())) for topic in subscription})
    everything, nothing = (encode_subscription(Subscription(of), version=0) for of in (tuple(topics), ()))
    for i, member in enumerate(members):
        member.metadata = nothing if i else everything


def _topics_of(subscription: Subscription) -> tuple[str, ...]:
    return subscription.topics


def _keep_finished_join(coordinator: Coordinator, _once: Once) -> None:
    """Read the result of a join that finished between two polls."""
    need_rejoin: Callable[[], bool] = coordinator.need_rejoin
    join_group: Callable[..., Coroutine[Any, Any, bool]] = coordinator.join_group_async

    def need_rejoin_or_read() -> bool:
        return coordinator._join_task is not None or need_rejoin()

    async def keep_then_join(timeout_ms: float | None = None) -> bool:
        # The host makes sure of the coordinator just before this call, so its own code runs on from here to its
        # look at the join task without a switch: no join can finish unseen in between.
        task, coordinator._join_task = _finished(coordinator._join_task)
        if task is not None:
            await _take(coordinator, task)
        try:
            return await join_group(timeout_ms=timeout_ms)
        except Exception:
            # The host leaves a task in place that failed with an error not its own. It has been raised now.
            task, coordinator._join_task = _finished(coordinator._join_task)
            if task is not None:
                coordinator.request_rejoin()
            raise

    coordinator.need_rejoin = need_rejoin_or_read
    coordinator.join_group_async = keep_then_join


def _finished(task: Any) -> tuple[Any, Any]:
    """Return (the task, None) if it is finished, (None, the task) if not."""
    return (task, None) if task is not None and task.is_done else (None, task)


async def _take(coordinator: Coordinator, task: Any) -> None:
    """Do with a finished join what the host does with one that finishes inside `poll()`."""
    if task.failed():
        coordinator.request_rejoin()
        if not isinstance(task.exception, _REJOIN_ERRORS):
            raise task.exception
    elif coordinator.rebalance_in_progress():
        with coordinator._lock:
            coordinator.rejoining = False
            coordinator.rejoin_needed = False
            coordinator.state = MemberState.STABLE
            coordinator._enable_heartbeat()
        joined = coordinator._generation
        await coordinator._on_join_complete_async(joined.generation_id, joined.member_id, joined.protocol, task.value)
    else:
        # Since it finished the member has left the group or was put out of it.
        coordinator.request_rejoin()


def _heartbeat_unread_join(coordinator: Coordinator, once: Once) -> None:
    """Send heartbeats from the end of a join until a `poll()` reads it."""
    original = coordinator._do_join_and_sync_async

    async def join_and_beat() -> bytes:
        assignment: bytes = await original()
        task = coordinator._join_task
        coordinator._manager.call_soon(lambda: _beat(coordinator, task, once))
        return assignment

    coordinator._do_join_and_sync_async = join_and_beat


async def _beat(coordinator: Coordinator, task: Any, once: Once) -> None:
    """Send heartbeats while the join of this task is unread and the user's loop is not overdue."""
    joined = coordinator._generation
    interval = coordinator.config["heartbeat_interval_ms"] / 1000
    try:
        while True:
            await coordinator._manager._net.sleep(interval)
            if (
                coordinator._heartbeat_closed
                # Until it is answered the next join has the state and the generation of this one. A heartbeat behind
                # it would be answered after it, as of an old generation, and the host would forget the new one.
                or coordinator._join_task is not task
                or coordinator._generation is not joined
                or not coordinator.rebalance_in_progress()
                or coordinator.heartbeat.poll_timeout_expired()
            ):
                return
            try:
                await coordinator._send_heartbeat_request()
            except KafkaError as error:
                # What it means for the membership the host has noted already; the next poll acts on it.
                log.debug("heartbeat for an unread join: %s", error)
    except Exception:  # noqa: BLE001 - a failing extra must not take the host's IO thread with it
        once.warn("beat", "%s: remedy heartbeat_unread_join failed", host_version(), exc_info=True)


REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        name="guard_members",
        defect=(
            "The leader decodes every member's metadata unguarded: one member that sends broken bytes or an"
            " illegal topic name makes the leader's poll() raise at every attempt, and nobody gets an assignment."
        ),
        proof="integration/test_remedies.py::test_group_goes_on_beside_a_broken_member",
        methods={"_perform_assignment": ("leader_id", "protocol_name", "members")},
        needs=(),
        install=_guard_members,
    ),
    Remedy(
        name="keep_finished_join",
        defect=(
            "A join that finishes between two polls is thrown away and made anew; one that a metadata change"
            " started is never read at all, and the consumer is silent for ever. Short polls and long work in"
            " between meet it on every rebalance, others by chance at their start."
        ),
        proof="integration/test_remedies.py::test_join_finished_between_polls_is_kept",
        methods={"need_rejoin": (), "join_group_async": ("timeout_ms",)},
        needs=(
            *("_join_task", "_lock", "_generation", "state", "rejoining", "rejoin_needed"),
            *("_enable_heartbeat", "_on_join_complete_async", "rebalance_in_progress", "request_rejoin"),
        ),
        install=_keep_finished_join,
    ),
    Remedy(
        name="heartbeat_unread_join",
        defect=(
            "From the end of a join to the poll() that reads it no heartbeat is sent, so a member that works"
            " longer than its session timeout at that moment is put out of the group it has just joined."
        ),
        proof="integration/test_remedies.py::test_unread_join_is_kept_alive",
        methods={"_do_join_and_sync_async": ()},
        needs=(
            *("_generation", "_heartbeat_closed", "_join_task", "_manager.call_soon", "_manager._net.sleep"),
            *("_send_heartbeat_request", "config", "heartbeat.poll_timeout_expired", "rebalance_in_progress"),
        ),
        install=_heartbeat_unread_join,
    ),
)
