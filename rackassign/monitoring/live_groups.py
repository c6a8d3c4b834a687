"""A live group and its brokers, described from outside with an admin client, and as a scenario.

The racks of members that report none come from a file with the racks of clients, hosts or networks.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign import broker_plugin
from rackassign.admin.describe import SELECTOR, broker_configs, list_brokers
from rackassign.admin.groups import DescribedGroup, DescribedMember, GroupAdmin
from rackassign.admin.raw_requests import DEAD
from rackassign.errors import ConfigError, InputError, WireError
from rackassign.model import Group, Member, Partitions, TopicPartition, Topology
from rackassign.text import describe_error, short_repr
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
        epoch: Epoch of its assignment, where the broker assigns; -1 where a member does.
        awaits: Whether it has yet to get or to give up partitions, where the broker assigns.
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
    epoch: int = -1
    awaits: bool = False

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
        strategy: The strategy that all members agreed on, or the broker's assignor; empty unless that is shown. That of
            rackassign may be shown with a name of Kafka's, see `with_own_assignor`.
        members: All members; their subscriptions are shown only while the group is stable.
        epoch: Epoch of the group, where the broker assigns: each change of members or topics raises it; otherwise -1.
        assignment_epoch: Epoch for which the broker last planned; otherwise -1.
        coordinator: ID of the broker that coordinates it, where the broker assigns; otherwise -1.
    """

    name: str
    kind: Literal["classic", "consumer"]
    state: str
    strategy: str
    members: tuple[MemberDescription, ...]
    epoch: int = -1
    assignment_epoch: int = -1
    coordinator: int = -1

    @property
    def is_visible(self) -> bool:
        """Whether all of its details are shown now."""
        return self.kind == "consumer" or self.state in {STABLE, EMPTY}

    @property
    def is_stable(self) -> bool:
        """Whether all of its details are shown and no member is about to get or revoke anything."""
        return self.state in {STABLE, EMPTY}

    @property
    def behind(self) -> tuple[MemberDescription, ...]:
        """The members that do not have yet what the broker planned last; none in a classic group."""
        return tuple(m for m in self.members if self.kind == "consumer" and (m.epoch < self.epoch or m.awaits))

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
        assignors: `group.consumer.assignors`: names or classes of assignors, in order; empty if it is not known.
        problem: Why its configuration could not be read; empty if it could, and for fenced brokers.
        unreachable: Whether the reason is that it does not respond.
    """

    id: int
    rack: str | None
    fenced: bool = False
    selector: str | None = None
    assignors: tuple[str, ...] = ()
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
        progress: Whether epochs or assignments of a group to which the broker assigns have changed.
    """

    group: GroupDescription
    states: tuple[str, ...]
    rebalances: int
    seconds: float
    progress: bool = False

    @property
    def settled(self) -> bool:
        """Whether it was ever stable."""
        return self.group.is_stable

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
    """Describe a group as `describe_group` does; None if there is none of that name."""
    group = calls.describe_classic_group(name)
    if group is not None:
        if group.protocol_type not in {"consumer", ""}:
            raise ConfigError(f"group: {short_repr(name)} is not of consumers but of {short_repr(group.protocol_type)}")
        return _live(name, "classic", group)
    group = calls.describe_consumer_group(name)
    if group is not None:
        return _live(name, "consumer", group)
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
    first = last = look = describe_group(calls, name)
    states, generations, begun, progress = {look.state: None}, {look.generation}, 0, False
    if seconds and not (last.is_stable and not suspicious(last)):
        waiting()
    while time.monotonic() < begin + seconds:
        if last.is_stable and (begun >= RESTLESS or not suspicious(last)):
            break
        time.sleep(_PAUSE_S)
        before, look = look, describe_group(calls, name)
        states[look.state] = None
        progress |= look.kind == "consumer" and _epochs(look) != _epochs(before)
        generations.add(look.generation)
        known = generations - {-1}
        # Each change of members raises the epoch. Groups of members have none: both are -1.
        begun = max(begun, look.epoch - first.epoch)
        # An observation may miss a state, or the details shown in it.
        begun = max(begun + (look.state == PREPARING != before.state), max(known, default=0) - min(known, default=0))
        # A group that rebalances endlessly is shown for moments only.
        if look.is_stable or not last.is_stable:
            last = look
    return GroupObservation(last, tuple(states), begun, time.monotonic() - begin, progress)


def _epochs(group: GroupDescription) -> object:
    return group.epoch, group.assignment_epoch, [(m.id, m.epoch, m.assigned) for m in group.members]


def coordinator_assignors(group: GroupDescription, brokers: Iterable[BrokerDescription]) -> tuple[str, ...]:
    """Return the assignors that a group's coordinator lists; none if they are not known."""
    return next((broker.assignors for broker in brokers if broker.id == group.coordinator), ())


def with_own_assignor(group: GroupDescription, brokers: Iterable[BrokerDescription]) -> GroupDescription:
    """Return a group with the name of rackassign's assignor, if its coordinator has that in place of Kafka's."""
    if group.kind == "consumer" and group.strategy:
        listed = coordinator_assignors(group, brokers)
        if any(broker_plugin.is_own(each) and broker_plugin.name_of(each) == group.strategy for each in listed):
            return replace(group, strategy=broker_plugin.NAME)
    return group


def describe_brokers(admin: KafkaAdminClient) -> tuple[BrokerDescription, ...]:
    """Return all brokers in order, with one request for each one's properties, as a broker that just died fails it.

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
        own, _ = broker_configs(admin, number, [SELECTOR, broker_plugin.PROPERTY])
        assignors = tuple(each.strip() for each in (own.get(broker_plugin.PROPERTY) or "").split(",") if each.strip())
        return BrokerDescription(number, rack, selector=own.get(SELECTOR) or None, assignors=assignors)
    except KafkaError as error:
        return BrokerDescription(number, rack, problem=describe_error(error), unreachable=isinstance(error, DEAD))


def _live(name: str, kind: Literal["classic", "consumer"], found: DescribedGroup) -> GroupDescription:
    stable = found.state == STABLE
    members = [_classic(m, stable=stable) if kind == "classic" else _served(m) for m in found.members]
    ordered = tuple(sorted(members, key=lambda m: m.id))
    epochs = found.epoch, found.assignment_epoch
    return GroupDescription(name, kind, found.state, found.strategy, ordered, *epochs, found.coordinator)


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
        epoch=member.epoch,
        awaits=_as_sets(member.assigned) != _as_sets(member.target),
    )


def _as_sets(partitions: Partitions) -> dict[str, frozenset[int]]:
    return {topic: frozenset(ids) for topic, ids in partitions.items() if ids}


_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_RACKS = ("client_ids", "hosts", "subnets")
_NEAR = "follower_fetchers"


@dataclass(frozen=True, slots=True)
class RackMap:
    """Racks of members that do not report one.

    Args:
        client_ids: Rack by client ID; `*` and `?` are wildcards as in file names, and the first match is used.
        hosts: Rack by the address that the broker sees, with the same wildcards.
        subnets: Rack by network ("10.0.1.0/24"); the smallest that contains the address is used.
        follower_fetchers: Client IDs, with wildcards, that use follower fetching although they do not report their
            rack to their group: kafka-python's own assignors and Java's before 3.5 never do. A member that reports no
            rack, and is not listed here, is assumed to have no `client.rack` and to read from leaders.

    Raises:
        InputError: A value is invalid.
    """

    client_ids: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    subnets: Mapping[str, str] = field(default_factory=dict)
    follower_fetchers: tuple[str, ...] = ()
    _networks: tuple[tuple[_Network, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in _RACKS:
            for pattern, rack in getattr(self, name).items():
                if not isinstance(rack, str) or not rack:
                    raise InputError(f"{name}.{pattern}", f"expected the name of a rack, got {short_repr(rack)}")
        for i, pattern in enumerate(self.follower_fetchers):
            if not isinstance(pattern, str):
                raise InputError(f"{_NEAR}[{i}]", f"expected a client id, got {short_repr(pattern)}")
        networks = [(_network(subnet), rack) for subnet, rack in self.subnets.items()]
        networks.sort(key=lambda pair: -pair[0].prefixlen)
        object.__setattr__(self, "_networks", tuple(networks))

    @classmethod
    def read(cls, value: object) -> RackMap:
        """Return the rack map of a JSON object with the arguments of this class, all optional.

        Raises:
            InputError: A value is invalid; the message names the field.
        """
        if not isinstance(value, dict):
            raise InputError("", f"expected an object, got {short_repr(value)}")
        for key, row in value.items():
            if key not in {*_RACKS, _NEAR}:
                raise InputError("", f"unknown key {short_repr(key)}; known are {', '.join((*_RACKS, _NEAR))}")
            if not isinstance(row, list if key == _NEAR else dict):
                raise InputError(key, f"expected an {'array' if key == _NEAR else 'object'}, got {short_repr(row)}")
        return cls(**{**value, _NEAR: tuple(value.get(_NEAR, ()))})

    def racks(self) -> set[str]:
        """Return all racks in the map."""
        return {rack for name in _RACKS for rack in getattr(self, name).values()}

    def rack_of(self, client_id: str, host: str) -> str | None:
        """Return the rack of a member by its client ID, otherwise its host or its network; None without a match."""
        return next(self._found(client_id, host), None)

    def reads_near(self, client_id: str) -> bool:
        """Return whether a member that reports no rack uses follower fetching nevertheless."""
        return any(fnmatchcase(client_id, pattern) for pattern in self.follower_fetchers)

    def _found(self, client_id: str, host: str) -> Iterator[str]:
        for patterns, name in ((self.client_ids, client_id), (self.hosts, host)):
            yield from (rack for pattern, rack in patterns.items() if fnmatchcase(name, pattern))
        address = _address(host)
        if address is not None:
            yield from (rack for network, rack in self._networks if address in network)


def _network(subnet: str) -> _Network:
    try:
        return ipaddress.ip_network(subnet)
    except ValueError as error:
        raise InputError(f"subnets.{subnet}", f"expected a network like 10.0.1.0/24: {error}") from None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # A broker that listens to IPv4 and IPv6 sees IPv4 clients as mapped addresses.
    return getattr(address, "ipv4_mapped", None) or address


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A group as it is.

    Args:
        live: The description by its coordinator.
        group: The group as a scenario, with the racks that members report, or those of the rack map.
        rack_map_members: IDs of members whose rack is only in the rack map: their group leader does not receive it.
        leaders_only: IDs of members in the rack map that always read from leaders.
    """

    live: GroupDescription
    group: Group
    rack_map_members: frozenset[str]
    leaders_only: frozenset[str] = frozenset()

    @property
    def owned(self) -> dict[str, Partitions]:
        """Return the partitions of each member, without those of topics that cannot be described."""
        known = self.group.topology.topics.keys()
        return {m.id: {topic: ids for topic, ids in m.owned.items() if topic in known} for m in self.group.members}

    @property
    def foreign_racks(self) -> dict[str, str]:
        """Return the rack of each member, by its ID, whose rack is that of no broker, while brokers have racks.

        Such a name is more often misspelled, or of another naming scheme, than that of a place without brokers. So it
        is unknown where these members are.
        """
        racks = set(self.group.topology.broker_racks().values())
        return {m.id: m.rack for m in self.group.members if racks and m.rack is not None and m.rack not in racks}

    @property
    def unknown(self) -> tuple[MemberDescription, ...]:
        """Return the members of unknown rack: without one, or with one that no broker has."""
        known = {m.id for m in self.group.members if m.rack is not None} - self.foreign_racks.keys()
        return tuple(member for member in self.live.members if member.id not in known)

    def without_foreign_racks(self) -> Snapshot:
        """Return the snapshot in which the members with a rack that no broker has are in none."""
        foreign = self.foreign_racks
        members = tuple(replace(m, rack=None) if m.id in foreign else m for m in self.group.members)
        mapped = self.rack_map_members - foreign.keys()
        return replace(self, group=replace(self.group, members=members), rack_map_members=mapped)

    def as_leader_sees(self) -> Group:
        """Return the group as its leader sees it: only with the racks that members report."""
        members = tuple(replace(m, rack=None) if m.id in self.rack_map_members else m for m in self.group.members)
        return replace(self.group, members=members)


def topics_of(live: GroupDescription) -> frozenset[str]:
    """Return all topics that members subscribe to or have partitions of."""
    return frozenset().union(*_topics(live))


def assigned_partitions(shot: Snapshot) -> tuple[TopicPartition, ...]:
    """Return all partitions that members have, each once."""
    owned = {(topic, i) for member in shot.group.members for topic, ids in member.owned.items() for i in ids}
    return tuple(TopicPartition(*tp) for tp in sorted(owned))


def snapshot(live: GroupDescription, topology: Topology, racks: RackMap) -> Snapshot:
    """Return a live group as a scenario."""
    # `topology`: topology of the cluster; topics that the group does not subscribe to are left out.
    members, mapped, topics = [], set(), _topics(live)
    for member, subscribed in zip(live.members, topics, strict=True):
        rack = member.rack
        if rack is None:
            rack = racks.rack_of(member.client_id, member.host)
            if rack is not None:
                mapped.add(member.id)
        members.append(
            Member(
                member.id,
                subscribed,
                rack=rack,
                instance_id=member.instance_id,
                owned=_clean(member.assigned),
            )
        )
    wanted = frozenset[str]().union(*topics)
    known = {topic: row for topic, row in topology.topics.items() if topic in wanted}
    group = Group(replace(topology, topics=known), tuple(members), name=live.name)
    leaders_only = frozenset(m.id for m in live.members if m.id in mapped and not racks.reads_near(m.client_id))
    return Snapshot(live, group, frozenset(mapped), leaders_only)


def _topics(live: GroupDescription) -> list[frozenset[str]]:
    """Return the topics that each member subscribes to or has partitions of."""
    # Only the broker can evaluate a pattern; it matches at least what all members with the same pattern have.
    matched: dict[str, set[str]] = {}
    for member in live.members:
        if member.pattern:
            matched.setdefault(member.pattern, set()).update(member.assigned)
    return [
        frozenset(() if member.subscription is None else member.subscription.topics).union(
            member.assigned, matched.get(member.pattern, ())
        )
        for member in live.members
    ]


def _clean(assigned: Mapping[str, tuple[int, ...]]) -> Partitions:
    """Return the partitions of a member; a leader may send a partition twice, or an invalid one."""
    return {topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in sorted(assigned.items())}
