"""A live group and its brokers, described from outside with an admin client."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.cluster import list_brokers
from rackassign.admin.groups import DescribedGroup, DescribedMember, GroupAdmin
from rackassign.admin.replica_selector import replica_selector
from rackassign.errors import ConfigError, WireError
from rackassign.model import Partitions
from rackassign.util.text import short_repr
from rackassign.wire import Subscription, decode_assignment, decode_subscription

STABLE, EMPTY, PREPARING = "Stable", "Empty", "PreparingRebalance"

_PAUSE_S = 0.02
"""Members that join again at once leave a group at rest for no more than the time of a request."""

RESTLESS = 3
"""Rebalances within one watch that no ordinary change takes: a cooperative one takes two."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a live group.

    Args:
        id: Member id.
        client_id: As the client calls itself.
        host: Where it connects from.
        instance_id: `group.instance.id` of a static member.
        classic: Whether it joined with JoinGroup, so that a leader can assign to it; None if the broker cannot say.
        subscription: What it told the group; None if that is not shown now, or cannot be read.
        problem: Why it cannot be read; empty if it can.
        assigned: What it was given last.
        pattern: The regular expression it subscribes by, where the broker reads that; empty for none.
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

    @property
    def rack(self) -> str | None:
        """The rack it says it is in."""
        return None if self.subscription is None else self.subscription.rack


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it.

    Args:
        name: Its name.
        kind: `classic` if one of its members assigns, `consumer` if the broker does (KIP-848).
        state: As the broker calls it.
        strategy: What all members agree on, or the broker's assignor; empty unless that is shown.
        members: All of them; what they said is shown only while the group is stable.
    """

    name: str
    kind: Literal["classic", "consumer"]
    state: str
    strategy: str
    members: tuple[MemberDescription, ...]

    @property
    def is_visible(self) -> bool:
        """Whether all there is to see of it is shown now."""
        return self.kind == "consumer" or self.state in {STABLE, EMPTY}

    @property
    def is_stable(self) -> bool:
        """Whether all of it is shown and nobody is about to get or give up anything."""
        return self.state in {STABLE, EMPTY}

    @property
    def generation(self) -> int:
        """The last generation its members speak of: one less than that of the group; -1 if they speak of none."""
        return max((m.subscription.generation for m in self.members if m.subscription is not None), default=-1)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker and what it says of itself.

    Args:
        id: Node id.
        rack: `broker.rack`.
        fenced: Whether it is down, or kept from serving.
        selector: `replica.selector.class`; None if it has none.
        problem: Why it could not be asked for that; empty if it could, and for fenced brokers.
    """

    id: int
    rack: str | None
    fenced: bool = False
    selector: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """What was seen of a group in some seconds.

    Args:
        group: The last look, stable if there was any such.
        states: All states seen, in order, each once.
        rebalances: How many rebalances have begun, as far as that was seen.
        seconds: How long it was watched.
    """

    group: GroupDescription
    states: tuple[str, ...]
    rebalances: int
    seconds: float

    @property
    def settled(self) -> bool:
        """Whether it was ever at rest."""
        return self.group.is_visible

    @property
    def preparing(self) -> bool:
        """Whether it was waiting for members to join, all the time."""
        return self.states == (PREPARING,)


def describe_group(calls: GroupAdmin, name: str) -> GroupDescription:
    """Describe a group once, whatever state it is in.

    Args:
        calls: To its coordinator.
        name: Of the group.

    Raises:
        ConfigError: There is no group of that name, or it is not one of consumers.
        KafkaError: As the admin client does.
    """
    found = calls.describe_classic_group(name)
    if found is not None:
        if found.protocol_type not in {"consumer", ""}:
            raise ConfigError(f"group: {short_repr(name)} is not of consumers but of {short_repr(found.protocol_type)}")
        return _live(name, "classic", found)
    found = calls.describe_consumer_group(name)
    if found is None:
        raise ConfigError(f"group: there is no consumer group {short_repr(name)} on this cluster")
    return _live(name, "consumer", found)


def watch(
    calls: GroupAdmin,
    name: str,
    seconds: float,
    *,
    suspicious: Callable[[GroupDescription], bool],
    waiting: Callable[[], None] = lambda: None,
) -> GroupObservation:
    """Look at a group until it can be judged: at once if it is at rest and nothing is suspicious about it.

    Args:
        calls: To its coordinator.
        name: Of the group.
        seconds: How long at most.
        suspicious: Whether a group that is at rest now may not stay so.
        waiting: Called once if it takes longer than a moment.

    Raises:
        ConfigError: As `describe_group` does.
        KafkaError: As the admin client does.
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
        # A look may come too late for a state, or for what is shown in it.
        begun = max(begun + (look.state == PREPARING != before.state), max(known, default=0) - min(known, default=0))
        # A group that rebalances without end is shown for moments only.
        if look.is_visible or not last.is_visible:
            last = look
    return GroupObservation(last, tuple(states), begun, time.monotonic() - begin)


def describe_brokers(admin: KafkaAdminClient) -> tuple[BrokerDescription, ...]:
    """Return all brokers in order, each asked for its selector alone, since one that has just died fails a request.

    Args:
        admin: To ask them with.

    Raises:
        KafkaError: As the admin client does.
    """
    return tuple(_broker(admin, broker.id, broker.rack, fenced=broker.fenced) for broker in list_brokers(admin))


def _broker(admin: KafkaAdminClient, number: int, rack: str | None, *, fenced: bool) -> BrokerDescription:
    if fenced:
        return BrokerDescription(number, rack, fenced=True)
    try:
        return BrokerDescription(number, rack, selector=replica_selector(admin, number))
    except KafkaError as error:
        return BrokerDescription(number, rack, problem=str(error))


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
    assigned: Partitions = {}
    # None if it is just being given something; and a leader may send anything.
    with suppress(WireError):
        assigned = decode_assignment(member.assignment).partitions
    return MemberDescription(
        member.id,
        member.client_id,
        member.host.removeprefix("/"),
        member.instance_id,
        subscription=subscription,
        problem=problem,
        assigned=assigned,
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
