"""The exact placer and `rebalance`: figures, rules, and that no order of the input plays a part.

Placers that place as Elasticsearch, HDFS and Redis do.

Leaders evened where no replica moves.

Layouts as JSON.

Figures of a layout.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples.placers import FreeSpacePlacer, NewBrokersFirstPlacer
from rackassign.errors import ConfigError, InputError
from rackassign.model import Broker, TopicPartition
from rackassign.placement import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    Layout,
    LayoutMetrics,
    OptimalPlacer,
    PlacementConstraints,
    ReplicaPlacementError,
    load_placer,
    rebalance,
)
from rackassign.placement.optimal_placer import rebalance_leaders
from rackassign.placement.placer import ReplicaPlacer
from tests.helpers.examples import examples
from tests.helpers.generators.layouts import after, brokers_in, placed, random_layout


def test_leaders_do_not_resonate_with_racks() -> None:
    brokers = brokers_in(3, 3, 3)
    assert LayoutMetrics.of(placed("striped", brokers, 9, 3)).leaders_per_broker == 3.0
    quality = LayoutMetrics.of(placed("optimal", brokers, 9, 3))
    assert (quality.leaders_per_broker, quality.replicas_per_broker, quality.sharing) == (1.0, 1.0, 0)


def test_the_only_broker_of_a_rack_gets_its_share_and_no_more() -> None:
    brokers = brokers_in(10, 10, 1)
    assert LayoutMetrics.of(placed("striped", brokers, 63, 2)).replicas_per_broker == 7.0
    quality = LayoutMetrics.of(placed("optimal", brokers, 63, 2))
    assert (quality.leaders_per_broker, quality.replicas_per_broker, quality.sharing) == (1.0, 1.0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_racks_are_made_distinct_with_the_fewest_moves(seed: int) -> None:
    found, quality = after(random_layout(brokers_in(3, 3, 3), 600, 3, seed))
    assert found.proven
    assert found.moved == found.lower_bound
    assert (quality.sharing, quality.replicas_per_broker) == (0, 1.0)


def test_a_new_rack_is_filled_with_the_fewest_moves() -> None:
    old = rebalance(random_layout(brokers_in(3, 3, 3), 600, 3, 1)).topics
    found, quality = after(Layout(tuple(brokers_in(3, 3, 3, 3)), old))
    assert found.proven
    assert found.moved == found.lower_bound == 450
    assert (quality.sharing, quality.replicas_per_broker) == (0, 1.0)


def test_only_what_a_lost_broker_had_moves() -> None:
    old = rebalance(random_layout(brokers_in(3, 3, 3), 600, 3, 1)).topics
    found, quality = after(Layout(tuple(brokers_in(3, 3, 2)), old))
    assert found.proven
    assert found.moved == found.lower_bound == 200
    # The two of rack c have a copy of everything between them.
    assert (quality.sharing, round(quality.replicas_per_broker, 2)) == (0, 1.33)


def test_more_replicas_move_none_and_keep_leaders() -> None:
    old = rebalance(random_layout(brokers_in(3, 3, 3), 600, 1, 1), PlacementConstraints(coverage="even"))
    layout = Layout(tuple(brokers_in(3, 3, 3)), old.topics)
    found, quality = after(layout, replication_factor=3)
    assert found.moved == found.lower_bound == 1200
    assert [replicas[0] for replicas in found.topics["t000"]] == [replicas[0] for replicas in old.topics["t000"]]
    assert (quality.replicas_per_broker, quality.sharing) == (1.0, 0)
    fewer, quality = after(layout.with_topics(found.topics), replication_factor={"t000": 2})
    assert fewer.moved == 0
    assert (round(quality.replicas_per_broker, 2), quality.replicas) == (1.0, 1200)


def test_moves_first_moves_only_what_the_rules_ask_for() -> None:
    old = rebalance(random_layout(brokers_in(3, 3, 3), 90, 3, 1)).topics
    few, _ = after(Layout(tuple(brokers_in(3, 3, 3, 3)), old), PlacementConstraints(first="moves"))
    assert few.proven
    assert few.moved == 0
    shared = random_layout(brokers_in(4, 3, 2), 100, 3, 4)
    few, quality = after(shared, PlacementConstraints(first="moves"))
    assert few.moved == few.lower_bound
    assert quality.sharing == 0


def test_brokers_that_are_excluded_lose_what_they_have() -> None:
    layout = rebalance(random_layout(brokers_in(3, 3, 3), 90, 2, 1)).topics
    found, _ = after(Layout(tuple(brokers_in(3, 3, 3)), layout), PlacementConstraints(exclude=frozenset({4})))
    assert found.moved == 20
    assert all(4 not in replicas for replicas in found.topics["t000"])


def test_fenced_brokers_keep_what_they_have_but_do_not_lead() -> None:
    layout = rebalance(random_layout(brokers_in(2, 2, 2), 60, 2, 1)).topics
    brokers = [Broker(b.id, b.rack, fenced=b.id == 3) for b in brokers_in(2, 2, 2)]
    found, _ = after(Layout(tuple(brokers), layout))
    assert found.moved == 0
    assert sum(3 in replicas for replicas in found.topics["t000"]) == 20
    assert all(replicas[0] != 3 for replicas in found.topics["t000"])


@pytest.mark.parametrize("first", ["moves", "coverage"])
def test_where_the_rules_ask_for_nothing_fenced_brokers_keep_all_and_nothing_moves(first: Any) -> None:
    layout = rebalance(random_layout(brokers_in(2, 2, 2), 60, 2, 1, topics=3)).topics
    brokers = [Broker(b.id, b.rack, fenced=b.id in {3, 5}) for b in brokers_in(2, 2, 2)]
    weights = {1: 5.0, 3: 9.0}
    full = {**layout, "other": ((3, 1), (3, 1), (5, 2))}
    found, _ = after(Layout(tuple(brokers), full, weights), PlacementConstraints(first=first), topics=sorted(layout))
    assert (found.proven, found.moved) == (True, 0)
    for topic, lists in found.topics.items():
        for own, had in zip(lists, layout[topic], strict=True):
            assert set(own) == set(had)
            assert own[0] not in {3, 5} or set(own) == {3, 5}


def test_fenced_brokers_get_nothing_while_another_is_emptied() -> None:
    layout = rebalance(random_layout(brokers_in(3, 3, 3), 90, 2, 1)).topics
    brokers = [Broker(b.id, b.rack, fenced=b.id == 3) for b in brokers_in(3, 3, 3)]
    found, _ = after(Layout(tuple(brokers), layout), PlacementConstraints(first="moves", exclude=frozenset({4})))
    assert found.proven
    assert found.moved == found.lower_bound == 20
    for own, had in zip(found.topics["t000"], layout["t000"], strict=True):
        assert (3 in own) == (3 in had)
        assert own[0] != 3


@pytest.mark.parametrize("first", ["balance", "moves"])
def test_brokers_without_new_replicas_keep_what_they_have_and_lead(first: Any) -> None:
    layout = rebalance(random_layout(brokers_in(3, 3, 3), 90, 2, 1)).topics
    rules = PlacementConstraints(first=first, exclude=frozenset({4}), no_new_replicas=frozenset({3}))
    found, _ = after(Layout(tuple(brokers_in(3, 3, 3)), layout), rules)
    assert found.proven
    assert found.moved == found.lower_bound == 20
    assert [3 in own for own in found.topics["t000"]] == [3 in had for had in layout["t000"]]
    assert sum(own[0] == 3 for own in found.topics["t000"]) in {10, 11, 12}
    placer = OptimalPlacer()
    placer.configure({"no_new_replicas": [3]})
    new = placer.place(0, 90, 2, brokers_in(3, 3, 3))
    assert {broker for own in new for broker in own} == {1, 2, 4, 5, 6, 7, 8, 9}


@pytest.mark.parametrize("first", ["balance", "moves"])
def test_with_fewer_replicas_those_on_fenced_brokers_go_first(first: Any) -> None:
    brokers = (Broker(1, "a", fenced=True), Broker(2, "b"), Broker(3, "c"))
    lists = ((1, 2), (2, 1), (1, 3), (3, 1)) * 3
    found, _ = after(Layout(brokers, {"t": lists}), PlacementConstraints(first=first), replication_factor=1)
    assert found.moved == 0
    assert all(own != (1,) for own in found.topics["t"])


def test_partitions_may_have_a_replication_factor_of_their_own() -> None:
    layout = Layout(tuple(brokers_in(1, 1, 1)), {"t": ((1, 2), (2, 3), (3, 1)), "u": ((1,), (2,))})
    wanted = {"t": 1, TopicPartition("t", 2): 3, TopicPartition("u", 1): 2}
    found, _ = after(layout, replication_factor=wanted)
    assert {topic: [len(own) for own in lists] for topic, lists in found.topics.items()} == {
        "t": [1, 1, 3],
        "u": [1, 2],
    }
    by_partition = {TopicPartition("u", 0): 3}
    assert [len(own) for own in rebalance(layout, replication_factor=by_partition).topics["u"]] == [3, 1]
    with pytest.raises(ConfigError, match='partition 2 of topic "u" does not exist'):
        rebalance(layout, replication_factor={TopicPartition("u", 2): 1})
    with pytest.raises(ConfigError, match='topic "v" does not exist'):
        rebalance(layout, replication_factor={"v": 1})


def test_only_the_topics_asked_for_move_and_the_others_count() -> None:
    full = {"old": tuple((broker,) for broker in (1, 2, 3) for _ in range(10)), "new": ((1,), (1,), (1,), (2,))}
    layout = Layout(tuple(brokers_in(1, 1, 1, 1)), full)
    found, _ = after(layout, topics=["new"])
    assert found.topics == {"new": ((4,), (4,), (4,), (4,))}
    even, _ = after(layout, PlacementConstraints(first="topic"), topics=["new"])
    assert sorted(even.topics["new"]) == [(1,), (2,), (3,), (4,)]


def test_what_is_there_counts_for_what_is_new() -> None:
    brokers = brokers_in(2, 2)
    layout = Layout(tuple(brokers), {"old": ((1, 3), (1, 3), (1, 3))})
    lists = load_placer("optimal", {"layout": layout}).place(0, 3, 2, brokers)
    assert sorted(tuple(sorted(replicas)) for replicas in lists) == [(2, 4)] * 3


def test_racks_get_copies_where_readers_stand() -> None:
    brokers = brokers_in(2, 2, 2)
    lists = load_placer("optimal", {"coverage": {"a": 0.6, "b": 0.3, "c": 0.1}}).place(0, 100, 1, brokers)
    racks = {broker.id: broker.rack for broker in brokers}
    assert Counter(racks[replicas[0]] for replicas in lists) == {"a": 60, "b": 30, "c": 10}
    none_in_c = load_placer("optimal", {"coverage": {"a": 1, "b": 1}}).place(0, 100, 2, brokers)
    assert {racks[broker] for replicas in none_in_c for broker in replicas} == {"a", "b"}
    even = load_placer("optimal", {"coverage": "even"}).place(0, 60, 1, brokers_in(4, 1, 1))
    assert Counter(replicas[0] for replicas in even) == {1: 5, 2: 5, 3: 5, 4: 5, 5: 20, 6: 20}


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 1, "z": 5}])
def test_replicas_come_to_where_readers_stand_with_the_fewest_moves(weights: dict[str, float]) -> None:
    brokers = brokers_in(2, 2, 2)
    racks = {broker.id: broker.rack for broker in brokers}
    lists = ((1, 3), (2, 5), (6, 4), (5, 1), (1, 2), (3, 2), (6, 3), (4, 3))
    layout = Layout(tuple(brokers), {"t": lists})
    found, _ = after(layout, PlacementConstraints(coverage=weights, first="coverage"))
    assert [sorted(racks[broker] or "" for broker in own) for own in found.topics["t"]] == [["a", "b"]] * 8
    assert found.proven
    assert found.moved == sum(sorted(racks[broker] or "" for broker in own) != ["a", "b"] for own in lists)
    # With moves first only what shares a rack moves.
    assert rebalance(layout, PlacementConstraints(coverage=weights, first="moves")).moved == 2


def test_coverage_by_unequal_weights_comes_before_moves() -> None:
    brokers, weights = brokers_in(2, 2, 2), {"a": 3.0, "b": 1.0, "c": 1.0}
    racks = {broker.id: broker.rack for broker in brokers}
    for factor, in_rack in (
        (1, {"a": 12, "b": 4, "c": 4}),
        (2, {"a": 20, "b": 10, "c": 10}),
        (3, dict.fromkeys("abc", 20)),
    ):
        held = rebalance(random_layout(brokers, 20, factor, 3)).topics
        before = Counter(racks[broker] for own in held["t000"] for broker in own)
        found, quality = after(Layout(tuple(brokers), held), PlacementConstraints(coverage=weights, first="coverage"))
        assert Counter(racks[broker] for own in found.topics["t000"] for broker in own) == in_rack
        assert found.moved == sum(max(0, count - before[rack]) for rack, count in in_rack.items())
        assert (found.proven, quality.sharing) == (True, 0)


@pytest.mark.parametrize("weights", ["broker", {}, {"z": 1.0}, {"a": 0.0, "b": 0.0}])
def test_coverage_that_says_nothing_of_these_racks_leaves_moves_first(weights: Any) -> None:
    layout = random_layout(brokers_in(3, 2, 2), 40, 2, 7)
    found = rebalance(layout, PlacementConstraints(coverage=weights, first="coverage"))
    assert found.proven
    assert found == rebalance(layout, PlacementConstraints(first="moves"))


def test_weights_say_how_much_brokers_carry() -> None:
    layout = placed("optimal", brokers_in(2, 2), 120, 1, weights={"1": 3, 2: 1.0})
    assert Counter(replicas[0] for replicas in layout.topics["t"]) == {1: 60, 2: 20, 3: 20, 4: 20}


@pytest.mark.parametrize(("goal", "broker", "rack"), [("broker", 1.0, 1.5), ("rack", 2.0, 1.0), ("mixed", 1.2, 1.35)])
def test_leaders_are_even_by_broker_or_by_rack(goal: str, broker: float, rack: float) -> None:
    quality = LayoutMetrics.of(placed("optimal", brokers_in(3, 2, 1), 60, 3, leaders=goal))
    assert (quality.leaders_per_broker, quality.leaders_per_rack) == (broker, rack)


def test_leaders_stand_in_the_racks_asked_for() -> None:
    brokers = brokers_in(2, 2, 2)
    lists = load_placer("optimal", {"leader_racks": ["b"]}).place(0, 20, 2, brokers)
    assert Counter(replicas[0] for replicas in lists) == {3: 10, 4: 10}
    with pytest.raises(ReplicaPlacementError, match="no rack in which leaders must be"):
        load_placer("optimal", {"leader_racks": ["z"]}).place(0, 20, 2, brokers)


def test_fenced_brokers_are_used_only_where_there_are_too_few_others() -> None:
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "c", fenced=True)]
    assert {b for replicas in OptimalPlacer().place(0, 6, 2, brokers) for b in replicas} == {1, 2}
    for replicas in OptimalPlacer().place(0, 6, 3, brokers):
        assert sorted(replicas) == [1, 2, 3]
        assert replicas[0] != 3
    with pytest.raises(InvalidReplicationFactorError, match="All brokers are currently fenced"):
        OptimalPlacer().place(0, 6, 1, [Broker(1, "a", fenced=True)])


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="4 larger than the 3 usable brokers"):
        OptimalPlacer().place(0, 1, 4, brokers_in(1, 1, 1))
    with pytest.raises(InvalidReplicationFactorError, match="larger than 0"):
        OptimalPlacer().place(0, 1, 0, brokers_in(1, 1, 1))
    with pytest.raises(InvalidPartitionsError):
        OptimalPlacer().place(0, 0, 1, brokers_in(1, 1, 1))
    with pytest.raises(InvalidReplicationFactorError, match="There are no brokers"):
        OptimalPlacer().place(0, 1, 1, [])


def test_brokers_without_a_rack_among_others_are_refused_or_a_rack_of_their_own() -> None:
    brokers = [*brokers_in(2, 2), Broker(9)]
    with pytest.raises(ReplicaPlacementError, match="Not all brokers have rack information: brokers 9 have none"):
        OptimalPlacer().place(0, 4, 2, brokers)
    lists = load_placer("optimal", {"rackless": "rack"}).place(0, 4, 3, brokers)
    assert all(9 in replicas for replicas in lists)
    without = OptimalPlacer().place(0, 6, 2, [Broker(i) for i in range(3)])
    assert Counter(b for replicas in without for b in replicas) == {0: 4, 1: 4, 2: 4}


def test_placeholders_stand_for_what_has_no_broker() -> None:
    lists = load_placer("optimal", {"on_shortage": "placeholder"}).place(0, 2, 4, brokers_in(1, 1))
    assert [sorted(replicas) for replicas in lists] == [[-2, -1, 1, 2]] * 2
    assert all(replicas[2:] == [-1, -2] for replicas in lists)
    layout = Layout(tuple(brokers_in(1, 1))).with_topics({"t": lists})
    assert (LayoutMetrics.of(layout).missing, LayoutMetrics.of(layout).replicas) == (4, 4)
    # Once there are brokers they are what is new.
    found, _ = after(Layout(tuple(brokers_in(1, 1, 1, 1)), layout.topics), PlacementConstraints(first="moves"))
    assert found.moved == 4


EXAMPLES: dict[str, type[ReplicaPlacer]] = {"free-space": FreeSpacePlacer, "new-brokers-first": NewBrokersFirstPlacer}


def made(name: str, configs: dict[str, Any] | None = None) -> ReplicaPlacer:
    """Return a placer by its name, or one of the examples; errors of these are raised as they are."""
    if name not in EXAMPLES:
        return load_placer(name, configs)
    placer = EXAMPLES[name]()
    placer.configure(dict(configs or {}))
    return placer


def test_presets_that_know_of_nothing_say_so() -> None:
    for name, words in (("free-space", "free"), ("new-brokers-first", "known")):
        with pytest.raises(ConfigError, match=f"{name} needs a setting: {words}"):
            made(name).place(0, 1, 1, brokers_in(1, 1))
    with pytest.raises(ConfigError, match="free: nothing is said of broker 2"):
        made("free-space", {"free": {"1": 100}}).place(0, 1, 1, brokers_in(1, 1))


def test_new_brokers_are_filled_first_if_they_will_do() -> None:
    placer = made("new-brokers-first", {"known": [1, 2, 3, 4]})
    assert {b for own in placer.place(0, 6, 2, brokers_in(2, 2, 1, 1)) for b in own} == {5, 6}
    # All new ones are in one rack.
    assert all(len(set(own) & {5, 6}) <= 1 for own in placer.place(0, 6, 2, brokers_in(2, 2, 2)))


def test_room_on_disks_is_what_brokers_get() -> None:
    placer = made("free-space", {"free": {1: 400, 2: 100, 3: 100, 4: 5}, "least": 10})
    counts = Counter(b for own in placer.place(0, 60, 1, brokers_in(1, 1, 1, 1)) for b in own)
    assert counts == {1: 40, 2: 10, 3: 10}


@pytest.mark.parametrize(
    ("name", "configs", "words"),
    [
        ("optimal", {"max_per_rack": 0}, "max_per_rack: expected 1 or more"),
        ("optimal", {"max_per_rack": "odd"}, "max_per_rack: expected an integer"),
        ("optimal", {"min_racks": 3, "max_racks": 2}, "more than max_racks"),
        ("optimal", {"min_racks": True}, "min_racks: expected an integer"),
        ("optimal", {"leaders": "node"}, "leaders: expected broker, rack, mixed"),
        ("optimal", {"on_shortage": "ignore"}, "on_shortage: expected error, placeholder, relax"),
        ("optimal", {"first": "luck"}, "first: expected balance, moves, topic, coverage"),
        ("optimal", {"rackless": "guess"}, "rackless: expected refuse, rack"),
        ("optimal", {"coverage": "all"}, "coverage: expected"),
        ("optimal", {"coverage": 3}, "coverage: expected"),
        ("optimal", {"coverage": {"a": -1}}, "coverage.a: expected a finite number"),
        ("optimal", {"weights": {"1": 0}}, "weights.1: expected a finite number above 0"),
        ("optimal", {"weights": {"one": 1}}, "weights: expected a broker ID"),
        ("optimal", {"weights": [1]}, "weights: expected weights by broker"),
        ("optimal", {"exclude": "12"}, "exclude: expected a list"),
        ("optimal", {"exclude": ["1"]}, "exclude: expected broker IDs"),
        ("optimal", {"forced_racks": [1]}, "forced_racks: expected text"),
        ("optimal", {"forced_rakcs": ["a"]}, "unknown setting .*known are coverage, exclude"),
        ("optimal", {"layout": {}}, "layout: expected a Layout"),
        ("new-brokers-first", {"known": "1"}, "known: expected a list"),
        ("free-space", {"free": {"one": 3}}, "free: expected bytes by broker"),
        ("free-space", {"free": {1: -3}}, "free.1: expected bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, configs: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(name, configs)


def test_a_topic_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match='topic "t" does not exist'):
        rebalance(Layout(tuple(brokers_in(1))), topics=["t"])


# Few moves, said once more and partition by partition.


@st.composite
def wanted(draw: st.DrawFn) -> tuple[Layout, dict[TopicPartition, int], frozenset[int]]:
    """A layout with fenced brokers, how many replicas are wanted, and at most one broker that is to go."""
    racks = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
    fenced = draw(st.lists(st.integers(0, len(racks) - 1), max_size=2))
    brokers = tuple(Broker(n, rack, fenced=n in fenced) for n, rack in enumerate(racks))
    # Broker 9 is unknown.
    held = st.lists(st.sampled_from([*range(len(racks)), 9]), min_size=1, max_size=4, unique=True).map(tuple)
    layout = Layout(brokers, {"t": tuple(draw(st.lists(held, min_size=1, max_size=4)))})
    factors = {TopicPartition("t", n): draw(st.integers(1, 4)) for n in range(len(layout.topics["t"]))}
    return layout, factors, draw(st.one_of(st.just(frozenset()), st.integers(0, 5).map(lambda n: frozenset({n}))))


def usable(layout: Layout, had: tuple[int, ...], factor: int, exclude: frozenset[int]) -> tuple[list[int], list[int]]:
    """Who may have a partition, and who of those has it already and is not given up."""
    known = {broker.id: broker for broker in layout.brokers if broker.id not in exclude}
    kept = [n for n in had if n in known]
    dead = [n for n in kept if known[n].fenced]
    for n in dead[::-1][: max(0, len(kept) - factor)]:
        kept.remove(n)
    return [n for n, broker in known.items() if not broker.fenced or n in kept], kept


@settings(max_examples=examples(300), deadline=None)
@given(wanted())
def test_no_other_way_to_distinct_racks_moves_fewer(
    case: tuple[Layout, dict[TopicPartition, int], frozenset[int]],
) -> None:
    layout, factors, exclude = case
    racks = layout.racks()
    ways, fewest = [], 0
    for (_, number), factor in factors.items():
        may, kept = usable(layout, layout.topics["t"][number], factor, exclude)
        shapes = {own: sorted(Counter(racks[n] for n in own).values()) for own in combinations(may, factor)}
        even = min((shape[::-1] for shape in shapes.values()), default=[])
        ways.append({frozenset(own) for own, shape in shapes.items() if shape[::-1] == even})
        fewest += min((len(set(own) - set(kept)) for own in ways[-1]), default=0)
        if shapes:
            assert len(even) == min(factor, len({racks[n] for n in may}))
    rules = PlacementConstraints(first="moves", exclude=exclude)
    if not all(ways):
        with pytest.raises((ReplicaPlacementError, InvalidReplicationFactorError)):
            rebalance(layout, rules, replication_factor=factors)
        return
    assume(any(not broker.fenced and broker.id not in exclude for broker in layout.brokers))
    found = rebalance(layout, rules, replication_factor=factors)
    assert (found.proven, found.moved) == (True, fewest)
    assert found.lower_bound <= fewest
    assert all(frozenset(own) in sets for own, sets in zip(found.topics["t"], ways, strict=True))


# Same input, same answer.


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_no_order_of_the_input_plays_a_part(seed: int, order: random.Random) -> None:
    rng = random.Random(seed)
    brokers = brokers_in(*(rng.randint(1, 3) for _ in range(rng.randint(1, 4))))
    layout = random_layout(brokers, 24, min(len(brokers), rng.randint(1, 3)), seed, topics=4)
    rules = PlacementConstraints(weights={broker.id: rng.choice([1, 2]) for broker in brokers})
    mixed = Layout(
        tuple(order.sample(brokers, len(brokers))),
        dict(order.sample(sorted(layout.topics.items()), len(layout.topics))),
    )
    shuffled = PlacementConstraints(weights=dict(order.sample(sorted(rules.weights.items()), len(rules.weights))))
    assert rebalance(layout, rules) == rebalance(mixed, shuffled)
    assert rebalance_leaders(layout, rules) == rebalance_leaders(mixed, shuffled)
    placer = load_placer("optimal", {"layout": layout})
    other = load_placer("optimal", {"layout": mixed})
    assert placer.place(0, 5, 1, brokers) == other.place(0, 5, 1, mixed.brokers)


def test_the_answer_is_the_same_under_another_hash_seed() -> None:
    script = """
import json
from tests.helpers.generators.layouts import brokers_in, random_layout
from rackassign.placement import PlacementConstraints, load_placer, rebalance
found = rebalance(random_layout(brokers_in(3, 2, 4), 60, 3, 5, topics=6),
    PlacementConstraints(leader_racks=frozenset("abc")))
lists = [load_placer(name).place(0, 20, 3, brokers_in(3, 2, 4)) for name in ("optimal", "hadoop", "striped", "kafka")]
print(json.dumps([found.topics, lists], sort_keys=True))
"""
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(answers) == 1
    assert len(answers.pop()) > 100


def test_a_placement_without_a_solver_is_valid_and_says_so() -> None:
    layout = random_layout(brokers_in(3, 3, 3), 90, 3, 1)
    found, quality = after(layout, PlacementConstraints(work=0))
    assert not found.proven
    assert "the budget of the plan is used up" in found.notes
    assert quality.sharing == 0
    assert quality.replicas_per_broker < 1.2
    assert LayoutMetrics.of(placed("optimal", brokers_in(3, 3, 3), 90, 3, work=0)).sharing == 0


@pytest.mark.release
def test_leaders_are_proven_only_where_no_replicas_let_them_be_more_even() -> None:
    said = 0
    for seed in range(60):
        rng = random.Random(seed)
        racks = [rng.choice("abc") for _ in range(18)]
        lists = tuple(tuple(rng.sample(range(18), 3)) for _ in range(18))
        found = rebalance(Layout(tuple(Broker(i, rack) for i, rack in enumerate(racks)), {"t": lists}))
        leading = Counter(row[0] for row in found.topics["t"])
        assert found.proven
        assert found.leaders_proven == (set(leading.values()) == {1})
        said += found.leaders_proven
    # Who never says anything is never wrong.
    assert said > 50


def test_forced_awareness_leaves_room_for_the_rack_that_is_down() -> None:
    lists = load_placer("elasticsearch", {"forced_racks": ["a", "b"]}).place(0, 8, 4, brokers_in(4))
    assert all(sum(broker >= 0 for broker in replicas) == 2 for replicas in lists)
    whole = load_placer("elasticsearch", {"forced_racks": ["a", "b"]}).place(0, 8, 4, brokers_in(4, 2))
    assert all(sum(broker > 4 for broker in replicas) == 2 for replicas in whole)


@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (3, 3), (4, 1), (6,), (1, 1, 1, 1, 1), (2, 1, 1, 1)])
@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5])
def test_hadoop_limits_a_rack_as_hdfs_does_and_has_two_share_one(replicas: int, sizes: tuple[int, ...]) -> None:
    brokers = brokers_in(*sizes)
    racks = {broker.id: broker.rack for broker in brokers}
    # BlockPlacementPolicyDefault.getMaxNodesPerRack.
    most = replicas if len(sizes) == 1 or replicas == 1 else (replicas - 1) // len(sizes) + 2
    most -= most == replicas > 1 and len(sizes) > 1
    for own in load_placer("hadoop").place(0, 24, replicas, brokers):
        used = Counter(racks[broker] for broker in own)
        assert len(own) == len(set(own)) == replicas
        assert max(used.values()) <= most
        assert len(used) >= min(2, replicas, len(sizes))
        if replicas > 2 and sizes == (3, 3, 3, 3):
            assert len(used) < replicas


def test_elasticsearch_leaves_out_what_a_small_rack_cannot_take_and_nodes_without_the_attribute() -> None:
    for own in load_placer("elasticsearch").place(0, 8, 4, brokers_in(1, 3)):
        assert sum(broker < 0 for broker in own) == 1
        assert sum(broker > 1 for broker in own) == 2
    some = [*brokers_in(2, 2), Broker(9, None)]
    assert all(set(own) <= {1, 2, 3, 4} for own in load_placer("elasticsearch").place(0, 8, 4, some))


def test_elasticsearch_counts_racks_that_are_down_only_if_they_are_forced() -> None:
    brokers = [*brokers_in(2), Broker(3, "down", fenced=True), Broker(4, "down", fenced=True)]
    (racks,) = {broker.rack for broker in brokers[:2]}
    for own in load_placer("elasticsearch").place(0, 8, 2, brokers):
        assert set(own) == {1, 2}
    for own in load_placer("elasticsearch", {"forced_racks": [racks, "down"]}).place(0, 8, 2, brokers):
        assert sum(broker < 0 for broker in own) == 1


@pytest.mark.parametrize(
    ("placer", "settings"),
    [
        ("elasticsearch", {"max_per_rack": 2}),
        ("elasticsearch", {"on_shortage": "error"}),
        ("elasticsearch", {"rackless": "rack"}),
        ("hadoop", {"min_racks": 3, "max_racks": 3}),
        ("redis", {"max_per_rack": 2}),
        ("redis", {"on_shortage": "relax"}),
    ],
)
def test_settings_that_a_preset_determines_are_refused(placer: str, settings: dict[str, Any]) -> None:
    names = ", ".join(sorted(settings))
    with pytest.raises(ConfigError, match=rf"^{names} cannot be set: the rules of this placer determine it$"):
        load_placer(placer, settings)
    load_placer(placer, {"weights": {"1": 2}, "leaders": "rack"})


def test_redis_never_has_two_in_a_rack() -> None:
    assert all(len(own) == 3 for own in load_placer("redis").place(0, 8, 3, brokers_in(2, 2, 2)))
    with pytest.raises(ReplicaPlacementError, match="at most 1 in a rack, but the 2 racks take only 2"):
        load_placer("redis").place(0, 8, 3, brokers_in(2, 2))


def changes(before: Layout, topics: Any) -> tuple[int, int]:
    """Lists that are not what they were, and those that another broker leads."""
    pairs = [pair for topic in topics for pair in zip(before.topics[topic], topics[topic], strict=True)]
    return sum(old != new for old, new in pairs), sum(old[0] != new[0] for old, new in pairs)


@pytest.mark.parametrize(
    "brokers", [(), (Broker(1, "a"),), (Broker(1, "a", fenced=True),), (Broker(1), Broker(2, "a"))]
)
@pytest.mark.parametrize("topics", [{}, {"t": ()}])
def test_of_no_partitions_nothing_is_unproven(
    brokers: tuple[Broker, ...], topics: dict[str, tuple[tuple[int, ...], ...]]
) -> None:
    layout = Layout(brokers, topics)
    for found in (rebalance(layout, replication_factor=3), rebalance_leaders(layout)):
        assert (found.topics, found.moved, found.lower_bound, found.proven, found.notes) == (topics, 0, 0, True, ())
    with pytest.raises(ConfigError, match='topic "x" does not exist'):
        rebalance(layout, replication_factor={"x": 1})


def test_leaders_that_resonate_are_evened_in_place() -> None:
    brokers = brokers_in(3, 3, 3)
    topics = {f"p{n}": load_placer("striped", {"seed": n}).place(0, n, 3, brokers) for n in (9, 12, 18, 30, 60, 90)}
    before = Layout(tuple(brokers)).with_topics(topics)
    assert LayoutMetrics.of(before).leaders_per_topic == 3.0
    found = rebalance_leaders(before)
    quality = LayoutMetrics.of(before.with_topics(found.topics), before)
    assert (found.moved, found.lower_bound, quality.moved, found.proven) == (0, 0, 0, True)
    assert quality.leaders_per_topic == 1.0
    assert quality.leaders_per_broker == pytest.approx(25 * 9 / 219)
    alone = rebalance_leaders(before, keep_successors=True)
    lists, leaders = changes(before, alone.topics)
    # Nine topics' worth of partitions are led by three brokers of nine where there are nine.
    assert lists == leaders == changes(before, found.topics)[1] < 219 / 3
    assert changes(before, found.topics)[0] < 219 / 2


def test_a_layout_that_is_as_good_as_any_keeps_every_list() -> None:
    layout = random_layout(brokers_in(3, 2, 4), 120, 3, 5, topics=4)
    best = layout.with_topics(rebalance(layout).topics)
    assert rebalance_leaders(best).topics == best.topics


def test_fenced_excluded_and_unknown_brokers_lead_only_where_no_other_can() -> None:
    brokers = (Broker(1, "a"), Broker(2, "b"), Broker(3, "c", fenced=True), Broker(4))
    lists = ((3, 1, 2), (9, 2, 1), (4, 1), (3,), (9, 3), (4, 9), (1, 3, 2), (2, 4, 1), (-1, 2), ())
    found = rebalance_leaders(Layout(brokers, {"t": lists}), PlacementConstraints(exclude=frozenset({4})))
    assert found.proven
    assert [sorted(own) for own in found.topics["t"]] == [sorted(own) for own in lists]
    assert [own for own in found.topics["t"] if not {1, 2} & set(own)] == [(3,), (9, 3), (4, 9), ()]
    assert Counter(own[0] for own in found.topics["t"] if {1, 2} & set(own)) == {1: 3, 2: 3}
    # Who is dead does not come next anyway; who is to go would.
    assert found.topics["t"][6:9] == ((1, 3, 2), (2, 1, 4), (2, -1))
    nobody = Layout((Broker(3, "c", fenced=True),), {"t": ((3, 1), (1,))})
    assert rebalance_leaders(nobody).topics == nobody.topics
    with pytest.raises(ReplicaPlacementError, match="brokers 4 have none"):
        rebalance_leaders(Layout(brokers, {"t": lists}))


def test_leaders_are_brought_to_the_racks_asked_for_where_a_replica_is() -> None:
    lists = ((1, 3), (3, 1), (2, 4), (4, 2), (5, 6))
    layout = Layout(tuple(brokers_in(2, 2, 2)), {"t": lists})
    found = rebalance_leaders(layout, PlacementConstraints(leader_racks=frozenset("b")))
    assert [own[0] for own in found.topics["t"][:4]] == [3, 3, 4, 4]
    assert set(found.topics["t"][4]) == {5, 6}
    assert found.notes == ("1 have no eligible leader in the racks where leaders must be",)
    assert not found.proven


def test_what_leads_other_topics_counts_when_leaders_are_evened() -> None:
    layout = Layout(tuple(brokers_in(1, 1)), {"old": ((1,), (1,), (1,)), "new": ((1, 2), (1, 2), (2, 1), (1, 2))})
    found = rebalance_leaders(layout, topics=["new"])
    assert list(found.topics) == ["new"]
    # 2 leads one of seven now; three or four are its share.
    assert Counter(own[0] for own in found.topics["new"]) == {1: 1, 2: 3}
    with pytest.raises(ConfigError, match='topic "t" does not exist'):
        rebalance_leaders(layout, topics=["t"])


def test_a_layout_is_read_and_written() -> None:
    text = {
        "format": "rackassign/1",
        "brokers": [{"id": 1, "rack": "a", "weight": 2}, {"id": 2, "rack": None, "fenced": True}],
        "topics": {"t": [[1, 2, 1], {"replicas": [2], "leader": None}]},
    }
    layout = Layout.read(text)
    assert layout.brokers == (Broker(1, "a"), Broker(2, fenced=True))
    assert layout.topics == {"t": ((1, 2), (2,))}
    assert layout.weights == {1: 2}
    assert Layout.read(json.loads(json.dumps(layout.to_json()))) == layout


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "expected an object"),
        ({"topics": {}}, "'brokers' is missing"),
        ({"brokers": 1, "topics": {}}, "brokers: expected an array"),
        ({"brokers": [{"id": 1, "weight": "x"}], "topics": {}}, r"brokers\[0\].weight: expected a number"),
        ({"brokers": [{"id": 1, "weight": -1}], "topics": {}}, r"brokers\[0\].weight: .* above 0"),
        ({"brokers": [{"id": 1}, {"id": 1}], "topics": {}}, r"brokers\[1\].id"),
        ({"brokers": [3], "topics": {}}, r"brokers\[0\]: expected an object"),
        ({"brokers": [], "topics": {"t": [["1"]]}}, r"topics.t\[0\].replicas\[0\]"),
    ],
)
def test_a_wrong_layout_is_refused_by_field(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Layout.read(value)


def test_figures_of_a_layout() -> None:
    layout = Layout(tuple(brokers_in(2, 1)), {"t": ((1, 3), (1, 2), (3, 1), (1, 9)), "u": ((-1,),)})
    quality = LayoutMetrics.of(layout)
    assert (quality.partitions, quality.replicas, quality.missing) == (5, 7, 2)
    assert quality.replicas_per_broker == pytest.approx(4 / (7 / 3))
    assert quality.leaders_per_broker == pytest.approx(3 / (4 / 3))
    assert quality.leaders_per_topic == pytest.approx(3 / 2)
    assert quality.replicas_per_rack == pytest.approx(5 / 3.5)
    assert quality.leaders_per_rack == pytest.approx(1.5)
    assert (quality.sharing, quality.gone_with_rack, quality.moved) == (1, 2, None)
    assert quality.leaders_with_rack == 0.75
    assert quality.replicas_with_rack == pytest.approx(5 / 7)
    # Broker 3 lost: 1 leads all four. Broker 1 lost: 2 and 3 have one and two, and one has no other replica.
    assert quality.leaders_after_loss == pytest.approx(2.0)
    assert LayoutMetrics.of(Layout(())).replicas_per_broker == 1.0


def test_hot_figures_are_of_brokers_by_weight() -> None:
    layout = Layout(tuple(brokers_in(1, 1)), {"t": ((1,), (1,), (2,))}, {1: 2})
    assert LayoutMetrics.of(layout).replicas_per_broker == 1.0
    with pytest.raises(InputError, match="the broker does not exist"):
        Layout((), {}, {7: 1})
