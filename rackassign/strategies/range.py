"""The range strategy of KIP-881, partition by partition what Java's `RangeAssignor` gives.

Theory of operation
-------------------
Each topic is dealt out on its own. Of its n partitions each of its k members gets n // k, and n % k of them one
more. Members stand in a fixed order: static ones first, by instance id, then the others by member id. Without
racks a member takes the next run of partitions in id order.

The *rack phase* comes first, for the whole group, as soon as one topic needs it: one of its members' racks is
among the racks of its partitions, and not every partition is in all of those racks. In it

* a topic of its own lets each member, in order, take the first partitions with a replica in its rack, up to its
  quota; a member without rack takes any;
* topics with the same members and the same number of partitions are *co-partitioned*: people join them, so
  partition p of all of them must go to one member. The first member in order that is near p in every such topic
  gets it. This holds for all such topics, needing racks themselves or not.

What is left is dealt out in order, racks or not.

Why one run per family is enough: all topics of a *family* (same members, same number of partitions) have equal
quotas at every step and are dealt the same partitions, so one table of owners serves all of them. A hundred
topics of a thousand members cost as much as one.

A rack here is a bit; the racks of a partition are an int (see `rackassign.locality`). A member's `home` is its
bit, 0 if no broker is there, or -1 (all bits) if it has no rack and so is at home anywhere.
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
from rackassign.model import Explanation, Group, LocalityMode, Member, Partitions, Plan
from rackassign.solver import NO_MEMBER
from rackassign.strategies.explain import explain
from rackassign.strategies.indexed_group import IndexedGroup
from rackassign.strategies.options import Options

ANYWHERE = -1


def plan_range(group: Group, options: Options | None = None) -> Plan:
    """Assign like Java's `RangeAssignor` (Apache Kafka 3.5 and later, KIP-881).

    What members own plays no part in the result; it is only counted in `moved`.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: Which replicas make a partition near; Java knows `any-replica` only. The others have no meaning
            here.
    """
    start = time.perf_counter()
    locality = (options or Options()).locality
    members = sorted(group.members, key=_order)
    racks = RackSets.of(group.topology, locality)
    homes = [ANYWHERE if m.rack is None else racks.bits.get(m.rack, 0) for m in members]
    families = _families(group, members, homes, racks)
    needing = [family.needs_racks() for family in families]
    shares_of: dict[str, dict[int, tuple[int, ...]]] = {}
    rack_phase = any(needing)
    for family, needs_racks in zip(families, needing, strict=True):
        shares = _deal(family, rack_phase=rack_phase, needs_racks=needs_racks)
        shares_of.update(dict.fromkeys(family.topics, shares))
    target: dict[str, Partitions] = _spell_out(members, shares_of)
    plan = Plan(
        strategy="range",
        locality=locality,
        assignment=target,
        target=target,
        withheld={},
        moved=_moved(group, locality, target),
        optimal=None,
        seconds=time.perf_counter() - start,
    )
    return replace(plan, explain_fn=partial(_explain, group, options))


def _explain(group: Group, options: Options | None, plan: Plan) -> Explanation:
    return explain(group, plan, partial(plan_range, options=options))


def _moved(group: Group, locality: LocalityMode, target: Mapping[str, Partitions]) -> int:
    """Return how many partitions leave their valid owner."""
    if not any(member.owned for member in group.members):
        return 0
    door = IndexedGroup.of(group, locality)
    return door.claims.moved(door.encode_assignment(target))


def _order(member: Member) -> tuple[bool, bytes, bytes]:
    """Sort static members first, and ids as Java compares strings: by UTF-16 code units."""
    dynamic = member.instance_id is None
    return dynamic, _utf16(member.instance_id or ""), _utf16(member.id)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _spell_out(members: list[Member], shares_of: Mapping[str, Mapping[int, tuple[int, ...]]]) -> dict[str, Partitions]:
    """Turn places back into member ids, topics in order of their names."""
    per_member: list[dict[str, tuple[int, ...]]] = [{} for _ in members]
    for topic in sorted(shares_of):
        for place, partitions in shares_of[topic].items():
            per_member[place][topic] = partitions
    by_id = sorted(zip(members, per_member, strict=True), key=lambda pair: pair[0].id)
    return {member.id: partitions for member, partitions in by_id}


@dataclass(frozen=True, slots=True)
class _CopartitionedTopics:
    """Topics with the same members and the same number of partitions.

    Args:
        topics: Names.
        places: Their members, as places in the group's order, ascending.
        homes: The home of each of them.
        kinds: The different ones of these.
        racks: For each topic the racks of each partition; empty if none of the members has a rack.
        size: Number of partitions of each topic.
    """

    topics: list[str]
    places: list[int]
    homes: list[int]
    kinds: frozenset[int]
    racks: list[list[int]]
    size: int

    def needs_racks(self) -> bool:
        """Tell whether for some topic of the family racks can make a difference."""
        members_racks = reduce(or_, self.kinds - {ANYWHERE}, 0)
        for racks in self.racks:
            different = set(racks)
            # Of two different sets of racks at least one is not the union.
            if len(different) > 1 and members_racks & reduce(or_, different):
                return True
        return False


def _families(group: Group, members: list[Member], homes: list[int], racks: RackSets) -> list[_CopartitionedTopics]:
    """Group the subscribed topics that have partitions."""
    places_of: dict[frozenset[str], list[int]] = {}
    for place, member in enumerate(members):
        places_of.setdefault(member.topics, []).append(place)
    subscriptions_of: dict[str, list[int]] = {}
    for i, subscribed in enumerate(places_of):
        for topic in subscribed:
            subscriptions_of.setdefault(topic, []).append(i)
    topics_of: dict[tuple[int, ...], list[str]] = {}
    for topic, of_topic in subscriptions_of.items():
        if group.topology.topics.get(topic):
            topics_of.setdefault(tuple(of_topic), []).append(topic)

    subscribers = list(places_of.values())
    families: list[_CopartitionedTopics] = []
    for subscriptions, topics in topics_of.items():
        places = sorted(chain.from_iterable(subscribers[i] for i in subscriptions))
        local_homes = [homes[place] for place in places]
        kinds = frozenset(local_homes)
        has_racks = kinds != {ANYWHERE}
        by_size: dict[int, _CopartitionedTopics] = {}
        for topic in topics:
            partitions = group.topology.topics[topic]
            size = len(partitions)
            family = by_size.setdefault(size, _CopartitionedTopics([], places, local_homes, kinds, [], size))
            family.topics.append(topic)
            if has_racks:
                family.racks.append(racks.topic_racks(partitions))
        families.extend(by_size.values())
    return families


def _deal(family: _CopartitionedTopics, *, rack_phase: bool, needs_racks: bool) -> dict[int, tuple[int, ...]]:
    """Return for each place that gets any its partition ids, the same in every topic of the family."""
    table = _TopicAssignmentState(family)
    if rack_phase and family.racks:
        if len(family.topics) > 1:
            table.deal_together(list(map(lambda *of_topics: reduce(and_, of_topics), *family.racks)))
        elif needs_racks:
            table.deal_near(family.racks[0])
    table.deal_rest()
    if family.size <= len(family.places):
        # Nobody has two, so no lists need to be made; with many members this is most of the work.
        return {family.places[seat]: (partition,) for partition, seat in enumerate(table.owner)}
    shares: defaultdict[int, list[int]] = defaultdict(list)
    for partition, seat in enumerate(table.owner):
        shares[seat].append(partition)
    return {family.places[seat]: tuple(partitions) for seat, partitions in shares.items()}


class _TopicAssignmentState:
    """One topic being dealt out. A seat is a place within the family's members.

    Args:
        family: Whose members and size to use.
    """

    __slots__ = ("_extra", "_given", "_homes", "_kinds", "_left", "_quota", "owner")

    def __init__(self, family: _CopartitionedTopics) -> None:
        self._homes = family.homes
        self._kinds = family.kinds
        self._quota, self._extra = divmod(family.size, len(family.places))
        self._given = [0] * len(family.places)
        self._left = family.size
        self.owner = [NO_MEMBER] * family.size

    def _room(self, seat: int) -> int:
        """How many more the seat may get now. It never grows: neither does `_extra`."""
        return self._quota + (self._extra > 0) - self._given[seat]

    def _give(self, seat: int, partition: int) -> None:
        self.owner[partition] = seat
        self._given[seat] += 1
        self._left -= 1
        if self._given[seat] > self._quota:
            self._extra -= 1

    def deal_near(self, racks: list[int]) -> None:
        """Rack phase of a topic of its own: each seat in order takes the first partitions near it."""
        sources: dict[int, Iterator[int]] = {
            home: iter([p for p, here in enumerate(racks) if here & home]) for home in self._kinds if home != ANYWHERE
        }
        sources[ANYWHERE] = iter(range(len(racks)))
        self._deal(sources)

    def deal_rest(self) -> None:
        """Deal what is left in order, near or not."""
        if self._left:
            everything = iter([p for p, seat in enumerate(self.owner) if seat == NO_MEMBER])
            self._deal(dict.fromkeys(self._kinds, everything))

    def _deal(self, sources: Mapping[int, Iterator[int]]) -> None:
        """Let each seat in order take from the source of its home.

        A source is walked once, over all seats: what is passed over is owned already and stays so, and nothing
        is taken out that is not given.
        """
        # Local names: this runs once per topic and member.
        owner, given, quota, extra, left = self.owner, self._given, self._quota, self._extra, self._left
        for seat, home in enumerate(self._homes):
            room = quota + (extra > 0) - given[seat]
            if room <= 0:
                continue
            taken = 0
            for partition in sources[home]:
                if owner[partition] == NO_MEMBER:
                    owner[partition] = seat
                    taken += 1
                    if taken == room:
                        break
            if taken:
                given[seat] += taken
                left -= taken
                extra -= given[seat] > quota
                if not left:
                    break
        self._extra, self._left = extra, left

    def deal_together(self, racks: list[int]) -> None:
        """Rack phase of co-partitioned topics: each partition in order goes to the first seat near it.

        Args:
            racks: For each partition the racks in which every one of the topics has a replica.
        """
        queues: dict[int, deque[int]] = {}
        for seat, home in enumerate(self._homes):
            queues.setdefault(home, deque()).append(seat)
        for partition, here in enumerate(racks):
            first = len(self._homes)
            for home, queue in queues.items():
                # A seat without room never gets any again, so it can leave its queue for good.
                while queue and self._room(queue[0]) <= 0:
                    queue.popleft()
                if queue and queue[0] < first and (home == ANYWHERE or here & home):
                    first = queue[0]
            if first < len(self._homes):
                self._give(first, partition)
