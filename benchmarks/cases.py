"""Groups in the shape of Kafka's own benchmark of client-side assignors, and the shapes it leaves out.

Three brokers on three racks, replicas of partition p on brokers p, p+1, .. (mod 3), members on the racks in turn.
Kafka's benchmark has 3 replicas on 3 racks only, where every partition is near everybody and racks are never looked
at; here 1 and 2 replicas are measured too. Its groups that one member joins measure the group before the join (it
builds the joined one and does not use it), and claim without a generation, which no consumer does; here the joined
group is measured, and what its members own they claim in the generation that gave it to them.

The cases are groups with a strategy, its options and their targets.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, get_args

from rackassign.model import BalanceMode, Broker, Group, Member, Partition, Partitions, Plan, Topology
from rackassign.strategies import STRATEGIES, Options

RACKS = 3
GENERATION = 7
"""In which members were given what they own."""

Subscriptions = Literal["same", "five buckets", "own 30 %", "own 3 %"]
"""Everybody reads all topics; each fifth of the members its own fifth of them; each member its own random share."""

SHARE_READ: Mapping[Subscriptions, float] = {"own 30 %": 0.3, "own 3 %": 0.03}
"""Share of the topics that a member reads, where each has a subscription of its own."""

Owners = Literal["none", "all but one", "at random"]
"""Nobody owns anything; the last member has just joined a group that had been planned without it; every partition is
owned by any one of its readers."""

OWNERS: Mapping[Owners, str] = {"none": "fresh", "all but one": "one joining", "at random": "random"}
"""What tables call them."""

Planner = Callable[[Group], Plan]


@dataclass(frozen=True, slots=True)
class Shape:
    """A group to be measured."""

    members: int
    # How many in all, before division leaves a rest.
    partitions: int
    topics: int
    replicas: int
    subscriptions: Subscriptions = "same"
    owners: Owners = "none"
    different_sizes: bool = False
    copartitioned: bool = False
    weighted: bool = False

    def __str__(self) -> str:
        """Members / partitions / topics, and what is special but the replicas."""
        special = ["topics of different sizes"] * self.different_sizes
        special += [self.subscriptions] * (self.subscriptions != "same")
        special += ["co-partitioned"] * self.copartitioned + ["weights"] * self.weighted
        return ", ".join([f"{self.members:,} / {sum(self.sizes()):,} / {self.topics:,}", *special])

    def sizes(self) -> list[int]:
        """Return the number of partitions of each topic."""
        mean = self.partitions // self.topics
        spread = self.topics // 2 if self.different_sizes else 0
        return [mean - spread + i if self.different_sizes else mean for i in range(self.topics)]

    def group(self, plan: Planner) -> Group:
        """Make the group; equal replica lists and equal subscriptions are one object each, as in a warm client."""
        brokers = tuple(Broker(i, f"rack{i}") for i in range(RACKS))
        rows = [Partition(tuple((p + j) % RACKS for j in range(self.replicas)), p) for p in range(RACKS)]
        topics = {f"topic{i}": tuple(rows[p % RACKS] for p in range(n)) for i, n in enumerate(self.sizes())}
        read = self._read(list(topics))
        members = tuple(Member(f"member{i}", read[i], rack=f"rack{i % RACKS}") for i in range(self.members))
        fresh = Group(Topology(brokers, topics), members)
        if self.copartitioned:
            names = sorted(topics)
            pairs = zip(names[::2], names[1::2], strict=False)
            fresh = replace(fresh, copartition=tuple(pairs))
        if self.weighted:
            chance = random.Random(self.partitions)
            weights = {topic: tuple(chance.lognormvariate(0, 1) for _ in row) for topic, row in topics.items()}
            fresh = replace(fresh, weights=weights)
        if self.owners == "none":
            return fresh
        if self.owners == "at random":
            return _owned_at_random(fresh)
        *others, joining = members
        owned = plan(replace(fresh, members=tuple(others))).target
        return replace(fresh, members=(*(_owning(member, owned[member.id]) for member in others), joining))

    def _read(self, topics: list[str]) -> list[frozenset[str]]:
        if self.subscriptions in SHARE_READ:
            chance = random.Random(self.members)
            count = round(len(topics) * SHARE_READ[self.subscriptions])
            return [frozenset(chance.sample(topics, count)) for _ in range(self.members)]
        buckets = 1 if self.subscriptions == "same" else 5
        topics_each, members_each = -(-len(topics) // buckets), -(-self.members // buckets)
        read = [frozenset(topics[b * topics_each : (b + 1) * topics_each]) for b in range(buckets)]
        return [read[i // members_each] for i in range(self.members)]


def _owned_at_random(fresh: Group) -> Group:
    chance = random.Random(len(fresh.members))
    readers: dict[str, list[str]] = {topic: [] for topic in fresh.topology.topics}
    for member in fresh.members:
        for topic in sorted(member.topics):
            readers[topic].append(member.id)
    owned: dict[str, dict[str, list[int]]] = {member.id: {} for member in fresh.members}
    for topic, partitions in fresh.topology.topics.items():
        for partition in range(len(partitions)):
            owned[chance.choice(readers[topic])].setdefault(topic, []).append(partition)
    members = (_owning(m, {topic: tuple(ids) for topic, ids in owned[m.id].items()}) for m in fresh.members)
    return replace(fresh, members=tuple(members))


def _owning(member: Member, owned: Partitions) -> Member:
    return replace(member, owned=owned, generation=GENERATION)


StrategyName = Literal["range", "cooperative-sticky"]

FASTER_FROM = 5_000
"""Partitions from which Java is to be slower."""

GENERAL_RATIO = 10
"""Times slower that Java is to be where its general builder runs with racks."""


@dataclass(frozen=True, slots=True)
class Case:
    """A strategy and a group."""

    strategy: StrategyName
    shape: Shape
    # What ours is to take at most; None if nothing is said of it.
    seconds: float | None = None
    # What a process that does nothing else may need at its peak, the group itself included.
    megabytes: int | None = None
    balance: BalanceMode = "total"
    asks_java: bool = True

    def __str__(self) -> str:
        """All that tells it from other cases."""
        owners = {"none": "fresh", "all but one": "one joining", "at random": "owners at random"}
        balanced = ", each topic balanced" if self.balance == "topic" else ""
        return f"{self.strategy}, {self.shape}, RF {self.shape.replicas}, {owners[self.shape.owners]}{balanced}"

    @property
    def java_has_it(self) -> bool:
        """Whether Java's assignors have the same options, and are asked."""
        return self.asks_java and self.balance == "total" and not (self.shape.copartitioned or self.shape.weighted)

    @property
    def ratio(self) -> int | None:
        """How many times slower Java is to be; None if nothing is said of it."""
        if sum(self.shape.sizes()) < FASTER_FROM or not self.java_has_it:
            return None
        return GENERAL_RATIO if self.general_with_racks else 1

    @property
    def general_with_racks(self) -> bool:
        """Whether Java needs the slower of its two sticky builders, and looks at racks in it."""
        # With as many replicas as racks nothing is far from anybody, and Java leaves racks out.
        return self.strategy != "range" and self.shape.subscriptions != "same" and self.shape.replicas < 3

    @property
    def large(self) -> bool:
        """Whether its memory is worth a process of its own."""
        return self.shape.partitions >= 500_000

    def plan(self, group: Group) -> Plan:
        """Do what is measured."""
        return STRATEGIES[self.strategy](group, self._options())

    def _options(self) -> Options:
        return Options() if self.balance == "total" else Options(balance=self.balance)


def _range(
    members: int,
    partitions: int,
    topics: int,
    replicas: int,
    *,
    subscriptions: Subscriptions = "same",
    owners: Owners = "none",
    uneven: bool = False,
) -> Case:
    return Case("range", Shape(members, partitions, topics, replicas, subscriptions, owners, uneven))


def _cooperative(
    members: int,
    partitions: int,
    topics: int,
    replicas: int,
    *,
    subscriptions: Subscriptions = "same",
    owners: Owners = "none",
    seconds: float | None = None,
    megabytes: int | None = None,
) -> Case:
    shape = Shape(members, partitions, topics, replicas, subscriptions, owners)
    return Case("cooperative-sticky", shape, seconds, megabytes)


NAMED: tuple[Case, ...] = (
    # Members, partitions, topics, replicas.
    _range(100, 5_000, 10, 1),
    _range(1_000, 5_000, 100, 2),
    _range(1_000, 50_000, 100, 1),
    _range(1_000, 50_000, 100, 2, owners="all but one"),
    _range(1_000, 50_000, 100, 3),
    _range(1_000, 50_000, 100, 1, subscriptions="five buckets"),
    _range(1_000, 50_000, 100, 1, uneven=True),
    _range(10_000, 50_000, 1_000, 1),
    _cooperative(100, 500, 10, 1),
    _cooperative(100, 5_000, 10, 1),
    _cooperative(100, 5_000, 10, 1, owners="all but one"),
    _cooperative(1_000, 10_000, 100, 1),
    _cooperative(1_000, 50_000, 100, 1, seconds=0.1),
    _cooperative(1_000, 50_000, 100, 2, seconds=0.1),
    _cooperative(1_000, 50_000, 100, 2, owners="all but one", seconds=0.1),
    _cooperative(1_000, 50_000, 100, 3, owners="all but one", seconds=0.1),
    _cooperative(10_000, 50_000, 1_000, 2),
    _cooperative(100, 5_000, 10, 1, subscriptions="five buckets"),
    _cooperative(1_000, 10_000, 100, 1, subscriptions="five buckets"),
    _cooperative(1_000, 10_000, 100, 2, subscriptions="five buckets", owners="all but one"),
    _cooperative(1_000, 50_000, 100, 1, subscriptions="five buckets", seconds=0.1),
    _cooperative(1_000, 50_000, 100, 2, subscriptions="five buckets", seconds=0.1),
    _cooperative(1_000, 50_000, 100, 1, subscriptions="five buckets", owners="all but one", seconds=0.1),
)
"""Out of the grid of Kafka's own benchmark, but for the topics of different sizes."""

BEYOND: tuple[Case, ...] = (
    _cooperative(10_000, 500_000, 100, 2, seconds=2, megabytes=1_000),
    _cooperative(10_000, 500_000, 100, 1, owners="all but one", seconds=2, megabytes=1_000),
    _cooperative(
        10_000, 500_000, 100, 2, subscriptions="five buckets", owners="all but one", seconds=2, megabytes=1_000
    ),
    _cooperative(2_000, 1_000_000, 500, 1, seconds=5),
    _cooperative(2_000, 1_000_000, 500, 2, owners="all but one", seconds=5),
    _cooperative(1_000, 50_000, 100, 1, subscriptions="own 30 %", seconds=4),
    _cooperative(1_000, 50_000, 100, 1, subscriptions="own 30 %", owners="all but one", seconds=4),
    _cooperative(1_000, 50_000, 100, 1, subscriptions="own 30 %", owners="at random", seconds=4),
    _cooperative(1_000, 50_000, 100, 2, subscriptions="own 30 %", owners="at random", seconds=4),
)
"""The largest groups, and the hardest: a subscription of its own for each member."""

_HARDEST: tuple[tuple[tuple[int, int, int], Subscriptions, int], ...] = (
    ((10_000, 50_000, 1_000), "own 3 %", 5),
    ((3_000, 50_000, 1_000), "own 30 %", 3),
)
"""Members, partitions and topics, subscriptions, and seconds."""

BOUNDED: tuple[Case, ...] = tuple(
    Case("cooperative-sticky", Shape(*sizes, replicas, kind, owners, weighted=weighted), seconds, asks_java=False)
    for weighted in (False, True)
    for sizes, kind, seconds in _HARDEST
    for replicas in (1, 2)
    for owners in get_args(Owners)
)
"""Groups for which the budget of a plan exists. For smaller ones of their kind Java takes more than we wait."""

OPTIONS: tuple[Case, ...] = tuple(
    Case(
        "cooperative-sticky",
        replace(shape, owners=owners, copartitioned=option == "copartition", weighted=option == "weights"),
        balance="topic" if option == "balance" else "total",
    )
    for option in ("balance", "copartition", "weights")
    for shape in (Shape(100, 5_000, 10, 2), Shape(1_000, 50_000, 100, 2))
    for owners in get_args(Owners)
)
"""Options that Java lacks: each topic balanced first, co-partitioned topics, two and two, and weights."""

QUICK: tuple[Case, ...] = (
    _range(20, 200, 10, 2, uneven=True),
    _cooperative(20, 200, 5, 1, owners="all but one"),
    _cooperative(20, 200, 10, 1, subscriptions="five buckets"),
    _cooperative(20, 200, 10, 1, subscriptions="own 30 %", owners="at random"),
    Case("cooperative-sticky", Shape(20, 200, 10, 2, owners="all but one", copartitioned=True)),
    Case("cooperative-sticky", Shape(20, 200, 10, 2, owners="all but one"), balance="topic"),
    Case("cooperative-sticky", Shape(20, 200, 10, 2, owners="all but one", weighted=True)),
)


def grid() -> Iterator[Case]:
    """Yield the whole grid of Kafka's benchmark, with 1, 2 and 3 replicas, small groups first."""
    strategies: tuple[StrategyName, ...] = get_args(StrategyName)
    kinds: tuple[Subscriptions, ...] = ("same", "five buckets")
    owners: tuple[Owners, ...] = ("none", "all but one")
    for members, each in product((100, 500, 1_000, 5_000, 10_000), (5, 10, 50)):
        for topics, replicas, subscriptions, owned in product((10, 100, 1_000), (1, 2, 3), kinds, owners):
            if members * each < topics:
                # Kafka's divides down to topics without partitions.
                continue
            for strategy in strategies:
                yield Case(strategy, Shape(members, members * each, topics, replicas, subscriptions, owned))


def shapes_by_owners(sizes: Iterable[tuple[int, int, int]], only: str) -> Iterator[Shape]:
    """Yield groups of these members, partitions and topics with one replica, for each kind of owners."""
    # `only`: a part of the name that a table gives the group, which is left out otherwise.
    for size, owners in product(sizes, OWNERS):
        shape = Shape(*size, 1, owners=owners)
        if only in f"{shape}, {OWNERS[owners]}":
            yield shape
