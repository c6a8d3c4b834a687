"""What a repair would change: what was wished, with the fewest copies, and nothing twice."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.admin.describe import DescribedTopic
from rackassign.errors import ConfigError, InputError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.monitoring import BrokerDescription, GroupCollector, MemberDescription, RackMap, ReadRates
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.collector import ClusterSnapshot
from rackassign.monitoring.live_groups import snapshot
from rackassign.placement import Layout, PlacementConstraints, ReplicaPlacementError
from rackassign.placement.audit import audit
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.layout import LayoutMetrics
from rackassign.placement.local_reads import GroupLocality, describe_readers
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import (
    ReassignmentPlan,
    ReassignmentRequest,
    ReplicaMove,
    plan_leader_balance,
    plan_reassignment,
)
from rackassign.reassignment.journal import plan_from_json, read_reassignment, write_reassignment
from rackassign.reassignment.plan import UnevenError, check_even, plan_from_lists
from tests.helpers.builders import SELECTOR, cluster, group, member
from tests.helpers.examples import examples

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("aabbcc", 1))


def topic(rows: Sequence[Sequence[int]], down: Sequence[int] = ()) -> DescribedTopic:
    up = [[broker for broker in row if broker not in down] for row in rows]
    return DescribedTopic(
        tuple(Partition(tuple(row), next(iter(live), None)) for row, live in zip(rows, up, strict=True)),
        tuple(map(tuple, up)),
        tuple(tuple(broker for broker in row if broker in down) for row in rows),
    )


def state(*, down: Sequence[int] = (), brokers: Sequence[Broker] = BROKERS, **topics: Any) -> ClusterState:
    listed = tuple(replace(broker, fenced=broker.id in down) for broker in brokers)
    more = {name: topics.pop(name) for name in ("in_flight", "differing") if name in topics}
    return ClusterState(listed, {name: topic(rows, down) for name, rows in topics.items()}, **more)


def planned(seen: ClusterState, *, registry: PlacementState | None = None, **wanted: Any) -> ReassignmentPlan:
    return plan_reassignment(seen, ReassignmentRequest(**wanted), registry or PlacementState())


def own(seen: ClusterState, name: str) -> ClusterState:
    """Return a cluster in which a topic is one of Kafka's own."""
    return replace(seen, topics={**seen.topics, name: replace(seen.topics[name], internal=True)})


def place(number: int, name: str = "t") -> TopicPartition:
    return TopicPartition(name, number)


def racks(replicas: Sequence[int]) -> set[str | None]:
    return {BROKERS[broker - 1].rack for broker in replicas}


def test_nothing_is_changed_where_nothing_is_wrong_not_even_the_order_of_a_list() -> None:
    found = planned(state(t=[[1, 3, 5], [1, 3, 5], [1, 3]]))
    assert (found.moves, found.waiting, found.skipped, found.copies) == ({}, {}, {}, 0)


def test_replicas_that_share_a_rack_are_spread_with_one_copy_each() -> None:
    found = planned(state(t=[[1, 2, 3], [5, 6]], sound=[[1, 3, 5]]))
    assert set(found.moves) == {place(0), place(1)}
    assert racks(found.moves[place(0)].after) == {"a", "b", "c"}
    assert (found.copies, found.lower_bound) == (2, 2)


def test_a_dead_broker_keeps_what_it_has_until_it_is_to_be_replaced() -> None:
    seen = state(t=[[1, 3, 5], [5, 2, 4]], down=[5])
    assert planned(seen).moves == {}
    moves = planned(seen, removed_brokers=frozenset({5})).moves
    assert {set(move.after) == {1, 3, 6} or set(move.after) == {2, 4, 6} for move in moves.values()} == {True}


def test_a_broker_that_was_unregistered_loses_what_it_had() -> None:
    seen = state(t=[[1, 3, 9]])
    move = planned(seen).moves[place(0)]
    assert 9 not in move.after
    assert racks(move.after) == {"a", "b", "c"}
    assert move.before == (1, 3, 9)


def test_growing_and_shrinking_keeps_what_is_alive() -> None:
    grown = planned(state(t=[[1], [3]]), replication_factor=3)
    assert [racks(move.after) for move in grown.moves.values()] == [{"a", "b", "c"}] * 2
    assert grown.copies == 4
    shrunk = planned(state(t=[[1, 3, 5], [5, 1, 3]], down=[5]), replication_factor=2)
    assert {place: set(move.after) for place, move in shrunk.moves.items()} == {place(0): {1, 3}, place(1): {1, 3}}
    assert shrunk.copies == 0


def test_a_replica_for_which_there_is_no_broker_waits() -> None:
    two = BROKERS[:1] + BROKERS[2:3]
    found = planned(state(t=[[1]], brokers=two), replication_factor=3)
    assert set(found.moves[place(0)].after) == {1, 3}
    assert sum(broker < 0 for broker in found.waiting[place(0)]) == 1


@pytest.mark.parametrize("rebalance", [False, True])
def test_a_partition_for_which_no_broker_is_left_keeps_its_replicas_and_waits(*, rebalance: bool) -> None:
    two = (Broker(1, "a"), Broker(3, "b"))
    wanted: Any = {"removed_brokers": frozenset({1}), "rules": {"no_new_replicas": [3]}, "rebalance": rebalance}
    found = planned(state(brokers=two, t=[[1], [3]]), **wanted)
    assert (found.moves, set(found.waiting)) == ({}, {place(0)})
    assert [list(row) for row in found.after.topics["t"]] == [[1], [3]]


def test_placeholders_are_completed_and_a_topic_of_the_same_name_is_left_alone() -> None:
    registry = PlacementState(plans={place(0): (1, 3, -1), place(1): (4, -1, -2)})
    found = planned(state(t=[[1, 3], [2]]), registry=registry)
    assert racks(found.moves[place(0)].after) == {"a", "b", "c"}
    assert set(found.moves) == {place(0)}
    assert "other replicas than in the state file" in found.skipped[place(1)]


def test_what_cannot_be_judged_now_is_left_out_and_told() -> None:
    seen = state(t=[[1, 2], [1, 2], [5, 6]], u=[[1, 2]], down=[5, 6], in_flight=frozenset({place(0)}), differing=("u",))
    found = planned(seen)
    assert found.skipped == {
        place(0): "is being reassigned",
        place(2): "has no leader to copy from",
        place(0, "u"): "brokers report different metadata",
    }
    assert set(found.moves) == {place(1)}


def test_only_the_topics_that_are_named_are_touched() -> None:
    assert set(planned(state(t=[[1, 2]], u=[[1, 2]]), topics=("u",)).moves) == {place(0, "u")}
    with pytest.raises(ConfigError, match='topic "x" does not exist'):
        planned(state(t=[[1, 2]]), topics=("x",))
    with pytest.raises(ConfigError, match="broker 7 to be removed does not exist"):
        planned(state(t=[[1, 2]]), removed_brokers=frozenset({7}))


def test_a_broker_without_a_rack_among_others_is_refused() -> None:
    seen = state(t=[[1, 2]], brokers=(*BROKERS, Broker(7)))
    with pytest.raises(ReplicaPlacementError, match=r'brokers 7 have none.* --constraints .*{"rackless": "rack"}'):
        planned(seen)
    assert planned(seen, rules={"rackless": "rack"}).copies == 1
    # Nothing is copied for leaders, so it is nothing to them.
    assert plan_leader_balance(seen, PlacementConstraints()).notes == ()


def test_a_broker_without_a_rack_that_is_down_and_holds_nothing_is_in_nobody_s_way() -> None:
    seven = (*BROKERS, Broker(7))
    assert planned(state(t=[[1, 2]], brokers=seven, down=[7])).copies == 1
    with pytest.raises(ReplicaPlacementError, match="brokers 7 have none"):
        planned(state(t=[[1, 2, 7]], brokers=seven, down=[7]))


def test_kafka_s_own_topics_are_repaired_like_others_but_for_a_number_that_was_not_meant_for_them() -> None:
    seen = own(state(t=[[1, 3, 6]], o=[[1, 3, 6]]), "o")
    moves = planned(seen, removed_brokers=frozenset({6})).moves
    assert {set(move.after) == {1, 3, 5} for move in moves.values()} == {True}
    assert set(moves) == {place(0), place(0, "o")}
    assert set(planned(seen, replication_factor=2).moves) == {place(0)}
    assert set(planned(seen, replication_factor=2, removed_brokers=frozenset({6})).moves) == {place(0), place(0, "o")}
    assert len(planned(seen, replication_factor=2, topics=("o",)).moves[place(0, "o")].after) == 2
    assert set(planned(own(state(o=[[1, 2]]), "o")).moves) == {place(0, "o")}


def near_of(
    topics: dict[str, list[list[int]]],
    *members: MemberDescription,
    known: Sequence[Broker] = BROKERS,
    selector: str = SELECTOR,
) -> GroupLocality:
    """Return a group as it reads the topics of a cluster."""
    there = cluster(topics, tuple(BrokerDescription(b.id, b.rack, fenced=b.fenced, selector=selector) for b in known))
    shot = snapshot(group(*members), there.topology, RackMap())
    racks_of = [member.rack for member in shot.group.members]
    coverage = {rack: racks_of.count(rack) for rack in sorted({str(broker.rack) for broker in known})}
    return GroupLocality(there, inspect(shot, there, ReadRates()), coverage, {}, 0)


def follow(topics: dict[str, Any], *members: MemberDescription, own_too: str = "", **wanted: Any) -> ReassignmentPlan:
    """Plan for a group that reads what there is."""
    seen, near = state(**topics), near_of(topics, *members)
    seen = own(seen, own_too) if own_too else seen
    names = tuple(sorted(topics))
    return plan_reassignment(
        seen,
        ReassignmentRequest(topics=names, group="g", **wanted),
        PlacementState(),
        near.members_per_rack(names),
        near,
    )


def test_kafka_s_own_topics_never_follow_readers() -> None:
    found = follow({"t": [[5]], "o": [[5]]}, member("m", "a", {}, "t", "o"), own_too="o")
    assert set(found.moves) == {place(0)}
    assert "a topic of Kafka itself" in found.skipped[place(0, "o")]


def test_topics_follow_their_own_readers() -> None:
    there = {"t": [[5]] * 4, "u": [[5]] * 4, "v": [[5]] * 4}
    readers_of = (member("m1", "a", {}, "t"), member("m2", "b", {}, "u"), member("m3", "a", {}, "v"))
    found = follow(there, *readers_of)
    where = {name: {racks(row).pop() for row in found.after.topics[name]} for name in found.after.topics}
    assert where == {"t": {"a"}, "u": {"b"}, "v": {"a"}}
    assert (found.copies, found.lower_bound) == (12, 12)
    # What has gone before is load to what comes after: brokers of a rack carry evenly all together.
    carried = Counter(row[0] for rows in found.after.topics.values() for row in rows)
    assert [carried[broker] for broker in (1, 2, 3, 4)] == [4, 4, 2, 2]


def test_readers_are_not_sent_to_a_leader_that_is_down() -> None:
    seen = state(t=[[1, 3, 5]], down=[3])
    near = near_of({"t": [[1, 3, 5]]}, member("m", "b", {}, "t"), known=seen.brokers, selector="")

    request = ReassignmentRequest(topics=("t",), group="g")
    found = plan_reassignment(seen, request, PlacementState(), near.members_per_rack(["t"]), near)

    assert found.moves == {}


def test_where_all_is_read_at_home_nothing_is_copied() -> None:
    """Of two racks with readers each has a copy, a third rack one as well that nobody reads."""
    rows = [[1, 3, 5], [4, 2, 6]] * 5
    here = (member("m1", "a", {"t": range(5)}, "t"), member("m2", "b", {"t": range(5, 10)}, "t"))
    found = follow({"t": rows}, *here)
    assert (found.moves, found.copies) == ({}, 0)


@given(
    rows=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=8),
    where=st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=examples(60))
def test_each_copy_for_a_group_gains_a_partition_and_takes_no_rack(rows: list[list[int]], where: list[str]) -> None:
    there: dict[str, Any] = {"t": rows}
    members = tuple(member(f"m{i}", rack, {}, "t") for i, rack in enumerate(where))
    near = near_of(there, *members)
    asked, found = planned(state(**there)), follow(there, *members)
    gained = near.local_partitions(found.after) - near.local_partitions(asked.after)
    assert found.copies - asked.copies <= gained
    assert near.local_partitions(found.after) == len(rows)
    for before, after in zip(asked.after.topics["t"], found.after.topics["t"], strict=True):
        assert len(racks(after)) >= len(racks(before))
        assert len(after) == len(before)


def test_a_copy_that_is_made_anyway_goes_where_a_group_reads() -> None:
    four = tuple(Broker(i, rack) for i, rack in enumerate("abcd", 1))
    rows = [[1], [2]] * 3
    near = near_of({"t": rows}, member("m", "d", {}, "t"), known=four)
    wanted = ReassignmentRequest(topics=("t",), replication_factor=2, group="g")
    found = plan_reassignment(state(t=rows, brokers=four), wanted, PlacementState(), near.members_per_rack(["t"]), near)
    assert found.copies == 6
    assert all(4 in row for row in found.after.topics["t"])


def test_readers_are_counted_topic_by_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    there = cluster({"t": [[1]], "u": [[2]], "v": [[3]]})
    members = (
        member("m1", "a", {"t": (0,)}, "t"),
        member("m2", "a", {}, "t", "u"),
        member("m3", "c", {"u": (0,), "v": (0,)}, "u", "v"),
        member("m4", "nowhere", {}, "v"),
    )
    shots = ClusterSnapshot(there, (snapshot(group(*members), there.topology, RackMap()),))
    monkeypatch.setattr(GroupCollector, "snapshot", lambda *_: shots)
    near = describe_readers(None, "g")
    assert (near.topics, near.unknown) == (("t", "u", "v"), 1)
    assert near.coverage == {"a": 2, "b": 0, "c": 1}
    assert near.members_per_rack(["t", "u", "other"]) == {
        "t": {"a": 2, "b": 0, "c": 0},
        "u": {"a": 1, "b": 0, "c": 1},
        # Nobody reads it now, and who will is among the group.
        "other": near.coverage,
    }


def test_a_number_that_is_reached_ends_a_plan_that_waits() -> None:
    seen = state(t=[[1, 2, 3], [1, 3, 5]], u=[[1, 3]])
    registry = PlacementState(plans={place(0): (1, 2, 3, -1), place(1): (1, 3, 5, -1), place(0, "u"): (1, 3, -1)})
    assert planned(seen, registry=registry).obsolete_placeholders == frozenset()
    assert planned(seen, registry=registry, replication_factor=2).obsolete_placeholders == {place(0, "u")}
    found = planned(seen, registry=registry, replication_factor=3, topics=("t",))
    # The first is yet to be moved: its plan is over when that is done.
    assert set(found.moves) == {place(0)}
    assert found.obsolete_placeholders == {place(1)}
    assert planned(state(t=[[1, 2, 3]]), registry=registry, replication_factor=7).obsolete_placeholders == frozenset()
    stale = planned(seen, registry=PlacementState(plans={place(1): (2, 4, -1)}), replication_factor=3, topics=("t",))
    assert stale.obsolete_placeholders == {place(1)}


@pytest.mark.parametrize("rules", [{"max_per_rack": 1}, {"forced_racks": ["d"]}, {"min_racks": 4}])
@pytest.mark.parametrize("down", [(), (4,)])
def test_no_replica_is_taken_away_unless_that_is_asked_for(rules: dict[str, Any], down: tuple[int, ...]) -> None:
    seen = state(t=[[1, 2, 3, 4]], u=[[1, 2]], down=down)
    found = planned(seen, rules=rules)
    # What can be kept to is: as many racks as there are.
    assert [(len(row), len(racks(row))) for row in (found.after.topics["t"][0], found.after.topics["u"][0])] == [
        (4, 3),
        (2, 2),
    ]
    assert found.waiting == {}
    assert (found.copies, found.lower_bound) == (2, 2)
    assert "1 partition would have fewer replicas than now" in found.notes[0]
    assert len(planned(seen, rules=rules, replication_factor=2, topics=("t",)).after.topics["t"][0]) == 2


@pytest.mark.parametrize("rules", [{"max_per_rack": 1}, {"min_racks": 4}])
def test_what_rules_leave_no_broker_for_waits_if_it_is_more_than_there_is_now(rules: dict[str, Any]) -> None:
    found = planned(state(t=[[1, 2, 3, 4]]), rules=rules, replication_factor=5)
    assert len(found.after.topics["t"][0]) == 4
    # Two of the brokers are in each of two racks: one of the four goes, to either broker of the third rack.
    waiting = found.waiting[place(0)]
    online = [broker for broker in waiting if broker >= 0]
    assert (len(waiting), len(online), len({1, 2, 3, 4}.intersection(online)), len(racks(online))) == (5, 4, 3, 3)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("down", [(), (1,)])
def test_fewer_racks_are_no_reason_to_take_replicas_away(most: int, down: tuple[int, ...]) -> None:
    three = (BROKERS[0], BROKERS[2], BROKERS[4])
    seen = state(t=[[1, 3, 5], [3, 5, 1]], brokers=three, down=down)
    found = planned(seen, rules={"max_racks": most})
    assert (found.moves, found.waiting) == ({}, {})
    assert down or "they are relaxed there" in found.notes[0]


def lagging(rows: Sequence[Sequence[int]], in_sync: Sequence[Sequence[int]], least: int = 1) -> ClusterState:
    """Return a cluster whose brokers are all online, and some replicas behind."""
    partitions = tuple(Partition(tuple(row), live[0]) for row, live in zip(rows, in_sync, strict=True))
    described = DescribedTopic(partitions, tuple(map(tuple, in_sync)), tuple(() for _ in rows))
    return ClusterState(BROKERS, {"t": described}, {"t": least})


@pytest.mark.parametrize("behind", [1, 3, 5])
def test_replicas_in_sync_remain_where_there_are_to_be_fewer(behind: int) -> None:
    rows = [[1, 3, 5], [3, 5, 1], [5, 1, 3]]
    seen = lagging(rows, [[broker for broker in row if broker != behind] for row in rows], 2)
    assert [behind in row for row in planned(seen, replication_factor=2).after.topics["t"]] == [False] * 3


def test_a_replica_that_was_behind_and_is_needed_after_all_is_not_counted_as_a_copy() -> None:
    closed = {"no_new_replicas": [1, 2, 6]}
    found = planned(lagging([[5, 3, 4]], [[3, 4]]), replication_factor=2, rules=closed)
    assert racks(found.moves[place(0)].after) == {"b", "c"}
    assert (found.copies, found.lower_bound) == (0, 0)


@pytest.mark.parametrize("factor", [1, 2])
def test_the_only_replica_in_sync_remains(factor: int) -> None:
    (after,) = planned(lagging([[1, 3, 5]], [[3]]), replication_factor=factor).after.topics["t"]
    assert len(after) == factor
    assert 3 in after


def test_fewer_replicas_than_producers_need_are_refused() -> None:
    seen = lagging([[1, 3, 5]], [[1, 3, 5]], 2)
    with pytest.raises(
        ConfigError, match=r"\"t\": replication factor 1 is less than min\.insync\.replicas, 2\. Change"
    ):
        planned(seen, replication_factor=1, topics=("t",))
    # Among all topics it does not keep the others from their plan.
    found = planned(replace(seen, topics={**seen.topics, "u": topic([[1, 3]])}), replication_factor=1)
    assert {place.topic for place in found.moves} == {"u"}
    assert found.skipped == {place(0): "replication factor 1 is less than min.insync.replicas, 2"}
    # --force is about how even brokers are, and a topic without enough replicas accepts no records with acks=all.
    assert planned(seen, replication_factor=1, force=True).skipped == {place(0): found.skipped[place(0)]}
    assert plan_from_lists(seen, {place(0): (1,)}).skipped == {place(0): found.skipped[place(0)]}
    # That was so before, and more replicas make it no worse.
    low = lagging([[1]], [[1]], 3)
    assert len(planned(low, replication_factor=2).after.topics["t"][0]) == 2


def test_a_weight_of_a_broker_that_does_not_exist_is_refused() -> None:
    seen = state(t=[[1, 3, 99]])
    planned(seen, rules={"weights": {"99": 2}})
    with pytest.raises(ConfigError, match="weights: broker 98 does not exist; brokers are 1, 2, 3, 4, 5, 6, 99"):
        planned(seen, rules={"weights": {"98": 2}})
    with pytest.raises(ConfigError, match="broker 98 does not exist"):
        plan_leader_balance(seen, PlacementConstraints(weights={98: 2.0}))
    with pytest.raises(ConfigError, match="broker 1 is listed twice"):
        PlacementConstraints.of({"weights": {"01": 1, "1": 2}})


@pytest.mark.parametrize("weights", [{"1": 10**310}, {"9" * 5000: 1}])
def test_absurd_weights_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        PlacementConstraints.of({"weights": weights})


def test_what_is_replaced_counts_for_nothing() -> None:
    three = (BROKERS[0], BROKERS[2], BROKERS[4])
    found = planned(state(t=[[1, 3, 5]], brokers=three), removed_brokers=frozenset({5}))
    assert set(found.moves[place(0)].after) == {1, 3}
    assert found.notes == ()


def test_leaders_are_where_rules_have_them_whatever_else_is_right() -> None:
    seen = state(t=[[1, 3, 5], [3, 1, 5], [5, 1, 4]], u=[[1, 2]])
    found = planned(seen, rules={"leader_racks": ["b"]}, topics=("t",))
    assert set(found.moves) == {place(0), place(2)}
    assert [racks(row[:1]) for row in found.after.topics["t"]] == [{"b"}] * 3
    assert found.copies == 0
    assert (
        planned(replace(seen, topics={"t": topic(found.after.topics["t"])}), rules={"leader_racks": ["b"]}).moves == {}
    )
    # Nobody is up there to lead.
    assert planned(state(t=[[1, 3, 5]], down=[3, 4]), rules={"leader_racks": ["b"]}).moves == {}


def test_a_rack_for_leaders_that_is_not_there_is_refused() -> None:
    problem = '^leader rack "zz": no broker is in it; racks are a, b, c$'
    with pytest.raises(ConfigError, match=problem):
        planned(state(t=[[1, 3, 5]]), rules={"leader_racks": ["a", "zz"]})
    with pytest.raises(ConfigError, match=problem):
        plan_leader_balance(state(t=[[1, 3, 5]]), PlacementConstraints(leader_racks=frozenset({"zz"})))
    assert planned(state(t=[[1, 3, 5]]), rules={"forced_racks": ["zz"]}).moves == {}


@pytest.mark.parametrize("brokers", [BROKERS, ()])
def test_where_there_is_nothing_there_is_nothing_to_doubt(brokers: tuple[Broker, ...]) -> None:
    empty = ClusterState(brokers, {})
    for found in (
        planned(empty),
        planned(empty, replication_factor=3, rebalance=True),
        plan_leader_balance(empty, PlacementConstraints()),
    ):
        assert (found.moves, found.notes) == ({}, ())


@settings(deadline=None, max_examples=examples(100))
@given(
    seed=st.integers(0, 10_000),
    where=st.lists(st.sampled_from("abc"), min_size=4, max_size=8),
    factor=st.integers(1, 5),
)
def test_an_audit_finds_what_a_plan_spreads(seed: int, where: list[str], factor: int) -> None:
    rng = random.Random(seed)
    ids = range(1, len(where) + 1)
    brokers = tuple(Broker(i, rack) for i, rack in enumerate(where, 1))
    rows = [rng.sample(ids, min(factor, len(where))) for _ in range(6)]
    down = rng.sample(ids, rng.randrange(2))
    seen = state(down=down, brokers=brokers, t=rows)
    found = {tp for finding in audit(seen).findings if finding.kind == "shared-rack" for tp in finding.partitions}
    # Without a leader there is nothing to copy from.
    assert found - {place(number) for number, row in enumerate(rows) if set(row) <= set(down)} == set(
        planned(seen).moves
    )


@settings(deadline=None, max_examples=examples(60))
@given(
    rows=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=6),
    rf=st.sampled_from([None, 1, 2, 3]),
    dead=st.sets(st.integers(1, 6), max_size=2),
    even=st.booleans(),
)
def test_a_repair_that_was_made_leaves_nothing_to_repair(
    rows: list[list[int]],
    rf: int | None,
    dead: set[int],
    even: bool,  # noqa: FBT001 - hypothesis passes it by name
) -> None:
    asked: dict[str, Any] = {"replication_factor": rf, "removed_brokers": frozenset(dead), "rebalance": even}
    seen = state(t=rows)
    found = planned(seen, **asked)
    after = state(t=[list(row) for row in found.after.topics["t"]])
    again = planned(after, **asked)
    assert again.moves == {}
    for number, row in enumerate(found.after.topics["t"]):
        assert not set(row) & dead
        wanted = rf or len(rows[number])
        assert len(row) == min(wanted, 6 - len(dead))
        left = {broker.rack for broker in BROKERS if broker.id not in dead}
        assert len(racks(row)) == min(len(row), len(left))


def test_leaders_are_evened_without_a_copy_and_preferred_ones_elected() -> None:
    rows = [[1, 3, 5]] * 6
    found = plan_leader_balance(state(t=rows), PlacementConstraints())
    assert found.copies == 0
    assert all(set(move.before) == set(move.after) for move in found.moves.values())
    led = [row[0] for row in found.after.topics["t"]]
    assert {broker: led.count(broker) for broker in (1, 3, 5)} == {1: 2, 3: 2, 5: 2}
    elsewhere = replace(topic([[1, 3]]), partitions=(Partition((1, 3), 3),))
    one = replace(state(t=[[1, 3]]), topics={"t": elsewhere})
    assert plan_leader_balance(one, PlacementConstraints()).moves == {place(0): ReplicaMove((1, 3), (1, 3))}


def test_lists_of_another_tool_are_taken_and_given() -> None:
    value = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]}
    lists = read_reassignment(value)
    assert lists == {place(0): (3, 1)}
    assert json.loads(write_reassignment(lists)) == value
    assert plan_from_json(state(t=[[1, 2], [3]]), lists).moves == {place(0): ReplicaMove((1, 2), (3, 1))}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "expected an object"),
        ({"version": 2}, "version: expected 1, got 2"),
        ({"version": 1, "partitions": {}}, "partitions: expected an array"),
        ({"version": 1, "partitions": [7]}, r"partitions\[0\]: expected an object"),
        ({"version": 1, "partitions": [{"partition": 0}]}, r"partitions\[0\].topic"),
        ({"version": 1, "partitions": [{"topic": 7, "partition": 0, "replicas": [1]}]}, r"partitions\[0\].topic"),
        ({"version": 1, "partitions": [{"topic": "", "partition": 0, "replicas": [1]}]}, r"partitions\[0\].topic"),
        ({"version": 1, "partitions": [{"topic": "t", "partition": -1}]}, r"partitions\[0\].partition"),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}, r"\[0\].replicas"),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}, "listed twice"),
    ],
)
def test_what_is_wrong_in_a_file_of_another_tool_is_named(value: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_reassignment(value)


def test_lists_that_partitions_have_already_are_no_change() -> None:
    seen = state(t=[[1, 3], [3, 5], [5, 1]], in_flight=frozenset({place(2)}))
    found = plan_from_lists(seen, {place(0): (1, 3), place(1): (3, 6), place(2): (1, 5)})
    assert found.moves == {place(1): ReplicaMove((3, 5), (3, 6))}
    assert set(found.skipped) == {place(2)}


@pytest.mark.parametrize(("where", "row"), [(place(9), (1,)), (place(0, "x"), (1,)), (place(0), (1, 77))])
def test_lists_for_what_there_is_not_are_refused(where: TopicPartition, row: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="does not exist"):
        plan_from_json(state(t=[[1, 2]]), {where: row})


def blind(topics: int, brokers: int, partitions: int = 30) -> ClusterState:
    """Return a cluster in three racks, in which replicas are anywhere."""
    rng = random.Random(topics)
    rows = {
        f"t{n:04d}": topic([rng.sample(range(1, brokers + 1), 3) for _ in range(partitions)]) for n in range(topics)
    }
    return ClusterState(tuple(Broker(i, "abc"[i % 3]) for i in range(1, brokers + 1)), rows)


def test_a_large_layout_that_is_blind_to_racks_ends_as_even_as_racks_allow() -> None:
    seen = blind(300, 60)
    found = planned(seen, removed_brokers=frozenset({7}))
    assert found.copies == found.lower_bound
    held = Counter(broker for rows in found.after.topics.values() for row in rows for broker in row)
    assert all(len({broker % 3 for broker in row}) == 3 for rows in found.after.topics.values() for row in rows)
    # 9,000 replicas in each rack, of which the one of broker 7 has a broker less.
    assert {held[broker] for broker in held if broker % 3 != 1} == {450}
    assert {held[broker] for broker in held if broker % 3 == 1} == {473, 474}
    # Neither of these two would another choice of replicas, or more work, make any better.
    assert not any("iterations" in doubt or "paths" in doubt for doubt in found.notes)


def test_where_nothing_is_wrong_many_racks_are_planned_about_as_fast_as_few() -> None:
    rng = random.Random(1)
    rows = [[3 * rng.randrange(20) + rack for rack in range(3)] for _ in range(3000)]

    def seconds(racks: int) -> float:
        seen = state(brokers=tuple(Broker(i, f"rack-{i % racks}") for i in range(60)), t=rows)
        begun = time.process_time()
        assert planned(seen).moves == {}
        return time.process_time() - begun

    assert seconds(60) < 10 * seconds(3)


@pytest.mark.parametrize("wanted", [{"replication_factor": 2}, {"removed_brokers": frozenset({7})}, {}])
@pytest.mark.parametrize("size", [(20, 9), pytest.param((300, 60), marks=pytest.mark.long)])
def test_who_leads_goes_on_leading_where_its_replica_stays(size: tuple[int, int], wanted: dict[str, Any]) -> None:
    found = planned(blind(*size), **wanted)
    assert found.moves
    assert all(move.after[0] == move.before[0] for move in found.moves.values() if move.before[0] in move.after)
    if "replication_factor" in wanted:
        # There is always one that does not lead to be given up.
        assert all(move.after[0] == move.before[0] for move in found.moves.values())


def test_leaders_that_have_to_go_are_followed_evenly() -> None:
    rows = [[1, 3, 5], [1, 4, 6]] * 6 + [[3, 5, 2], [5, 3, 2]] * 3
    found = planned(state(t=rows), removed_brokers=frozenset({1}))
    leading = Counter(row[0] for row in found.after.topics["t"])
    assert max(leading[broker] for broker in (2, 4, 6)) <= 4
    assert LayoutMetrics.of(found.after).sharing == 0


def heaped(rows: Sequence[Sequence[int]], onto: Sequence[int]) -> ReassignmentPlan:
    """Return the plan of given lists that leave every second partition on these brokers."""
    lists = {place(number): tuple(onto) for number in range(0, len(rows), 2)}
    return plan_from_lists(state(t=rows), lists)


def test_a_plan_that_piles_replicas_up_is_refused_with_the_figures() -> None:
    heap = heaped([[1, 3], [2, 4], [3, 5], [4, 6], [5, 1], [6, 2], [1, 3]] * 6, (5, 3))
    with pytest.raises(UnevenError) as caught:
        check_even(heap, PlacementConstraints())
    assert str(caught.value) == (
        "broker 3 would have 30 replicas, 2.14 times the mean; the fullest broker now has 1.29 times the mean, and"
        " 1.00 times is possible. A plan that exceeds both more than 1.5-fold needs --force"
    )
    with pytest.raises(UnevenError, match=r"needs --force \(as advised\)$"):
        check_even(heap, PlacementConstraints(), " (as advised)")


def wide(size: tuple[int, int], factor: int, seed: int) -> ClusterState:
    """Return racks of equal size with partitions that have a replica in each of some racks, leaders in turn."""
    rng, (count, each) = random.Random(seed), size
    brokers = tuple(Broker(1 + rack * each + at, f"r{rack}") for rack in range(count) for at in range(each))
    rows = [
        [1 + rack * each + (number + rng.randrange(each)) % each for rack in rng.sample(range(count), factor)]
        for number in range(24)
    ]
    return state(brokers=brokers, t=rows)


@pytest.mark.parametrize("rebalance", [False, True])
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize(
    ("size", "factor", "removed"),
    [((3, 2), 3, {4}), ((3, 2), 3, {1, 3, 5}), ((3, 2), 2, {6}), ((3, 3), 3, {1, 2}), ((2, 3), 2, {5, 6})],
)
def test_what_racks_force_is_no_heap(
    size: tuple[int, int], factor: int, removed: set[int], *, dead: bool, rebalance: bool
) -> None:
    """The other brokers of its rack take over what a removed broker has, or nothing does."""
    for seed in range(5):
        seen = wide(size, factor, seed)
        if dead:
            brokers = tuple(replace(broker, fenced=broker.id in removed) for broker in seen.brokers)
            seen = replace(seen, brokers=brokers)
        request = ReassignmentRequest(removed_brokers=frozenset(removed), rebalance=rebalance)
        found = plan_reassignment(seen, request, PlacementState())
        assert found.moves
        check_even(found, request.rules_for(None))
        # The lists in a file of another tool are judged likewise.
        given = plan_from_lists(seen, {tp: move.after for tp, move in found.moves.items()})
        check_even(given, PlacementConstraints(rackless="rack"))


def test_what_is_left_out_of_a_plan_is_as_it_is_in_the_most_even_layout() -> None:
    """Brokers 1 to 3 have most of what is being reassigned, and no plan can change that now."""
    rows = [[1, 3]] * 12 + [[2, 4], [5, 2], [6, 4]] * 2
    moving = state(t=rows, in_flight=frozenset(place(number) for number in range(12)))
    found = planned(moving, removed_brokers=frozenset({5}))
    assert {tp.partition for tp in found.moves}.isdisjoint(range(12))
    check_even(found, PlacementConstraints())


def test_a_broker_may_carry_as_much_as_its_weight_says() -> None:
    seen, weights = state(t=[[1], [2], [3], [4], [5], [6]] * 6), {1: 6.0}
    found = planned(seen, rebalance=True, rules={"weights": weights})
    assert Counter(row[0] for row in found.after.topics["t"])[1] > 18
    check_even(found, PlacementConstraints(weights=weights))
    with pytest.raises(UnevenError):
        check_even(found, PlacementConstraints())


def test_a_replica_more_of_a_few_is_no_heap() -> None:
    check_even(planned(state(t=[[1, 3], [2, 4]]), replication_factor=3), PlacementConstraints())
    check_even(planned(state(t=[[1], [2]]), replication_factor=3), PlacementConstraints())
    check_even(planned(state(t=[[1]]), replication_factor=6), PlacementConstraints())


def test_a_replica_more_than_the_largest_allowed_ratio_is_no_heap() -> None:
    """The mean is 2 replicas: 3 are 1.5 times as many, and a fourth is one more."""
    moved = planned(state(t=[[1], [2]]), replication_factor=3)
    even = Layout(BROKERS, {"t": ((1, 2), (3, 4), (5, 6), (1, 2), (3, 4), (5, 6))})
    four = Layout(BROKERS, {"t": ((1, 2), (3, 4), (5, 6), (1, 2), (1, 4), (1, 6))})
    check_even(replace(moved, before=even, after=four), PlacementConstraints())
    six = Layout(BROKERS, {"t": ((1, 2), (3, 4), (5, 6), (1, 2), (1, 4), (6, 1))} | {"u": ((1,), (1,))})
    with pytest.raises(UnevenError):
        check_even(replace(moved, before=even, after=six), PlacementConstraints())


def test_a_plan_warns_of_writes_that_one_broker_stops_and_of_brokers_that_stay_empty() -> None:
    seen = replace(state(t=[[1, 3, 5], [2, 4, 5]] * 6), min_isr={"t": 2})

    assert planned(seen).warnings == ("broker 6 has no replicas: --rebalance copies about 6 replicas to each",)
    assert planned(seen, rebalance=True).warnings == ()
    (warning, *_) = planned(seen, replication_factor=2).warnings
    assert warning.startswith("12 partitions would have as many replicas as min.insync.replicas: one offline broker")
