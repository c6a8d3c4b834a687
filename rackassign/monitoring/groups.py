"""A live group and its brokers, described from outside with an admin client."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.describe import list_brokers, replica_selector
from rackassign.admin.groups import DescribedGroup, DescribedMember, GroupAdmin
from rackassign.admin.raw_requests import DEAD
from rackassign.errors import ConfigError, WireError
from rackassign.model import Partitions
from rackassign.util.text import describe_error, short_repr
from rackassign.wire import Assignment, Subscription, decode_assignment, decode_subscription

STABLE, EMPTY, PREPARING = "Stable", "Empty", "PreparingRebalance"

_PAUSE_S = 0.02
"""Members that rejoin immediately leave a group stable for no longer than a request takes."""

RESTLESS = 3
"""Rebalances during one observation that no ordinary change needs: a cooperative one needs two."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a live group.

    Args:
        id: Member ID.
        client_id: Client ID.
        host: Address that it connects from.
        instance_id: `group.instance.id` of a static member.
        classic: Whether it joined with JoinGroup, so that a leader can assign to it; None if the broker does not report
            it.
        subscription: Its subscription; None if that is not shown now, or cannot be decoded.
        problem: Why it cannot be decoded; empty if it can.
        assigned: Its last assignment.
        pattern: The regular expression that it subscribes with, if the broker evaluates it; empty for none.
        assignment_data: User data of its last assignment; empty for none.
    """

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    classic: bool | None = True
    subscription: Subscription | None = None
    problem: str = ""
    assigned: Partitions = field(default_factory=dict)
    pattern: str = ""
    assignment_data: bytes = b""

    @property
    def rack(self) -> str | None:
        """The rack that it reports."""
        return None if self.subscription is None else self.subscription.rack


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it.

    Args:
        name: Name of the group.
        kind: `classic` if one of its members assigns, `consumer` if the broker does (KIP-848).
        state: State in the broker's terms.
        strategy: The strategy that all members agreed on, or the broker's assignor; empty unless that is shown.
        members: All members; their subscriptions are shown only while the group is stable.
    """

    name: str
    kind: Literal["classic", "consumer"]
    state: str
    strategy: str
    members: tuple[MemberDescription, ...]

    @property
    def is_visible(self) -> bool:
        """Whether all of its details are shown now."""
        return self.kind == "consumer" or self.state in {STABLE, EMPTY}

    @property
    def is_stable(self) -> bool:
        """Whether all of its details are shown and no member is about to get or revoke anything."""
        return self.state in {STABLE, EMPTY}

    @property
    def generation(self) -> int:
        """The last generation in its members' subscriptions: one less than the group's; -1 if they contain none."""
        return max((m.subscription.generation for m in self.members if m.subscription is not None), default=-1)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker and its own configuration.

    Args:
        id: Node ID.
        rack: `broker.rack`.
        fenced: Whether it is offline or fenced.
        selector: `replica.selector.class`; None if it has none.
        problem: Why its configuration could not be read; empty if it could, and for fenced brokers.
        unreachable: Whether the reason is that it does not respond.
    """

    id: int
    rack: str | None
    fenced: bool = False
    selector: str | None = None
    problem: str = ""
    unreachable: bool = False


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """Observation of a group during some seconds.

    Args:
        group: The last description, a stable one if there was any.
        states: All observed states, in order, each once.
        rebalances: Observed number of rebalances that began.
        seconds: Duration of the observation.
    """

    group: GroupDescription
    states: tuple[str, ...]
    rebalances: int
    seconds: float

    @property
    def settled(self) -> bool:
        """Whether it was ever stable."""
        return self.group.is_visible

    @property
    def preparing(self) -> bool:
        """Whether it was waiting for members to join all the time."""
        return self.states == (PREPARING,)


def describe_group(calls: GroupAdmin, name: str) -> GroupDescription:
    """Describe a group once, in whatever state it is.

    Args:
        calls: Requests to its coordinator.
        name: Name of the group.

    Raises:
        ConfigError: The group does not exist, or is not a consumer group.
        KafkaError: Raised by the admin client.
    """
    found = find_group(calls, name)
    if found is None:
        raise ConfigError(f"group: there is no consumer group {short_repr(name)} on this cluster")
    return found


def find_group(calls: GroupAdmin, name: str) -> GroupDescription | None:
    """Describe a group as `describe_group` does; None if there is none of that name.

    Args:
        calls: Requests to its coordinator.
        name: Name of the group.

    Raises:
        ConfigError: It is not a consumer group.
        KafkaError: Raised by the admin client.
    """
    found = calls.describe_classic_group(name)
    if found is not None:
        if found.protocol_type not in {"consumer", ""}:
            raise ConfigError(f"group: {short_repr(name)} is not of consumers but of {short_repr(found.protocol_type)}")
        return _live(name, "classic", found)
    found = calls.describe_consumer_group(name)
    if found is not None:
        return _live(name, "consumer", found)
    kind = calls.listed_type(name)
    if kind not in {"", "classic", "consumer"}:
        raise ConfigError(f"group: {short_repr(name)} is not of consumers but of type {short_repr(kind)}")
    return None


def watch(
    calls: GroupAdmin,
    name: str,
    seconds: float,
    *,
    suspicious: Callable[[GroupDescription], bool],
    waiting: Callable[[], None] = lambda: None,
) -> GroupObservation:
    """Observe a group until it can be analyzed: only once if it is stable and not suspicious.

    Args:
        calls: Requests to its coordinator.
        name: Name of the group.
        seconds: Maximum duration.
        suspicious: Return whether a group that is stable now may not remain so.
        waiting: Called once if it takes longer than a moment.

    Raises:
        ConfigError: As for `describe_group`.
        KafkaError: Raised by the admin client.
    """
    begin = time.monotonic()
    last = look = describe_group(calls, name)
    states, generations, begun = {look.state: None}, {look.generation}, 0
    if seconds and not (last.is_visible and not suspicious(last)):
        waiting()
    while time.monotonic() < begin + seconds:
        if last.is_visible and (begun >= RESTLESS or not suspicious(last)):
            break
        time.sleep(_PAUSE_S)
        before, look = look, describe_group(calls, name)
        states[look.state] = None
        generations.add(look.generation)
        known = generations - {-1}
        # An observation may miss a state, or the details shown in it.
        begun = max(begun + (look.state == PREPARING != before.state), max(known, default=0) - min(known, default=0))
        # A group that rebalances endlessly is shown for moments only.
        if look.is_visible or not last.is_visible:
            last = look
    return GroupObservation(last, tuple(states), begun, time.monotonic() - begin)


def describe_brokers(admin: KafkaAdminClient) -> tuple[BrokerDescription, ...]:
    """Return all brokers in order, with one request for each one's selector, as a broker that just died fails it.

    Args:
        admin: Admin client.

    Raises:
        KafkaError: Raised by the admin client.
    """
    return tuple(_broker(admin, broker.id, broker.rack, fenced=broker.fenced) for broker in list_brokers(admin))


def _broker(admin: KafkaAdminClient, number: int, rack: str | None, *, fenced: bool) -> BrokerDescription:
    if fenced:
        return BrokerDescription(number, rack, fenced=True)
    try:
        return BrokerDescription(number, rack, selector=replica_selector(admin, number))
    except KafkaError as error:
        return BrokerDescription(number, rack, problem=describe_error(error), unreachable=isinstance(error, DEAD))


def _live(name: str, kind: Literal["classic", "consumer"], found: DescribedGroup) -> GroupDescription:
    stable = found.state == STABLE
    members = [_classic(m, stable=stable) if kind == "classic" else _served(m) for m in found.members]
    return GroupDescription(name, kind, found.state, found.strategy, tuple(sorted(members, key=lambda m: m.id)))


def _classic(member: DescribedMember, *, stable: bool) -> MemberDescription:
    subscription, problem = None, ""
    if stable:
        try:
            subscription = decode_subscription(member.metadata)
        except WireError as error:
            problem = str(error)
    assigned = Assignment()
    # It is None while an assignment is in progress, and a leader may send anything.
    with suppress(WireError):
        assigned = decode_assignment(member.assignment)
    return MemberDescription(
        member.id,
        member.client_id,
        member.host.removeprefix("/"),
        member.instance_id,
        subscription=subscription,
        problem=problem,
        assigned=assigned.partitions,
        assignment_data=assigned.user_data or b"",
    )


def _served(member: DescribedMember) -> MemberDescription:
    return MemberDescription(
        member.id,
        member.client_id,
        member.host.removeprefix("/"),
        member.instance_id,
        member.classic,
        Subscription(member.topics, rack=member.rack),
        assigned=member.assigned,
        pattern=member.pattern,
    )
