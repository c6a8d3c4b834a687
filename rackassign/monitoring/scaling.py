"""How many members a group should have in each rack: as many partitions local as with any other distribution.

All members subscribe to the same topics, so each can read all of `P` partitions: each of `n` members has `q = P // n`,
and `r = P % n` of them one more. So `k` members read at most `most(k) = q * k + min(k, r)` partitions. By the theorem
of maximum flow and minimum cut, as many partitions can be local as the least of

    known - within(B) + most(members in B)        over all sets B of racks,

where `known` partitions have a replica in a known rack, and `within(B)` of them have replicas only in racks of `B`. The
exact cooperative plan reaches this, since balance and then local partitions are its first two objectives.

So at least `L` partitions are local exactly if each set of racks has a certain number of members, and the largest `L`
is found by bisection. A search over the racks, one after the other, takes along what sets of the racks that are left
need. It proves that there is no better distribution, and finds the most even one of the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from rackassign.errors import ConfigError
from rackassign.locality import Locality, RackSets
from rackassign.model import Group, LocalityMode, Member, TopicPartition, Topology
from rackassign.monitoring.traffic import TrafficMatrix, count_locality, partition_reads, traffic_matrix
from rackassign.strategies import Options, plan_cooperative

MOST_RACKS = 8
"""The most racks for which members are distributed: each set of them needs a number of members."""

_FEWER, _MORE = 3, 6
"""The members of the table, from now."""


@dataclass(frozen=True, slots=True)
class ReplicaRacks:
    """The racks from which each partition of a group is read locally."""

    # Racks with a replica that counts, in order.
    racks: tuple[str, ...]
    # Number of partitions by set of these racks, in which the i-th bit is the i-th rack.
    sets: Mapping[int, int]
    # All partitions, also those without a known rack.
    partitions: int

    @classmethod
    def of(cls, group: Group, mode: LocalityMode) -> ReplicaRacks:
        """Return those of a group; `ConfigError` names what it needs in order to be scaled."""
        if len({member.topics for member in group.members}) != 1:
            raise ConfigError("scale needs a group that has members, all of which subscribe to the same topics")
        if group.weights or group.costs or group.copartition:
            raise ConfigError("scale counts partitions: it needs a scenario without weights, costs and copartition")
        all_racks = RackSets.of(group.topology, mode)
        near = all_racks.all_partition_racks(group.topology)
        found = Counter(bits for topic in group.members[0].topics for bits in near.get(topic, ()))
        racks = all_racks.names(sum(bit for bit in all_racks.bits.values() if any(bit & bits for bits in found)))
        if not 0 < len(racks) <= MOST_RACKS:
            raise ConfigError(f"scale needs topics with replicas in 1 to {MOST_RACKS} known racks, got {len(racks)}")
        places = [(all_racks.bits[rack], 1 << i) for i, rack in enumerate(racks)]
        sets = Counter[int]()
        for bits, count in found.items():
            sets[sum(place for bit, place in places if bit & bits)] += count
        return cls(tuple(racks), sets, found.total())

    @property
    def everywhere(self) -> bool:
        """Whether each partition has a replica in each of the racks, of which there are several."""
        return len(self.racks) > 1 and self.sets.keys() == {(1 << len(self.racks)) - 1}

    def distribute(self, members: int, now: Mapping[str, int]) -> dict[str, int]:
        """Return the members of each rack with which most partitions are local.

        Of equal distributions it is the most even one, then the one with the fewest changes from now, then the one with
        more members in the first racks.
        """
        each, more = divmod(self.partitions, members)
        within = [
            sum(n for bits, n in self.sets.items() if bits and not bits & ~b) for b in range(1 << len(self.racks))
        ]

        def needed(local: int) -> list[int]:
            """Return the fewest members in each set of racks with which so many partitions are local."""
            here = [max(0, local - within[-1] + inside) for inside in within]
            return [
                -(-n // (each + 1)) if n <= more * (each + 1) else more - (more * (each + 1) - n) // each for n in here
            ]

        before = [now.get(rack, 0) for rack in self.racks]
        least, most = 0, within[-1]
        while least < most:
            middle = (least + most + 1) // 2
            if _most_even(needed(middle), members, before, any_one=True) is None:
                most = middle - 1
            else:
                least = middle
        return dict(zip(self.racks, _most_even(needed(least), members, before) or (), strict=True))


def _most_even(
    need: Sequence[int], members: int, before: Sequence[int], *, any_one: bool = False
) -> tuple[int, ...] | None:
    """Return members of each rack with which each set of racks has what it needs; None if there are none."""
    # Squares, changes and negative members of each rack, the best ones last.
    found: list[tuple[int, int, tuple[int, ...]]] = []

    def choose(need: Sequence[int], left: int, negative: tuple[int, ...], squares: int, changes: int) -> None:
        """Choose the members of the next rack; `need` is what sets of this and further racks need, of those left."""
        others = before[len(negative) :]
        if not others:
            if left == 0 and (not found or (squares, changes, negative) < found[-1]):
                found.append((squares, changes, negative))
            return
        tried = []
        for here in range(need[1], left - need[-2] + 1):
            # A set without this rack needs as much as it does with it, less what is here.
            rest = [max(without, its - here) for without, its in zip(need[::2], need[1::2], strict=True)]
            if all(one + other <= left - here for one, other in zip(rest, reversed(rest), strict=True)):
                bound = squares + here * here + _fewest_squares(rest, left - here)
                changed = changes + abs(here - others[0])
                tried.append((bound, changed + abs(left - here - sum(others[1:])), -here, changed, rest))
        for bound, least, less, changed, rest in sorted(tried):
            if found and (any_one or (bound, least) > found[-1][:2]):
                return
            choose(rest, left + less, (*negative, less), squares + less * less, changed)

    choose(need, members, (), 0, 0)
    return tuple(-less for less in found[-1][2]) if found else None


def _fewest_squares(need: Sequence[int], members: int) -> int:
    """Return a lower bound for the sum of squares of the members in racks, from what sets of these racks need."""
    # A chain of sets, each time the one that adds the most members for each rack, which are then spread evenly.
    everything, done, held, squares = len(need) - 1, 0, 0, 0
    while done != everything:
        most = (-1.0, 0, 0, 0)
        for b in range(done + 1, everything + 1):
            if b & done == done:
                added, racks = (members if b == everything else need[b]) - held, (b ^ done).bit_count()
                most = max(most, (added / racks, b, added, racks))
        _, done, added, racks = most
        held += added
        each, more = divmod(added, racks)
        squares += racks * each * each + more * (2 * each + 1)
    return squares


def step_up(partitions: int, members: int) -> int | None:
    """Return the fewest members with which the most partitions of a member fall; None if that is one now."""
    most = -(-partitions // members)
    return -(-partitions // (most - 1)) if most > 1 else None


def step_down(partitions: int, members: int) -> int:
    """Return the fewest members with which the most partitions of a member do not rise."""
    return -(-partitions // -(-partitions // members))


@dataclass(frozen=True, slots=True)
class MemberCount:
    """What members in racks would read, if rackassign assigns."""

    members: int
    by_rack: Mapping[str, int]
    # The fewest and the most partitions of a member.
    partitions: tuple[int, int]
    locality: Locality
    flows: TrafficMatrix


@dataclass(frozen=True, slots=True)
class Scaling:
    """Members that a group could have.

    Args:
        now: Those that it has.
        counts: The best distribution of three fewer members than now, and so on up to six more.
        up: The fewest members with which the largest number of partitions of a member falls; None if it cannot.
        down: The fewest members with which it does not rise.
        anywhere: Whether each partition is local to a member in any of these racks.
    """

    now: MemberCount
    counts: tuple[MemberCount, ...]
    up: MemberCount | None
    down: MemberCount
    anywhere: bool


def scale_group(
    group: Group, mode: LocalityMode, serving: Topology, bytes_s: Mapping[TopicPartition, float] | None = None
) -> Scaling:
    """Evaluate members that a group could have; `ConfigError` states what it needs for that."""
    # `serving`: the replicas that readers are sent to. `bytes_s`: what is read of each partition.
    racks, total = ReplicaRacks.of(group, mode), len(group.members)
    homes = Counter(member.rack for member in group.members if member.rack is not None)

    def reads(scaled: Group) -> MemberCount:
        made = partition_reads(scaled, plan_cooperative(scaled, Options(locality=mode)).target, serving)
        each, members = Counter(read.member for read in made), scaled.members
        loads = [each[member.id] for member in members]
        counts = {rack: sum(member.rack == rack for member in members) for rack in racks.racks}
        flows = traffic_matrix(made, bytes_s or {})
        return MemberCount(len(members), counts, (min(loads), max(loads)), count_locality(made), flows)

    @cache
    def best(members: int) -> MemberCount:
        return reads(_with_members(group, racks.distribute(members, homes)))

    more = step_up(racks.partitions, total)
    return Scaling(
        reads(group),
        tuple(best(members) for members in range(max(1, total - _FEWER), total + _MORE + 1)),
        None if more is None else best(more),
        best(step_down(racks.partitions, total)),
        racks.everywhere,
    )


def _with_members(group: Group, counts: Mapping[str, int]) -> Group:
    """Return the group with so many members in each rack: of those that it has, and new ones."""
    # Sorts after all others.
    added, topics = max(member.id for member in group.members) + "+", group.members[0].topics
    members: list[Member] = []
    for rack, count in counts.items():
        here = sorted((member for member in group.members if member.rack == rack), key=lambda member: member.id)[:count]
        new = (Member(f"{added}{rack}+{i}", topics, rack) for i in range(count - len(here)))
        members += (*here, *new)
    return replace(group, members=tuple(members))
