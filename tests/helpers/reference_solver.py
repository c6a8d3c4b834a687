"""What the best plan is, found in three ways, what every plan must be, and groups to ask about.

All of it is written anew, in plain ints: of the code under test it knows the options and the model only.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from rackassign.model import (
    LOCALITY_MODES,
    Broker,
    Group,
    Member,
    Partition,
    Partitions,
    Plan,
    TopicPartition,
    Topology,
)
from rackassign.strategies import Options

MILLION = 1_000_000
NOBODY = -1

RACKS = ["a", "b", "c", "d"]
AMOUNTS = [0, 0.000001, 0.1, 0.25, 0.5, 1, 1.000001, 2, 3.7]
MOST_TRIES = 30


class Score(NamedTuple):
    """The objectives: loads from large to small, cost in millionths, partitions that leave a valid owner, and the cost
    of reading from leaders.

    Where topics are balanced first, also the numbers of partitions of each topic, from large to small. Where leaders
    are what counts, their cost is 0 here.
    """

    loads: tuple[int, ...]
    cost: int
    moves: int
    leaders: int
    by_topic: tuple[tuple[int, ...], ...] = ()

    def rank(self, options: Options) -> tuple[Any, ...]:
        """Less is better; what comes first decides first."""
        if options.max_skew:
            return self.cost, self.loads, self.moves, self.leaders
        return self.by_topic, self.loads, self.cost, self.moves, self.leaders


def claimants(group: Group) -> dict[TopicPartition, set[str]]:
    """Who claims a partition in the highest generation that anybody claims it in."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in group.members:
        for topic, partitions in member.owned.items():
            for partition in partitions:
                if partition < len(group.topology.topics.get(topic, ())):
                    generation = -1 if member.generation is None else member.generation
                    claims.setdefault(TopicPartition(topic, partition), []).append((generation, member.id))
    return {key: {who for when, who in made if when == max(made)[0]} for key, made in claims.items()}


def owners(group: Group) -> dict[TopicPartition, str]:
    """Return the valid owners: the only claimant, if it still subscribes."""
    topics = {member.id: member.topics for member in group.members}
    return {key: min(who) for key, who in claimants(group).items() if len(who) == 1 and key.topic in topics[min(who)]}


def reading_cost(group: Group, locality: str, member: Member, partition: Partition) -> int:
    """Return what it costs that the member reads the partition, in millionths; without costs a million if cross."""
    racks = {broker.id: broker.rack for broker in group.topology.brokers}
    counting = partition.replicas if locality == "any-replica" else (partition.leader,)
    known = {rack for replica in counting if replica is not None and (rack := racks.get(replica)) is not None}
    if member.rack is None or not known:
        return 0
    row = group.costs.get(member.rack, {})
    return min(0 if rack == member.rack else round(MILLION * row.get(rack, 1)) for rack in known)


@dataclass(frozen=True)
class Puzzle:
    """A group as numbers: members and partitions are their places in the lists."""

    members: list[str]
    partitions: list[TopicPartition]
    readers: list[list[int]]
    costs: list[list[int]]
    leaders: list[list[int]]
    owners: list[int]
    equals: list[list[int]]
    options: Options

    @classmethod
    def of(cls, group: Group, options: Options) -> Puzzle:
        members = sorted(group.members, key=lambda member: member.id)
        ids = [member.id for member in members]
        topics = group.topology.topics
        read = sorted(topic for topic in topics if any(topic in member.topics for member in members))
        partitions = [TopicPartition(topic, p) for topic in read for p in range(len(topics[topic]))]
        valid = owners(group)
        # Topics that nobody can read play no part in what members can.
        alike: dict[frozenset[str], list[int]] = {}
        for i, member in enumerate(members):
            alike.setdefault(frozenset(topic for topic in member.topics if topics.get(topic)), []).append(i)

        def costs(locality: str) -> list[list[int]]:
            return [
                [reading_cost(group, locality, member, topics[key.topic][key.partition]) for member in members]
                for key in partitions
            ]

        from_leaders = costs("leader")
        return cls(
            members=ids,
            partitions=partitions,
            readers=[[i for i, member in enumerate(members) if key.topic in member.topics] for key in partitions],
            costs=costs(options.locality),
            leaders=[[0 for _ in row] for row in from_leaders] if options.locality == "leader" else from_leaders,
            owners=[ids.index(valid[key]) if key in valid else NOBODY for key in partitions],
            equals=list(alike.values()),
            options=options,
        )

    def leaves(self, partition: int, reader: int) -> bool:
        return self.owners[partition] not in {NOBODY, reader}

    def last_objectives(self) -> tuple[list[list[int]], int]:
        """Return moves and leaders of each partition and member as one number, and a number above all their sums."""
        size = len(self.partitions)
        of_moves = size * max(map(max, self.leaders), default=0) + 1
        rows = [
            [self.leaves(p, i) * of_moves + cost for i, cost in enumerate(row)] for p, row in enumerate(self.leaders)
        ]
        return rows, of_moves * (size + 1)

    def score(self, reader_of: Sequence[int]) -> Score:
        loads = Counter(reader_of)
        return Score(
            loads=tuple(sorted((loads[i] for i in range(len(self.members))), reverse=True)),
            cost=sum(self.costs[p][reader] for p, reader in enumerate(reader_of)),
            moves=sum(self.leaves(p, reader) for p, reader in enumerate(reader_of)),
            leaders=sum(self.leaders[p][reader] for p, reader in enumerate(reader_of)),
            by_topic=self.by_topic(reader_of) if self.options.balance == "topic" else (),
        )

    def by_topic(self, reader_of: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return for each topic its subscribers' numbers of partitions, from large to small."""
        counts: dict[str, Counter[int]] = {}
        for key, readers, reader in zip(self.partitions, self.readers, reader_of, strict=True):
            counts.setdefault(key.topic, Counter(dict.fromkeys(readers, 0)))[reader] += 1
        return tuple(tuple(sorted(of.values(), reverse=True)) for of in counts.values())

    def score_of(self, target: Mapping[str, Partitions]) -> Score:
        reader = {TopicPartition(topic, p): self.members.index(member) for member, topic, p in spelled(target)}
        return self.score([reader[key] for key in self.partitions])

    def allows(self, loads: Sequence[int]) -> bool:
        """Tell whether equals are as near to each other as `max_skew` wants; 0 is no bound of its own."""
        of_equals = [[loads[i] for i in places] for places in self.equals]
        return not self.options.max_skew or all(max(of) - min(of) <= 1 + self.options.max_skew for of in of_equals)


def by_enumeration(puzzle: Puzzle) -> tuple[Score, int]:
    """Look at every assignment there is; return the best score and how many reach it."""
    scores: Counter[Score] = Counter()
    for reader_of in product(*puzzle.readers):
        loads = Counter(reader_of)
        if puzzle.allows([loads[i] for i in range(len(puzzle.members))]):
            scores[puzzle.score(reader_of)] += 1
    best = min(scores, key=lambda score: score.rank(puzzle.options))
    return best, scores[best]


def by_loads(puzzle: Puzzle) -> tuple[Score, int]:
    """Return the best score and how many assignments reach it, from a table of all load vectors there are.

    Cost, moves and leaders add up, so for each vector of loads only the best of what leads to it need be kept. Where
    topics are balanced first, the loads of a topic alone are in front, and at its end only the most even ones go on.
    """
    size, per_topic = len(puzzle.members), puzzle.options.balance == "topic"
    table: Table = {(0,) * size: (0, 0, 0, 1)}
    by_topic: list[tuple[int, ...]] = []
    for p, readers in enumerate(puzzle.readers):
        if per_topic and (not p or puzzle.partitions[p].topic != puzzle.partitions[p - 1].topic):
            table = {(0,) * size + loads[-size:]: value for loads, value in table.items()}
        longer: Table = {}
        for loads, (cost, moves, leaders, count) in table.items():
            for reader in readers:
                key = _more(loads, reader, size)
                more = puzzle.costs[p][reader], puzzle.leaves(p, reader), puzzle.leaders[p][reader]
                value = cost + more[0], moves + more[1], leaders + more[2]
                known = longer.get(key)
                if known is None or value < known[:3]:
                    longer[key] = (*value, count)
                elif value == known[:3]:
                    longer[key] = (*value, count + known[3])
        table = longer
        if per_topic and (
            p + 1 == len(puzzle.partitions) or puzzle.partitions[p + 1].topic != puzzle.partitions[p].topic
        ):
            even, table = _most_even(table, readers, size)
            by_topic.append(even)
    scores: Counter[Score] = Counter()
    for loads, (cost, moves, leaders, count) in table.items():
        ends = loads[-size:] if size else ()
        if puzzle.allows(ends):
            score = Score(tuple(sorted(ends, reverse=True)), cost, moves, leaders, tuple(by_topic))
            scores[score] += count
    best = min(scores, key=lambda score: score.rank(puzzle.options))
    return best, scores[best]


Table = dict[tuple[int, ...], tuple[int, int, int, int]]


def _more(loads: tuple[int, ...], reader: int, size: int) -> tuple[int, ...]:
    """Return the loads with one more partition of a reader, in each of the blocks of this size."""
    return tuple(load + (i % size == reader) for i, load in enumerate(loads))


def _most_even(table: Table, readers: Sequence[int], size: int) -> tuple[tuple[int, ...], Table]:
    """Return the most even loads of the last topic, from large to small, and what leads to them, without these."""

    def even(loads: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted((loads[i] for i in readers), reverse=True))

    best = min(map(even, table))
    kept: Table = {}
    for loads, (cost, moves, leaders, count) in table.items():
        if even(loads) != best:
            continue
        key, known, value = loads[size:], kept.get(loads[size:]), (cost, moves, leaders)
        if known is None or value < known[:3]:
            kept[key] = (*value, count)
        elif value == known[:3]:
            kept[key] = (*value, count + known[3])
    return best, kept


def by_flow(puzzle: Puzzle) -> Score:
    """Return the best score, found by minimum-cost flow.

    With `max_skew` the least load of each set of equals is tried out: once it is fixed, what `max_skew` allows is
    bounds on loads, and loads of least sum of squares are the lexicographically least ones too.
    """
    if puzzle.options.balance == "topic":
        return puzzle.score(_FlowByTopic(puzzle).found())
    flows = [_flow(puzzle, low, high) for low, high in tries(puzzle)]
    found = [puzzle.score(flow) for flow in flows if flow is not None]
    return min(found, key=lambda score: score.rank(puzzle.options))


def tries(puzzle: Puzzle) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the bounds on loads, lower and upper ones, that `by_flow` has to try out."""
    size, k = len(puzzle.partitions), puzzle.options.max_skew
    able = [sum(places[0] in readers for readers in puzzle.readers) for places in puzzle.equals]
    tied = [k > 0 and len(places) > 1 for places in puzzle.equals]
    bases = [range(n // len(of) + 1 if bound else 1) for of, n, bound in zip(puzzle.equals, able, tied, strict=True)]
    for least in product(*bases):
        low, high = [0] * len(puzzle.members), [size] * len(puzzle.members)
        for of, base, bound in zip(puzzle.equals, least, tied, strict=True):
            for i in of:
                low[i], high[i] = base, base + 1 + k if bound else size
        if sum(low) <= size <= sum(high):
            yield low, high


def optimum(group: Group, options: Options) -> Score:
    return by_flow(Puzzle.of(group, options))


def _flow(puzzle: Puzzle, low: list[int], high: list[int]) -> list[int] | None:
    """Return who reads what in a cheapest flow source -> partition -> member -> sink, None if there is none.

    A partition's arcs to its readers carry cost and moves; a member's k-th unit on the way to the sink costs 2k - 1,
    so that all of its units cost the square of its load. One number holds all objectives: each has a weight above
    the greatest difference that all later ones can make together, and being below `low` one above everything.
    Partitions come one by one, each on a cheapest path through the residual graph. There arcs can cost less than
    nothing, so that paths are found by Bellman and Ford's way, but no cycle can.
    """
    size, dearest = len(puzzle.partitions), max(map(max, puzzle.costs), default=0)
    last, least = puzzle.last_objectives()
    of_cost = least
    of_squares = of_cost * size * dearest + least
    if puzzle.options.max_skew:
        of_squares = least
        of_cost = of_squares * size * size + least
    must = of_cost * size * dearest + of_squares * size * size + least
    arc = [
        {reader: puzzle.costs[p][reader] * of_cost + last[p][reader] for reader in readers}
        for p, readers in enumerate(puzzle.readers)
    ]
    reader_of = [NOBODY] * size
    held: list[set[int]] = [set() for _ in puzzle.members]

    def next_unit(member: int) -> int:
        load = len(held[member])
        return of_squares * (2 * load + 1) - must * (load < low[member])

    for new in range(size):
        distance = dict(arc[new])
        through = dict.fromkeys(distance, new)
        queue = deque(distance)
        while queue:
            member = queue.popleft()
            for p in held[member]:
                without = distance[member] - arc[p][member]
                for other, cost in arc[p].items():
                    if other not in distance or without + cost < distance[other]:
                        distance[other], through[other] = without + cost, p
                        if other not in queue:
                            queue.append(other)
        ends = [member for member in distance if len(held[member]) < high[member]]
        if not ends:
            return None
        member = min(ends, key=lambda end: distance[end] + next_unit(end))
        while member != NOBODY:
            p = through[member]
            reader_of[p], before = member, reader_of[p]
            held[member].add(p)
            if before != NOBODY:
                held[before].remove(p)
            member = before
    return reader_of if all(len(of) >= least for of, least in zip(held, low, strict=True)) else None


class _FlowByTopic:
    """A cheapest flow source -> partition -> topic of a member -> member -> sink, as `_flow` finds it.

    Both the units of a topic and those of a member cost more from one to the next. Nodes of paths are pairs of a topic
    and a member, and (None, member) for the member.
    """

    def __init__(self, puzzle: Puzzle) -> None:
        size, dearest = len(puzzle.partitions), max(map(max, puzzle.costs), default=0)
        last, of_cost = puzzle.last_objectives()
        self._of_loads = of_cost * size * dearest + of_cost
        self._of_topic = self._of_loads * (size * size + 1)
        self._topic = [key.topic for key in puzzle.partitions]
        self._arc = [
            {reader: puzzle.costs[p][reader] * of_cost + last[p][reader] for reader in readers}
            for p, readers in enumerate(puzzle.readers)
        ]
        self._reader_of = [NOBODY] * size
        self._held: dict[tuple[str | None, int], set[int]] = {}

    def found(self) -> list[int]:
        """Return who reads what."""
        for new in range(len(self._reader_of)):
            self._assign(new)
        return self._reader_of

    def _load(self, member: int) -> int:
        return self._reader_of.count(member)

    def _steps(self, node: tuple[str | None, int]) -> Iterator[tuple[tuple[str | None, int], int, int]]:
        """Yield where a partition more at a node can lead: node, cost, and the partition that leaves, or NOBODY."""
        topic, member = node
        if topic is not None:
            yield (None, member), self._of_topic * (2 * len(self._held.get(node, ())) + 1), NOBODY
        for (other, who), partitions in self._held.items():
            if who != member or (topic is not None and other != topic):
                continue
            less = 0 if topic is not None else self._of_topic * (2 * len(partitions) - 1)
            for p in partitions:
                for reader, cost in self._arc[p].items():
                    yield (other, reader), cost - self._arc[p][member] - less, p

    def _assign(self, new: int) -> None:
        distance: dict[tuple[str | None, int], int] = {
            (self._topic[new], reader): cost for reader, cost in self._arc[new].items()
        }
        through: dict[tuple[str | None, int], tuple[tuple[str | None, int] | None, int]] = dict.fromkeys(
            distance, (None, new)
        )
        queue = deque(distance)
        while queue:
            node = queue.popleft()
            for other, cost, p in self._steps(node):
                if other not in distance or distance[node] + cost < distance[other]:
                    distance[other], through[other] = distance[node] + cost, (node, p)
                    if other not in queue:
                        queue.append(other)
        ends = [node for node in distance if node[0] is None]
        at: tuple[str | None, int] | None = min(
            ends, key=lambda end: distance[end] + self._of_loads * (2 * self._load(end[1]) + 1)
        )
        moved: list[tuple[int, int]] = []
        while at is not None:
            before, p = through[at]
            if p != NOBODY:
                moved.append((p, at[1]))
            at = before
        for p, _ in moved:
            if self._reader_of[p] != NOBODY:
                self._held[self._topic[p], self._reader_of[p]].discard(p)
        for p, reader in moved:
            self._reader_of[p] = reader
            self._held.setdefault((self._topic[p], reader), set()).add(p)


def spelled(assignment: Mapping[str, Partitions]) -> Iterator[tuple[str, str, int]]:
    for member, topics in assignment.items():
        for topic, partitions in topics.items():
            for partition in partitions:
                yield member, topic, partition


def reclaimed(group: Group, assignment: Mapping[str, Partitions], generation: int) -> Group:
    """Return the group as it joins after it was given that."""
    return replace(
        group,
        members=tuple(replace(m, owned=dict(assignment[m.id]), generation=generation) for m in group.members),
    )


def check_plan(group: Group, options: Options, plan: Plan) -> None:
    """Check what must hold for any plan, the best or not."""
    ids = sorted(member.id for member in group.members)
    topics = {member.id: member.topics for member in group.members}
    everything = {
        TopicPartition(topic, p)
        for topic, partitions in group.topology.topics.items()
        if any(topic in subscribed for subscribed in topics.values())
        for p in range(len(partitions))
    }

    # Form: an entry for every member, everything in order, nothing empty, nothing twice.
    assert list(plan.assignment) == ids
    assert list(plan.target) == ids
    for listed in (*plan.assignment.values(), *plan.target.values(), plan.withheld):
        assert list(listed) == sorted(listed)
        assert all(listed.values())
        assert all(list(partitions) == sorted(set(partitions)) for partitions in listed.values())
        assert all(type(p) is int for partitions in listed.values() for p in partitions)
    assert plan.locality == options.locality
    assert plan.seconds >= 0

    # The target: complete, exclusive, only to subscribers.
    reader: dict[TopicPartition, str] = {}
    for member, topic, p in spelled(plan.target):
        assert topic in topics[member]
        assert reader.setdefault(TopicPartition(topic, p), member) == member
    assert reader.keys() == everything

    # Handed out at once is what nobody else claims in the newest generation it is claimed in.
    claims = claimants(group)
    if plan.strategy == "cooperative-sticky":
        held_back = {key for key, member in reader.items() if claims.get(key, set()) - {member}}
    else:
        assert plan.strategy == "sticky"
        held_back = set()
    assert {TopicPartition(topic, p) for _, topic, p in spelled({"": plan.withheld})} == held_back
    handed_out = {(member, key) for key, member in reader.items() if key not in held_back}
    assert {(member, TopicPartition(topic, p)) for member, topic, p in spelled(plan.assignment)} == handed_out

    assert plan.moved == sum(reader[key] != owner for key, owner in owners(group).items())
    if not group.weights:
        assert plan.optimality_gap is None
        assert plan.weight_loads is None
        puzzle = Puzzle.of(group, options)
        loads = [sum(map(len, plan.target[member].values())) for member in ids]
        widest = max((max(loads[i] for i in of) - min(loads[i] for i in of) for of in puzzle.equals), default=0)
        assert widest <= 1 + options.max_skew


def big_group(seed: int) -> tuple[Group, Options]:
    """5 to 25 members and 10 to 120 partitions; each seed differs in what is known, subscribed, owned and wanted."""
    rng = random.Random(seed)
    racks = RACKS[: rng.randint(1, 4)]
    dark, homeless = rng.choice([0, 0, 0.2]), rng.choice([0, 0, 0.2])
    brokers = tuple(Broker(i, None if rng.random() < dark else rng.choice(racks)) for i in range(rng.randint(2, 9)))
    factor, names = rng.randint(1, 3), [f"t{i}" for i in range(rng.randint(1, 6))]
    sizes = [0] * len(names)
    for _ in range(rng.randint(10, 120)):
        sizes[rng.randrange(len(names))] += 1

    def partition() -> Partition:
        replicas = tuple(rng.choices(range(len(brokers) + (dark > 0)), k=factor))
        return Partition(replicas, rng.choice([*replicas, *replicas, None]) if dark else replicas[0])

    topics = {name: tuple(partition() for _ in range(size)) for name, size in zip(names, sizes, strict=True)}
    buckets = [frozenset(rng.sample(names, rng.randint(1, len(names)))) for _ in range(rng.randint(2, 3))]
    subscribe: Callable[[], frozenset[str]] = rng.choice(
        [
            lambda: frozenset(names),
            lambda: rng.choice(buckets),
            lambda: frozenset(rng.sample(names, rng.randint(0, len(names)))),
        ]
    )
    claiming = rng.choice([0, 0.5, 1])
    members = []
    ids = [f"m{i:02}" for i in range(rng.randint(5, 25))]
    claims: dict[str, dict[str, list[int]]] = {member: {} for member in ids}
    for name, partitions in topics.items():
        for p in range(len(partitions) + 1):
            if rng.random() < claiming:
                for member in rng.sample(ids, rng.choice([1, 1, 1, 1, 2, 3])):
                    claims[member].setdefault(name, []).append(p)
    for member in ids:
        owned = {name: tuple(partitions) for name, partitions in claims[member].items()}
        rack = None if rng.random() < homeless else rng.choice([*racks, *racks, "elsewhere"])
        members.append(Member(member, subscribe(), rack, owned=owned, generation=rng.choice([None, 4, 5, 5, 5])))
    matrix = {a: {b: rng.choice(AMOUNTS) for b in racks if rng.random() < 0.8} for a in racks}
    group = Group(Topology(brokers, topics), tuple(members), costs=rng.choice([{}, matrix]))
    options = Options(rng.choice(LOCALITY_MODES), max_skew=rng.choice([0, 1, 2]))
    # The oracle tries out the least loads of all sets of equals; with many sets that takes too long.
    puzzle = Puzzle.of(group, options)
    few = len(puzzle.equals) <= 2 and len(list(tries(puzzle))) <= MOST_TRIES
    return group, options if few else replace(options, max_skew=0)
