"""Active members and standbys of partitions (KIP-708, KIP-441): from a group and the copies that it has.

* Active members are the sticky optimum, in which a member with a warm copy replaces an owner that is gone.
* A partition moves from a live owner only to a member with a warm copy; until then the new member *warms up*. No move
  may leave a member with more than its share because the moves away from it wait, so halves of exchanges wait too.
* A warm copy is dropped when another one is warm in its place.
* Copies are placed by `solver.standby`, which begins with what Kafka Streams would place too (`client_tag_aware`). The
  numbers for both are assigned here, members in order of their IDs, partitions in order of topic and ID.
* Members of the eager protocol revoke everything and restore before they read. So no move waits for a warm copy, and
  nothing warms up. A member with a copy still counts as the owner of a partition that no member claims.

The members to which the moves that wait are sent (`warming`) wait for them, and request the next rebalance.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from rackassign.model import Explanation, Group, Partitions, Plan, TopicPartition
from rackassign.solver.standby.collisions import NO_VALUE, Dimension, ItemDemand, Topology
from rackassign.solver.standby.exchange import place_standbys
from rackassign.strategies import Options, client_tag_aware
from rackassign.strategies.copartition import MergedGroup
from rackassign.strategies.explain import non_local_partitions
from rackassign.strategies.indexed_group import IndexedGroup, partitions_by_topic
from rackassign.strategies.standby import Copies, StandbyOptions, StandbyPlan
from rackassign.strategies.sticky import explain_as, plan_units


class CaughtUpCopies:
    """The copies of each partition, and which of them are warm."""

    def __init__(self, group: Group, copies: Copies, acceptable: int) -> None:
        # Copies of others do not count, nor of topics that a member does not read. `acceptable` is a lag in records.
        self.acceptable = acceptable
        # For each partition the lag of each member's copy.
        self.lags: dict[TopicPartition, dict[str, int]] = defaultdict(dict)
        for member in group.members:
            for tp, lag in copies.get(member.id, {}).items():
                if tp.topic in member.topics:
                    self.lags[tp][member.id] = lag

    def has(self, member: str, tp: TopicPartition) -> bool:
        """Return whether a member could become active for a partition at once."""
        lag = self.lag(member, tp)
        return lag is not None and lag <= self.acceptable

    def lag(self, member: str, tp: TopicPartition) -> int | None:
        """Return the lag of a member's copy in records; None if it has none."""
        return self.lags.get(tp, {}).get(member)

    def holders(self, tp: TopicPartition) -> list[str]:
        """Return the members with a copy of a partition, the one with the smallest lag first."""
        lags = self.lags.get(tp, {})
        return sorted(lags, key=lambda member: (lags[member], member))


class PendingMoves(NamedTuple):
    """Active members of partitions."""

    # After this rebalance, and when all moves are done.
    now: Mapping[TopicPartition, str]
    last: Mapping[TopicPartition, str]
    # New members that have no warm copy.
    cold: Mapping[TopicPartition, str]


def deferred_moves(
    last: Mapping[TopicPartition, str], owners: Mapping[TopicPartition, str], cold: Mapping[TopicPartition, str]
) -> set[TopicPartition]:
    """Return the partitions that stay with their owners for now.

    These are the partitions whose new members have no warm copy, and those whose new members would have more than their
    share because the moves away from them wait: half of an exchange improves nothing.
    """
    share = Counter(last.values())
    stay = set(cold)
    load = Counter(owners[p] if p in stay else who for p, who in last.items())
    coming: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in sorted(last):
        if owners.get(tp, last[tp]) != last[tp] and tp not in stay:
            coming[last[tp]].append(tp)
    full = sorted((who for who in coming if load[who] > share[who]), reverse=True)
    while full:
        who = full.pop()
        while coming[who] and load[who] > share[who]:
            tp = coming[who].pop()
            stay.add(tp)
            load[who] -= 1
            load[owners[tp]] += 1
            full.append(owners[tp])
    return stay


def assign_warmups(
    holders: Mapping[TopicPartition, set[str]], moves: PendingMoves, warm: CaughtUpCopies, most: int
) -> dict[TopicPartition, str]:
    """Assign a copy to members that are to take partitions over; return the members that are to warm up.

    If the owner is among those that keep a copy in the end, its successor has that copy until then. Other warm-ups are
    copies in addition to the configured number, so their number is limited; members that are nearly warm come first.
    """
    warming: dict[TopicPartition, str] = {}
    extra: list[tuple[bool, int, TopicPartition]] = []
    for tp, owner in moves.now.items():
        receiver = moves.last[tp]
        if owner == receiver:
            continue
        lag = warm.lag(receiver, tp)
        if owner in holders[tp] or tp not in moves.cold:
            holders[tp].discard(owner)
            holders[tp].add(receiver)
            if tp in moves.cold:
                warming[tp] = receiver
        else:
            extra.append((lag is None, lag or 0, tp))
    for *_, tp in sorted(extra)[:most]:
        warming[tp] = moves.last[tp]
        holders[tp].add(moves.last[tp])
    return warming


def retained_copies(
    holders: Mapping[TopicPartition, set[str]], now: Mapping[TopicPartition, str], warm: CaughtUpCopies, standbys: int
) -> dict[TopicPartition, set[str]]:
    """Keep warm copies where they are until others are warm; return the awaited copies."""
    awaited: dict[TopicPartition, set[str]] = {}
    for tp, theirs in holders.items():
        cold = {member for member in theirs if not warm.has(member, tp)}
        lacking = min(len(cold), standbys - len(theirs - cold))
        others = [member for member in warm.holders(tp) if warm.has(member, tp) and member not in {*theirs, now[tp]}]
        if lacking > 0 and others:
            theirs.update(others[:lacking])
            awaited[tp] = cold
    return awaited


_HADOOP_MOST, _HADOOP_FEWER = 2, 1

_MOST_FOR_ANOTHER_START = 10_000_000
"""Partitions times members up to which Kafka's placement is a start too. Some of its copies take a look at all."""


def assign_standbys(
    group: Group,
    copies: Copies,
    options: StandbyOptions | None = None,
    active: Options | None = None,
    *,
    eager: bool = False,
) -> StandbyPlan:
    """Assign active members and standbys; every partition has state. With `eager` no move waits for a warm copy.

    Partitions of one number of co-partitioned topics have one, named by the first topic of the set in alphabetical
    order, and so have their copies.
    """
    begun = time.monotonic()
    options, active = options or StandbyOptions(), active or Options()
    until = begun + (math.inf if active.time_limit_s is None else active.time_limit_s)
    merged = MergedGroup.of(group)
    units = merged.group
    warm = CaughtUpCopies(units, copies, options.acceptable_recovery_lag)
    stand_ins = _failover_candidates(units, warm)
    stood_in = _with_failover_claims(units, stand_ins)
    wanted = plan_units(replace(merged, group=stood_in), active, "sticky" if eager else "cooperative-sticky")
    indexed = IndexedGroup.of(stood_in, "any-replica")
    owners, last = indexed.members_by_partition(indexed.claims.owner.tolist()), dict(_each(wanted.target))
    placed = _place_copies(units, last, warm, options, until)
    holders = {tp: set(placed.holders.get(tp, ())) for tp in last}
    now, awaited, plan = last, dict[TopicPartition, set[str]](), wanted
    if not eager:
        cold = {p: who for p, who in last.items() if owners.get(p, who) != who and not warm.has(who, p)}
        stay = {p: owners[p] for p in deferred_moves(last, owners, cold)}
        now = {**last, **stay}
        plan = _deferred(merged, wanted, active, stay, {tp: now[tp] for tp in stand_ins if tp in now})
        warming = assign_warmups(holders, PendingMoves(now, last, cold), warm, options.max_warmup_replicas)
        awaited = retained_copies(holders, now, warm, options.num_standby_replicas)
        for tp, _ in _each({"": plan.withheld}):
            # A member that waits for another one's revocation keeps its copy, or it would be cold by then.
            holders[tp].add(now[tp])
        for tp, who in warming.items():
            awaited.setdefault(tp, set()).add(who)
    moved = sum(owners.get(p, who) != who for p, who in now.items() if p not in stand_ins)
    plan = merged.expand(replace(plan, moved=moved))
    ids = [member.id for member in group.members]
    return StandbyPlan(
        replace(plan, seconds=time.monotonic() - begun),
        _by_member(ids, ((tp, who) for tp, theirs in holders.items() for who in theirs)),
        _by_member(ids, ((tp, who) for tp, theirs in awaited.items() for who in theirs)),
        placed.missing,
        placed.collisions,
        placed.proven,
    )


def _deferred(
    merged: MergedGroup,
    wanted: Plan,
    active: Options,
    stay: Mapping[TopicPartition, str],
    free: Mapping[TopicPartition, str],
) -> Plan:
    """Return a plan in which some partitions stay for now, and replacements own those that are free."""
    # A replacement owns nothing yet: no member has to revoke a partition before another can have it.
    held = {**stay, **free}
    return replace(
        wanted,
        assignment=_by_member(wanted.assignment, {**dict(_each(wanted.assignment)), **held}.items()),
        target=_by_member(wanted.target, {**dict(_each(wanted.target)), **stay}.items()),
        withheld=partitions_by_topic(tp for tp, _ in _each({"": wanted.withheld}) if tp not in held),
        optimal=wanted.optimal and not stay,
        proven=() if stay else wanted.proven,
        explain_fn=partial(_explain, merged, active, wanted),
    )


def _explain(merged: MergedGroup, active: Options, wanted: Plan, plan: Plan) -> Explanation:
    # What is gained by moves that only wait is no gain of a change.
    last = explain_as(merged.original, active, "cooperative-sticky", merged.expand(wanted))
    return last._replace(not_local=tuple(non_local_partitions(merged.original, plan)))


def _failover_candidates(group: Group, warm: CaughtUpCopies) -> dict[TopicPartition, str]:
    """Return the member that takes over each unclaimed partition with its copy; it counts as the owner.

    Among warm copies whose members have at most one partition more than the least loaded of them, the one that lacks
    least is chosen.
    """
    claims = _each({member.id: member.owned for member in group.members})
    claimed, load = {tp for tp, _ in claims}, Counter(member for _, member in claims)
    candidates: dict[TopicPartition, str] = {}
    for tp in sorted(warm.lags):
        if tp in claimed or not 0 <= tp.partition < len(group.topology.topics.get(tp.topic, ())):
            continue
        lags = warm.lags[tp]
        # All warm copies are usable at once, so that load counts. But a file that was left over lacks thousands of
        # records, and balancing is easier than reading those.
        least = max(0, min(lags.values()) - warm.acceptable)
        usable = [(lag, load[member], member) for member, lag in lags.items() if max(0, lag - warm.acceptable) == least]
        most = min(each[1] for each in usable) + 1
        *_, chosen = min(each for each in usable if each[1] <= most)
        candidates[tp] = chosen
        load[chosen] += 1
    return candidates


def _with_failover_claims(group: Group, stand_ins: Mapping[TopicPartition, str]) -> Group:
    """Return the group with replacements claiming the partitions they would take over."""
    owned = {member.id: member.owned for member in group.members}
    claimed = _by_member(owned, chain(_each(owned), stand_ins.items()))
    return replace(group, members=tuple(replace(member, owned=claimed[member.id]) for member in group.members))


def _each(target: Mapping[str, Partitions]) -> list[tuple[TopicPartition, str]]:
    return [
        (TopicPartition(topic, partition), member)
        for member, theirs in target.items()
        for topic, ids in theirs.items()
        for partition in ids
    ]


def _by_member(members: Iterable[str], pairs: Iterable[tuple[TopicPartition, str]]) -> dict[str, Partitions]:
    """Return the partitions of each of these members, the inverse of `_each`."""
    found: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for tp, member in pairs:
        found[member].append(tp)
    return {member: partitions_by_topic(tps) for member, tps in found.items()}


@dataclass(slots=True)
class _PlacedCopies:
    """The copies placed so far, subscriber set after subscriber set."""

    holders: dict[TopicPartition, list[str]] = field(default_factory=dict)
    missing: dict[TopicPartition, int] = field(default_factory=dict)
    collisions: int = 0
    proven: bool = True


def _place_copies(
    group: Group, owner: Mapping[TopicPartition, str], warm: CaughtUpCopies, options: StandbyOptions, until: float
) -> _PlacedCopies:
    """Place the copies of all partitions; topics with different subscribers are placed one set after the other.

    Sets of few subscribers are first, since they have the least choice. If two sets have a subscriber in common, the
    loads are not proven: those of the first are fixed when the second is placed.
    """
    placed = _PlacedCopies()
    readers = _subscribers(group)
    # By topic first: hashing thousands of IDs for each partition would take longer than placing its copies.
    of_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in sorted(owner):
        of_topic[tp.topic].append(tp)
    subscriber_sets: dict[tuple[str, ...], list[TopicPartition]] = defaultdict(list)
    for topic, tps in of_topic.items():
        subscriber_sets[readers[topic]] += tps
    load = Counter(owner.values())
    tags = {member.id: member.tags for member in group.members}
    placed.proven = sum(map(len, subscriber_sets)) == len(set(chain.from_iterable(subscriber_sets)))
    wanted = options.num_standby_replicas
    for ids, tps in sorted(subscriber_sets.items(), key=lambda each: (len(each[0]), each)):
        number = {member: i for i, member in enumerate(ids)}
        items = [
            ItemDemand(number[owner[tp]], wanted, tuple(number[each] for each in warm.holders(tp) if each != owner[tp]))
            for tp in tps
        ]
        dimensions = tuple(_dimensions([tags[member] for member in ids], options))
        where = Topology((1,) * len(ids), tuple(load[member] for member in ids), dimensions)
        starts: list[list[tuple[int, ...]]] = []
        if not where.strict and options.rule == "even" and len(items) * len(ids) <= _MOST_FOR_ANOTHER_START:
            active: list[set[int]] = [set() for _ in ids]
            for i, item in enumerate(items):
                active[item.fixed].add(i)
            clients = client_tag_aware.Clients(
                where.weight, tuple(tags[member] for member in ids), tuple(map(frozenset, active))
            )
            keys = options.rack_aware_assignment_tags
            theirs = client_tag_aware.balance(clients, client_tag_aware.place(clients, range(len(items)), wanted, keys))
            starts = [[tuple(own) for own in theirs]]
        found = place_standbys(items, where, starts, until)
        placed.collisions += sum(found.collisions)
        placed.proven &= found.proven
        for tp, holders, missing in zip(tps, found.nodes, found.missing, strict=True):
            placed.holders[tp] = [ids[holder] for holder in holders]
            load.update(placed.holders[tp])
            if missing:
                placed.missing[tp] = missing
    return placed


def _dimensions(members: Sequence[Mapping[str, str]], options: StandbyOptions) -> Iterable[Dimension]:
    """Return a dimension for each tag over whose values copies are spread, from the tags of members."""
    # HDFS has two replicas in two racks; from three on, two of them share one.
    shared = options.num_standby_replicas > 1
    most = {"even": 0, "strict": 1, "hadoop": _HADOOP_MOST if shared else 1}[options.rule]
    fewer = _HADOOP_FEWER if options.rule == "hadoop" and shared else 0
    for key in options.rack_aware_assignment_tags:
        seen = {tags[key] for tags in members if key in tags}
        number = {value: i for i, value in enumerate(sorted(seen.union(options.forced_tag_values.get(key, ()))))}
        value = tuple(number[tags[key]] if key in tags else NO_VALUE for tags in members)
        strict = options.rule == "strict" or key in options.forced_tag_values
        yield Dimension(value, len(number), most, fewer, strict, distinct=options.rule == "even")


def _subscribers(group: Group) -> dict[str, tuple[str, ...]]:
    """Return the IDs of the members that subscribe to each topic, in order: one object for all topics of a set."""
    subscriptions: dict[frozenset[str], list[str]] = defaultdict(list)
    for member in sorted(group.members, key=lambda member: member.id):
        subscriptions[member.topics].append(member.id)
    classes = list(subscriptions.values())
    of_topic: dict[str, list[int]] = defaultdict(list)
    for number, topics in enumerate(subscriptions):
        for topic in topics:
            of_topic[topic].append(number)
    known: dict[tuple[int, ...], tuple[str, ...]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for topic, numbers in of_topic.items():
        key = tuple(numbers)
        if key not in known:
            known[key] = tuple(sorted(chain.from_iterable(classes[number] for number in key)))
        found[topic] = known[key]
    return found
