"""How evenly each topic is spread over its readers, where nothing else decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from rackassign.model import Broker, Group, Member, Partition, Partitions, Topology
from rackassign.solver import SolveBudget, solve, spread_topics
from rackassign.solver.network_flow import Ints
from rackassign.strategies import Options, plan_cooperative
from rackassign.strategies.indexed_group import IndexedGroup

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("abcabc"))


def topics(sizes: Sequence[int], dice: random.Random, copies: int) -> Topology:
    def partition() -> Partition:
        replicas = tuple(dice.sample(range(len(BROKERS)), copies))
        return Partition(replicas, replicas[0])

    return Topology(BROKERS, {f"t{i}": tuple(partition() for _ in range(size)) for i, size in enumerate(sizes)})


def joined_one_by_one(topology: Topology, racks: Sequence[str | None], options: Options) -> list[dict[str, Partitions]]:
    """Return the assignment after each join."""
    assignments: list[dict[str, Partitions]] = []
    owned: dict[str, Partitions] = {}
    for joined in range(1, len(racks) + 1):
        members = (
            Member(f"m{i}", frozenset(topology.topics), racks[i], owned=owned.get(f"m{i}", {}), generation=joined)
            for i in range(joined)
        )
        owned = dict(plan_cooperative(Group(topology, tuple(members)), options).target)
        assignments.append(owned)
    return assignments


def spread(assignment: dict[str, Partitions], topic: str) -> int:
    counts = [len(owned.get(topic, ())) for owned in assignment.values()]
    return max(counts) - min(counts)


@pytest.mark.parametrize(("sizes", "members", "most"), [((12, 12), 3, 0), ((18, 18), 9, 2), ((12,) * 5, 7, 1)])
def test_members_that_join_one_by_one_share_each_topic(sizes: tuple[int, ...], members: int, most: int) -> None:
    """KAFKA-16277: without this the first member keeps all of the first topic, and the last gets all of the last."""
    topology = topics(sizes, random.Random(1), 6)
    last = joined_one_by_one(topology, [None] * members, Options())[-1]
    assert max(spread(last, topic) for topic in topology.topics) <= most


@pytest.mark.parametrize("racks", ["abc", "abcabcabc", "abcabca"])
def test_with_racks_too_all_read_all_topics(racks: str) -> None:
    for seed in range(10):
        topology = topics([12, 12], random.Random(seed), 2)
        last = joined_one_by_one(topology, racks, Options())[-1]
        assert max(spread(last, topic) for topic in topology.topics) <= 3


def test_topics_of_different_sizes_are_given_up_in_proportion() -> None:
    topology = topics([30, 6], random.Random(1), 6)
    first, second = joined_one_by_one(topology, [None, None], Options())
    assert {topic: len(ids) for topic, ids in first["m0"].items()} == {"t0": 30, "t1": 6}
    assert [Counter({t: len(ids) for t, ids in owned.items()}) for owned in second.values()] == [
        Counter(t0=15, t1=3),
        Counter(t0=15, t1=3),
    ]


def random_group(dice: random.Random) -> Group:
    """Return a group with owners at random, and some members with subscriptions of their own."""
    topology = topics([dice.choice([1, 2, 5, 9]) for _ in range(dice.randint(2, 5))], dice, dice.choice([1, 2, 3]))
    names = list(topology.topics)
    owned: list[dict[str, list[int]]] = [{} for _ in range(dice.randint(2, 6))]
    for topic, partitions in topology.topics.items():
        for partition in range(len(partitions)):
            if dice.random() < 0.7:
                dice.choice(owned).setdefault(topic, []).append(partition)
    members = (
        Member(
            f"m{i}",
            frozenset(names if dice.random() < 0.6 else dice.sample(names, dice.randint(1, len(names)))),
            dice.choice(["a", "b", "c", None]),
            owned={topic: tuple(ids) for topic, ids in claims.items()},
            generation=3,
        )
        for i, claims in enumerate(owned)
    )
    return Group(topology, tuple(members))


def test_nothing_else_becomes_worse() -> None:
    better = 0
    for seed in range(300):
        dice = random.Random(seed)
        indexed = IndexedGroup.of(random_group(dice), dice.choice(["any-replica", "any-replica", "leader"]))
        problem = indexed.to_problem()
        before = solve(problem, max_skew=dice.choice([0, 0, 2]), work=SolveBudget(40_000)).assignment
        after = spread_topics(problem, before, SolveBudget(40_000))
        members = len(problem.subscription_class)
        assert np.array_equal(np.bincount(after, minlength=members), np.bincount(before, minlength=members))
        assert problem.cost_of(after) == problem.cost_of(before)
        assert problem.tie_cost_of(after) == problem.tie_cost_of(before)
        assert indexed.claims.moved(after) == indexed.claims.moved(before)
        subscribed = [member.topics for member in indexed.members]
        assert all(
            indexed.topics[topic] in subscribed[member]
            for topic, member in zip(indexed.topic_of.tolist(), after.tolist(), strict=True)
        )
        gain = squares(indexed.topic_of, before) - squares(indexed.topic_of, after)
        assert gain >= 0
        better += gain > 0
    assert better > 30


def squares(topic: Ints, reader: Ints) -> int:
    return sum(count**2 for count in Counter(zip(topic.tolist(), reader.tolist(), strict=True)).values())


def test_an_exhausted_budget_and_a_deadline_end_the_search() -> None:
    indexed = IndexedGroup.of(random_group(random.Random(3)), "any-replica")
    problem = indexed.to_problem()
    # All of the first topic with the first reader: as uneven as can be.
    reader = np.zeros(len(indexed.topic_of), np.int64)
    for work in (SolveBudget(0), SolveBudget(40_000, until=0.0)):
        assert np.array_equal(spread_topics(problem, reader, work), reader)
