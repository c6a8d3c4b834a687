"""A group and the copies it has in, who runs and who keeps what out."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackassign.model import Group, Member, Partitions, Plan, TopicPartition
from rackassign.solver import NO_MEMBER
from rackassign.solver.standby.collisions import NO_VALUE, Dimension, ItemDemand, Topology
from rackassign.solver.standby.exchange import place_standbys
from rackassign.strategies.indexed_group import IndexedGroup
from rackassign.strategies.options import Options
from rackassign.strategies.standby import client_tag_aware
from rackassign.strategies.standby.options import StandbyOptions
from rackassign.strategies.standby.warmup import (
    CaughtUpCopies,
    Copies,
    PendingMoves,
    assign_warmups,
    deferred_moves,
    retained_copies,
)
from rackassign.strategies.sticky import plan_cooperative

_HADOOP_MOST, _HADOOP_FEWER = 2, 1


@dataclass(frozen=True, slots=True)
class StandbyPlan:
    """What was decided.

    Args:
        plan: Who runs what, for the cooperative protocol.
        standbys: Partitions of which each member is to keep a copy: warm-ups, what it waits for, and what it keeps on
            until others are warm are among them. An entry for every member.
        warmups: Those of them that are waited for: once the member is warm, they move to it, or somebody else need not
            keep its copy any more.
        missing: Copies that have no place, by partition.
        collisions: Copies at a value of a tag beyond what the rule allows.
        proven: Whether copies are proven best: collisions, even loads, kept, in that order.
    """

    plan: Plan
    standbys: Mapping[str, Partitions]
    warmups: Mapping[str, Partitions]
    missing: Mapping[TopicPartition, int]
    collisions: int
    proven: bool


def assign_standbys(
    group: Group, copies: Copies, options: StandbyOptions | None = None, active: Options | None = None
) -> StandbyPlan:
    """Decide who runs what and who keeps a copy of it.

    Args:
        group: Members, with their tags, and topology; every partition has state.
        copies: What members have.
        options: How copies are placed.
        active: How partitions are assigned.
    """
    options = options or StandbyOptions()
    limit = math.inf if active is None or active.time_limit_s is None else active.time_limit_s
    until = time.monotonic() + limit
    stand_ins = _failover_candidates(group, copies, options)
    stood_in = _standing_in(group, stand_ins)
    wanted = plan_cooperative(stood_in, active)
    owners, last = _owners(stood_in), dict(_each(wanted.target))
    warm = CaughtUpCopies(group, copies, options.acceptable_recovery_lag)
    cold = {p: who for p, who in last.items() if owners.get(p, who) != who and not warm.has(who, p)}
    stay = {p: owners[p] for p in deferred_moves(last, owners, cold)}
    now = {**last, **stay}
    # Who stands in owns nothing yet: nobody has to give up anything before another can have it.
    free = {place: now[place] for place in stand_ins if place in now}
    plan = replace(
        wanted,
        assignment=_with(wanted.assignment, {**stay, **free}),
        target=_with(wanted.target, stay),
        withheld=_without(wanted.withheld, {**stay, **free}),
        moved=sum(owners.get(p, who) != who for p, who in now.items() if p not in stand_ins),
        optimal=wanted.optimal and not stay,
    )
    placed = _placed(group, wanted.target, copies, options, until)
    holders = {place: set(placed.holders.get(place, ())) for place in now}
    warming = assign_warmups(holders, PendingMoves(now, last, cold), warm, options.max_warmup_replicas)
    awaited = retained_copies(holders, now, warm, options.num_standby_replicas)
    for place, _ in _each({"": plan.withheld}):
        # Who waits for what another has to give up goes on with its copy, or it would be cold by then.
        holders[place].add(now[place])
    for place, who in warming.items():
        awaited.setdefault(place, set()).add(who)
    return StandbyPlan(
        plan,
        _by_member(group, holders),
        _by_member(group, awaited),
        placed.missing,
        placed.collisions,
        placed.proven,
    )


def _failover_candidates(group: Group, copies: Copies, options: StandbyOptions) -> dict[TopicPartition, str]:
    """Return for partitions that nobody claims who has the warmest copy: that is as good as having it."""
    claimed = {
        TopicPartition(topic, partition)
        for member in group.members
        for topic, ids in member.owned.items()
        for partition in ids
    }
    found: dict[TopicPartition, str] = {}
    load = Counter({member.id: sum(map(len, member.owned.values())) for member in group.members})
    holders: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for member in group.members:
        for place, lag in copies.get(member.id, {}).items():
            there = place.topic in member.topics and 0 <= place.partition < len(
                group.topology.topics.get(place.topic, ())
            )
            if there and place not in claimed:
                holders[place].append((lag, member.id))
    for place in sorted(holders):
        # All that are warm are as good: then whoever has least to do.
        _, _, chosen = min(
            (max(0, lag - options.acceptable_recovery_lag), load[member], member) for lag, member in holders[place]
        )
        found[place] = chosen
        load[chosen] += 1
    return found


def _standing_in(group: Group, stand_ins: Mapping[TopicPartition, str]) -> Group:
    """Return the group with those who stand in claiming what they would take over."""
    claims: dict[str, list[TopicPartition]] = defaultdict(list)
    for place, member in stand_ins.items():
        claims[member].append(place)
    return replace(group, members=tuple(_claiming(member, claims.get(member.id, ())) for member in group.members))


def _claiming(member: Member, more: Iterable[TopicPartition]) -> Member:
    owned = {topic: set(ids) for topic, ids in member.owned.items()}
    for topic, partition in more:
        owned.setdefault(topic, set()).add(partition)
    return replace(member, owned={topic: tuple(sorted(ids)) for topic, ids in sorted(owned.items())})


def _owners(group: Group) -> dict[TopicPartition, str]:
    """Return the valid owner of each partition that has one."""
    door = IndexedGroup.of(group, "any-replica")
    sizes = zip(door.topics, door.sizes.tolist(), strict=True)
    places = (TopicPartition(topic, partition) for topic, size in sizes for partition in range(size))
    owners = zip(places, door.claims.owner.tolist(), strict=True)
    return {place: door.members[owner].id for place, owner in owners if owner != NO_MEMBER}


def _each(target: Mapping[str, Partitions]) -> list[tuple[TopicPartition, str]]:
    return [
        (TopicPartition(topic, partition), member)
        for member, theirs in target.items()
        for topic, ids in theirs.items()
        for partition in ids
    ]


def _with(target: Mapping[str, Partitions], held: Mapping[TopicPartition, str]) -> dict[str, Partitions]:
    """Return an assignment in which some partitions are another's."""
    made: dict[str, list[TopicPartition]] = {member: [] for member in target}
    for place, member in _each(target):
        if place not in held:
            made[member].append(place)
    for place, member in held.items():
        made[member].append(place)
    return {member: _partitions(places) for member, places in made.items()}


def _without(withheld: Partitions, held: Mapping[TopicPartition, str]) -> Partitions:
    return _partitions(
        place for topic, ids in withheld.items() for p in ids if (place := TopicPartition(topic, p)) not in held
    )


def _partitions(places: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return {topic: tuple(ids) for topic, ids in found.items()}


def _by_member(group: Group, who: Mapping[TopicPartition, Iterable[str]]) -> dict[str, Partitions]:
    found: dict[str, list[TopicPartition]] = {member.id: [] for member in group.members}
    for place, theirs in who.items():
        for member in theirs:
            found[member].append(place)
    return {member: _partitions(places) for member, places in found.items()}


@dataclass(slots=True)
class _Placed:
    """Copies while crowd after crowd is placed."""

    holders: dict[TopicPartition, list[str]] = field(default_factory=dict)
    missing: dict[TopicPartition, int] = field(default_factory=dict)
    collisions: int = 0
    proven: bool = True


def _placed(
    group: Group, target: Mapping[str, Partitions], copies: Copies, options: StandbyOptions, until: float
) -> _Placed:
    """Place the copies of all partitions; those of topics with other subscribers one crowd after the other."""
    found = _Placed()
    owner = dict(_each(target))
    crowds: dict[tuple[str, ...], list[TopicPartition]] = defaultdict(list)
    for place in sorted(owner):
        crowds[tuple(sorted(member.id for member in group.members if place.topic in member.topics))].append(place)
    load = Counter(owner.values())
    tags = {member.id: member.tags for member in group.members}
    for ids, places in sorted(crowds.items()):
        number = {member: i for i, member in enumerate(ids)}
        crowd = _SubscriberSet(
            [tags[member] for member in ids],
            [load[member] for member in ids],
            [number[owner[place]] for place in places],
            [_had(place, number, copies) for place in places],
            until,
        )
        for place, holders, missing in zip(places, *crowd.solved(options, found), strict=True):
            found.holders[place] = [ids[holder] for holder in holders]
            load.update(found.holders[place])
            if missing:
                found.missing[place] = missing
    return found


def _had(place: TopicPartition, number: Mapping[str, int], copies: Copies) -> tuple[int, ...]:
    """Return who has a copy, the one that lacks least first."""
    having = [(lag, number[member]) for member, theirs in copies.items() if member in number
              and (lag := theirs.get(place)) is not None]  # fmt: skip
    return tuple(member for _, member in sorted(having))


@dataclass(frozen=True, slots=True)
class _SubscriberSet:
    """Members that subscribe to the same topics, and partitions of those, as numbers.

    Args:
        tags: Of each member.
        load: Partitions and copies that each has.
        owner: Of each partition.
        held: Who has had a copy of each.
        until: Deadline, on the clock of `time.monotonic`.
    """

    tags: Sequence[Mapping[str, str]]
    load: Sequence[int]
    owner: Sequence[int]
    held: Sequence[tuple[int, ...]]
    until: float

    def solved(self, options: StandbyOptions, found: _Placed) -> tuple[list[tuple[int, ...]], list[int]]:
        """Return who gets a copy of each partition, and how many copies have no place."""
        wanted = options.num_standby_replicas
        if options.mode == "kafka":
            theirs = self._as_kafka(options)
            found.proven = False
            return [tuple(own) for own in theirs], [wanted - len(own) for own in theirs]
        items = [
            ItemDemand(owner, wanted, tuple(member for member in held if member != owner))
            for owner, held in zip(self.owner, self.held, strict=True)
        ]
        where = Topology((1,) * len(self.tags), tuple(self.load), tuple(self._dimensions(options)))
        starts = [] if where.strict or options.rule != "even" else [[tuple(own) for own in self._as_kafka(options)]]
        placed = place_standbys(items, where, starts, self.until)
        found.collisions += sum(placed.collisions)
        found.proven &= placed.proven
        return list(placed.nodes), list(placed.missing)

    def _as_kafka(self, options: StandbyOptions) -> client_tag_aware.Holders:
        active: list[set[int]] = [set() for _ in self.tags]
        for number, owner in enumerate(self.owner):
            active[owner].add(number)
        clients = client_tag_aware.Clients((1,) * len(self.tags), tuple(self.tags), tuple(map(frozenset, active)))
        placed = client_tag_aware.place(
            clients, range(len(self.owner)), options.num_standby_replicas, options.rack_aware_assignment_tags
        )
        return client_tag_aware.balance(clients, placed)

    def _dimensions(self, options: StandbyOptions) -> Iterable[Dimension]:
        most = {"even": 0, "strict": 1, "hadoop": _HADOOP_MOST}[options.rule]
        fewer = _HADOOP_FEWER if options.rule == "hadoop" else 0
        for key in options.rack_aware_assignment_tags:
            seen = {tags[key] for tags in self.tags if key in tags}
            number = {value: i for i, value in enumerate(sorted(seen.union(options.forced_tag_values.get(key, ()))))}
            value = tuple(number[tags[key]] if key in tags else NO_VALUE for tags in self.tags)
            strict = options.rule == "strict" or key in options.forced_tag_values
            yield Dimension(value, len(number), most, fewer, strict)
