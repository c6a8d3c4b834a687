"""The range strategy of KIP-881, partition by partition equal to Java's `RangeAssignor`.

Theory of operation
-------------------
Each topic is assigned independently. Of its n partitions each of its k members gets n // k, and n % k of them one
more. Members have a fixed order: static ones first, by instance ID, then the others by member ID. Without
racks a member takes the next run of partitions in ID order.

The *rack phase* comes first, for the whole group, as soon as one topic needs it: one of its members' racks is
among the racks of its partitions, and not every partition is in all of those racks. In it

* a topic of its own lets each member, in order, take the first partitions with a replica in its rack, up to its
  quota; a member without rack takes any;
* topics with the same members and the same number of partitions are *co-partitioned*: applications join them, so
  partition p of all of them must go to one member. The first member in order that is local to p in every such topic
  gets it. This holds for all such topics, whether they need racks themselves or not.

The remaining partitions are assigned in order, regardless of racks.

One run per class of co-partitioned topics (same members, same number of partitions) is enough: they have equal
quotas at every step and get equal assignments, so one table of owners serves all of them. A hundred
topics of a thousand members cost as much as one.

A rack here is a bit; the racks of a partition are an int (see `rackassign.locality`). A member's `home` is the bit of
its rack, 0 if no broker is in that rack, or -1 (all bits) if it has no rack and so can read any partition.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import and_, or_

from rackassign.locality import RackSets
from rackassign.model import Explanation, Group, Member, Partitions, Plan
from rackassign.strategies import Options

ANYWHERE = -1
NO_MEMBER = -1


def plan_range(group: Group, options: Options | None = None) -> Plan:
    """Assign like Java's `RangeAssignor` (Apache Kafka 3.5 and later, KIP-881).

    Owned partitions do not affect the result; they are only counted in `moved`.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: Which replicas make a partition local; Java supports only `any-replica`. The other options have no
            effect here.
    """
    start = time.perf_counter()
    locality = (options or Options()).locality
    members = sorted(group.members, key=_order)
    racks = RackSets.of(group.topology, locality)
    homes = [ANYWHERE if m.rack is None else racks.bits.get(m.rack, 0) for m in members]
    classes = _copartitioned_topics(group, members, homes, racks)
    needing = [copartitioned.needs_racks() for copartitioned in classes]
    shares_of: dict[str, dict[int, tuple[int, ...]]] = {}
    rack_phase = any(needing)
    for copartitioned, needs_racks in zip(classes, needing, strict=True):
        shares = _assign(copartitioned, rack_phase=rack_phase, needs_racks=needs_racks)
        shares_of.update(dict.fromkeys(copartitioned.topics, shares))
    target: dict[str, Partitions] = _spell_out(members, shares_of)
    plan = Plan(
        strategy="range",
        locality=locality,
        assignment=target,
        target=target,
        withheld={},
        moved=_moved(group, target),
        optimal=None,
        seconds=time.perf_counter() - start,
    )
    return replace(plan, explain_fn=partial(_explain, group, options))


def _explain(group: Group, options: Options | None, plan: Plan) -> Explanation:
    from rackassign.strategies.explain import explain  # noqa: PLC0415 - no leader explains its plan

    return explain(group, plan, partial(plan_range, options=options))


def _moved(group: Group, target: Mapping[str, Partitions]) -> int:
    """Return the number of partitions that leave their valid owner, as `OwnershipClaims.moved` counts them."""
    # For each partition the highest generation that claims it, and who does: None if several do, or it may not.
    by_topic: dict[str, dict[int, tuple[int, str | None]]] = {}
    for member in group.members:
        generation = -1 if member.generation is None else member.generation
        valid, void = (generation, member.id), (generation, None)
        for topic, partitions in member.owned.items():
            claims, claim = by_topic.setdefault(topic, {}), valid if topic in member.topics else void
            for partition in partitions:
                before = claims.get(partition)
                if before is None or generation > before[0]:
                    claims[partition] = claim
                elif generation == before[0]:
                    claims[partition] = void
    moved = 0
    for topic, claims in by_topic.items():
        size = len(group.topology.topics.get(topic, ()))
        moved += sum(partition < size and owner is not None for partition, (_, owner) in claims.items())
    for member_id, own in target.items() if moved else ():
        for topic, partitions in own.items():
            claims = by_topic.get(topic, {})
            moved -= sum(claims.get(partition, (-1, None))[1] == member_id for partition in partitions)
    return moved


def _order(member: Member) -> tuple[bool, bytes, bytes]:
    """Sort static members first, and IDs as Java compares strings: by UTF-16 code units."""
    return member.instance_id is None, _utf16(member.instance_id or ""), _utf16(member.id)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _spell_out(members: list[Member], shares_of: Mapping[str, Mapping[int, tuple[int, ...]]]) -> dict[str, Partitions]:
    """Convert indexes back to member IDs, with topics in order of their names."""
    per_member: list[dict[str, tuple[int, ...]]] = [{} for _ in members]
    for topic in sorted(shares_of):
        for member_index, partitions in shares_of[topic].items():
            per_member[member_index][topic] = partitions
    by_id = sorted(zip(members, per_member, strict=True), key=lambda pair: pair[0].id)
    return {member.id: partitions for member, partitions in by_id}


@dataclass(frozen=True, slots=True)
class _CopartitionedTopics:
    """Topics with the same members and the same number of partitions."""

    topics: list[str]
    # Indexes in the group's order, ascending; the home of each of these members; and the distinct homes.
    member_indexes: list[int]
    homes: list[int]
    kinds: frozenset[int]
    # For each topic the racks of each partition; empty if none of the members has a rack.
    racks: list[list[int]]
    size: int

    def needs_racks(self) -> bool:
        members_racks = reduce(or_, self.kinds - {ANYWHERE}, 0)
        for racks in self.racks:
            different = set(racks)
            # Of two different sets of racks at least one is not the union.
            if len(different) > 1 and members_racks & reduce(or_, different):
                return True
        return False


def _copartitioned_topics(
    group: Group, members: list[Member], homes: list[int], racks: RackSets
) -> list[_CopartitionedTopics]:
    members_of: dict[frozenset[str], list[int]] = {}
    for member_index, member in enumerate(members):
        members_of.setdefault(member.topics, []).append(member_index)
    subscriptions_of: dict[str, list[int]] = {}
    for i, subscribed in enumerate(members_of):
        for topic in subscribed:
            subscriptions_of.setdefault(topic, []).append(i)
    topics_of: dict[tuple[int, ...], list[str]] = {}
    for topic, of_topic in subscriptions_of.items():
        if group.topology.topics.get(topic):
            topics_of.setdefault(tuple(of_topic), []).append(topic)

    subscribers = list(members_of.values())
    classes: list[_CopartitionedTopics] = []
    for subscriptions, topics in topics_of.items():
        member_indexes = sorted(chain.from_iterable(subscribers[i] for i in subscriptions))
        local_homes = [homes[index] for index in member_indexes]
        kinds = frozenset(local_homes)
        has_racks = kinds != {ANYWHERE}
        by_size: dict[int, _CopartitionedTopics] = {}
        for topic in topics:
            partitions = group.topology.topics[topic]
            size = len(partitions)
            copartitioned = by_size.setdefault(
                size, _CopartitionedTopics([], member_indexes, local_homes, kinds, [], size)
            )
            copartitioned.topics.append(topic)
            if has_racks:
                copartitioned.racks.append(racks.topic_racks(partitions))
        classes.extend(by_size.values())
    return classes


def _assign(copartitioned: _CopartitionedTopics, *, rack_phase: bool, needs_racks: bool) -> dict[int, tuple[int, ...]]:
    """Return the partition IDs of each index that gets any, equal for every topic of the class."""
    table = _TopicAssignmentState(copartitioned)
    if rack_phase and copartitioned.racks:
        if len(copartitioned.topics) > 1:
            table.assign_together(list(map(lambda *of_topics: reduce(and_, of_topics), *copartitioned.racks)))
        elif needs_racks:
            table.assign_local(copartitioned.racks[0])
    table.assign_rest()
    members = copartitioned.member_indexes
    if copartitioned.size <= len(members):
        # No member has two, so no lists are needed; with many members this saves most of the work.
        return {members[index]: (partition,) for partition, index in enumerate(table.owner)}
    shares: defaultdict[int, list[int]] = defaultdict(list)
    for partition, index in enumerate(table.owner):
        shares[index].append(partition)
    return {members[index]: tuple(partitions) for index, partitions in shares.items()}


class _TopicAssignmentState:
    """State of the assignment of one topic. Members are indexes in the class's list of members."""

    __slots__ = ("_extra", "_given", "_homes", "_kinds", "_left", "_quota", "owner")

    def __init__(self, copartitioned: _CopartitionedTopics) -> None:
        self._homes = copartitioned.homes
        self._kinds = copartitioned.kinds
        self._quota, self._extra = divmod(copartitioned.size, len(copartitioned.member_indexes))
        self._given = [0] * len(copartitioned.member_indexes)
        self._left = copartitioned.size
        self.owner = [NO_MEMBER] * copartitioned.size

    def _assign_to(self, member_index: int, partition: int) -> None:
        self.owner[partition] = member_index
        self._given[member_index] += 1
        self._left -= 1
        if self._given[member_index] > self._quota:
            self._extra -= 1

    def assign_local(self, racks: list[int]) -> None:
        """Rack phase of a topic of its own: each member in order takes the first local partitions."""
        sources: dict[int, Iterator[int]] = {
            home: iter([p for p, here in enumerate(racks) if here & home]) for home in self._kinds if home != ANYWHERE
        }
        sources[ANYWHERE] = iter(range(len(racks)))
        self._assign(sources)

    def assign_rest(self) -> None:
        """Assign the remaining partitions in order, regardless of racks."""
        if self._left:
            everything = iter([p for p, member_index in enumerate(self.owner) if member_index == NO_MEMBER])
            self._assign(dict.fromkeys(self._kinds, everything))

    def _assign(self, sources: Mapping[int, Iterator[int]]) -> None:
        """Let each member in order take from the source of its home.

        A source is iterated once, over all members: skipped partitions are owned already and stay so, and every
        partition taken is assigned.
        """
        # Local variables: this runs once per topic and member.
        owner, given, quota, extra, left = self.owner, self._given, self._quota, self._extra, self._left
        for member_index, home in enumerate(self._homes):
            room = quota + (extra > 0) - given[member_index]
            if room <= 0:
                continue
            taken = 0
            for partition in sources[home]:
                if owner[partition] == NO_MEMBER:
                    owner[partition] = member_index
                    taken += 1
                    if taken == room:
                        break
            if taken:
                given[member_index] += taken
                left -= taken
                extra -= given[member_index] > quota
                if not left:
                    break
        self._extra, self._left = extra, left

    def assign_together(self, racks: list[int]) -> None:
        """Rack phase of co-partitioned topics: each partition in order goes to the first member local to it."""
        # The racks of a partition are those in which every one of the topics has a replica.
        queues: dict[int, deque[int]] = {}
        for member_index, home in enumerate(self._homes):
            queues.setdefault(home, deque()).append(member_index)
        for partition, here in enumerate(racks):
            first = len(self._homes)
            for home, queue in queues.items():
                # Who has as many as it may have never gets any again, since `_extra` does not grow.
                while queue and self._given[queue[0]] >= self._quota + (self._extra > 0):
                    queue.popleft()
                if queue and queue[0] < first and (home == ANYWHERE or here & home):
                    first = queue[0]
            if first < len(self._homes):
                self._assign_to(first, partition)
