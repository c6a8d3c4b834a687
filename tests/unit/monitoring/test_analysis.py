"""What is made of a live group: where it reads from, what strategies would make of it, what would gain most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import UnknownTopicOrPartitionError

from rackassign.errors import ConfigError, InputError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.monitoring import (
    Advice,
    ClusterReport,
    GroupAnalysis,
    ObservedCluster,
    Price,
    RackMap,
    RecommendedChange,
    Throughput,
    TrafficMatrix,
    as_json,
    cluster_advice,
    collection_warnings,
    describe_change,
    describe_uncounted,
    rack_map_to_fill,
    verdict,
)
from rackassign.monitoring.live_groups import snapshot, topics_of
from rackassign.monitoring.report import describe_unknown, format_bytes, format_percent, format_usd
from rackassign.monitoring.throughput import LogSample, LogSamples, sample_logs
from rackassign.monitoring.throughput import compute_throughput as compared
from rackassign.scenario import read_group, write_group
from rackassign.strategies import Options, plan_cooperative
from rackassign.wire import Subscription
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates

ONE_EACH = {"t": [[1], [2], [3]]}
TURNED = group(member("m1", "a", {"t": [1]}), member("m2", "b", {"t": [2]}), member("m3", "c", {"t": [0]}))
HOME = group(member("m1", "a", {"t": [0]}), member("m2", "b", {"t": [1]}), member("m3", "c", {"t": [2]}))
EVEN = rates({("t", p): 1000.0 for p in range(3)})


def kinds(of: GroupAnalysis) -> list[str]:
    return [action.kind for action in of.actions]


def test_of_a_group_of_the_broker_the_assignors_of_brokers_are_compared() -> None:
    served = replace(TURNED, kind="consumer", strategy="uniform", epoch=3, assignment_epoch=3)
    seen = inspected(served, cluster(ONE_EACH), EVEN)
    assert [reach.strategy for reach in seen.reaches] == ["uniform", "range", "rackassign"]
    # `uniform` keeps what members have, and `range` deals in the order of members.
    assert [(r.partitions.local, r.moved) for r in seen.reaches] == [(0, 0), (3, 3), (3, 3)]
    advice = describe_change(seen.actions[0], [seen])
    assert advice.startswith("let brokers assign with rackassign's assignor")
    assert "the first change afterwards moves 3 partitions" in advice
    # One change for two groups moves the partitions of both.
    assert "moves 6 partitions" in describe_change(seen.actions[0], [seen, seen])
    ours = inspected(replace(served, strategy="rackassign"), cluster(ONE_EACH), EVEN)
    # What `uniform` would come to, and not that it would keep what the plug-in has planned.
    assert (ours.reaches[0].partitions.local, ours.reaches[0].moved) == (3, 3)
    assert "if `rackassign doctor` finds its plan outdated" in describe_change(ours.actions[0], [ours])
    moving = inspected(replace(served, strategy="rackassign", state="Reconciling"), cluster(ONE_EACH), EVEN)
    assert describe_change(moving.actions[0], [moving]) == "wait until members have what the broker planned"
    # There is no `max_skew` in brokers, so nothing advises it.
    crowded = replace(served, members=(*served.members, member("m4", "a", {})))
    assert "max-skew" not in kinds(inspected(crowded, cluster({"t": [[1]] * 9}), rates({})))


def test_a_group_that_reads_across_racks_is_told_to_switch() -> None:
    seen = inspected(TURNED, cluster(ONE_EACH), EVEN)
    assert seen.partitions == Locality(0, 3, 0)
    assert seen.local_share == 0.0
    assert seen.flows.pairs == {("b", "a"): 1000.0, ("c", "b"): 1000.0, ("a", "c"): 1000.0}
    assert (seen.flows.local, seen.flows.cross, seen.flows.unknown, seen.flows.total) == (0.0, 3000.0, 0.0, 3000.0)
    reach = seen.best
    assert (reach.partitions, reach.moved, reach.flows.cross) == (Locality(3, 0, 0), 3, 0.0)
    assert seen.actions == (RecommendedChange("strategy", 3, 3000.0, 3, 3000.0),)
    assert seen.savings_bytes_s == (3000.0, 3000.0)
    assert describe_change(seen.actions[0], [seen]) == "switch to cooperative-sticky of rackassign from range"


def test_a_group_at_home_is_told_nothing() -> None:
    seen = inspected(HOME, cluster(ONE_EACH), EVEN)
    assert (seen.partitions, seen.local_share, seen.actions) == (Locality(3, 0, 0), 1.0, ())
    assert [reach.moved for reach in seen.reaches] == [0, 0, 0]


def test_without_a_selector_local_means_the_leaders_rack() -> None:
    both = {"t": [[1, 2], [2, 3], [3, 1]]}
    followed = group(member("m1", "a", {"t": [2]}), member("m2", "b", {"t": [0]}), member("m3", "c", {"t": [1]}))
    near, far = inspected(followed, cluster(both)), inspected(followed, cluster(both, brokers(selector=None)))
    assert (near.read_policy, near.partitions) == ("any-replica", Locality(3, 0, 0))
    assert (far.read_policy, far.partitions) == ("leader", Locality(0, 3, 0))
    for seen in (near, far):
        assert seen.by_mode == {"any-replica": Locality(3, 0, 0), "leader": Locality(0, 3, 0)}
    # Planned with the leaders in view the group would be all local, too, but a selector alone makes it so.
    assert kinds(far) == ["selector"]
    assert (far.actions[0].gain, far.savings_bytes_s, far.best.partitions) == (3, (0.0, 0.0), Locality(3, 0, 0))


def test_a_selector_is_advised_with_the_strategy_where_neither_gains_alone() -> None:
    led_by_one = {"t": [[1, 2], [1, 3], [1, 2]]}
    seen = inspected(HOME, cluster(led_by_one, brokers(selector=None)), EVEN)
    assert seen.partitions == Locality(1, 2, 0)
    first = seen.actions[0]
    assert (first.kind, first.switches, first.gain, seen.savings_bytes_s) == ("selector", True, 2, (2000.0, 2000.0))
    assert describe_change(first, [seen]).endswith("and switch to cooperative-sticky of rackassign from range")
    # Brokers that do not report their selector may have one.
    unasked = cluster(led_by_one, brokers(selector=None, problem="not allowed"))
    first = inspected(HOME, unasked, EVEN).actions[0]
    assert (first.kind, first.uncertain, first.gain, first.gain_at_most) == ("selector", True, 0, 2)


def test_a_broker_that_cannot_be_asked_is_like_the_others() -> None:
    one, two, three = brokers()
    silent = replace(two, selector=None, problem="it has just died")
    live, layout = group(member("m", "c", {"t": [0]})), {"t": [[2, 3]]}
    assert inspected(live, cluster(layout, (one, silent, three))).partitions.local == 1
    plain = tuple(replace(broker, selector=None) for broker in (one, three))
    assert inspected(live, cluster(layout, (*plain, silent))).partitions.cross == 1


def test_brokers_may_differ_in_their_selectors() -> None:
    one, two, three = brokers()
    mixed = cluster({"t": [[1, 3], [2, 3]]}, (one, replace(two, selector=None), three))
    seen = inspected(group(member("m", "c", {"t": [0, 1]})), mixed)
    assert seen.read_policy == "mixed"
    # What broker 2 leads is read from there.
    assert [(read.tp.partition, read.source) for read in seen.now] == [(0, "c"), (1, "b")]


def test_a_copy_out_of_sync_serves_nobody_and_makes_no_strategy_better() -> None:
    there = cluster({"t": [[2, 1]]}, in_sync={"t": ((2,),)})
    seen = inspected(group(member("m", "a", {"t": [0]})), there)
    assert (seen.partitions, seen.out_of_sync) == (Locality(0, 1, 0), 1)
    assert seen.best.partitions == Locality(1, 0, 0)
    assert seen.actions == ()


def test_a_partition_without_leader_is_read_from_nowhere() -> None:
    there = cluster({"t": [[]]})
    assert inspected(group(member("m", "a", {"t": [0]})), there).partitions == Locality(0, 0, 1)


def test_racks_that_a_broker_away_had_still_count() -> None:
    known = (*brokers()[:2], replace(brokers()[2], fenced=True, selector=None))
    there = cluster({"t": [[2, 3]]}, known, in_sync={"t": ((2,),)})
    seen = inspected(group(member("m", "c", {"t": [0]})), there)
    assert (seen.read_policy, seen.partitions, seen.out_of_sync) == ("any-replica", Locality(0, 1, 0), 1)


SILENT = group(member("m1", None, {"t": [1]}), member("m2", None, {"t": [2]}), member("m3", None, {"t": [0]}))
MAP = RackMap({"m1": "a", "m2": "b", "m3": "c"})


def test_members_of_unknown_rack_are_named_and_their_reads_unknown() -> None:
    seen = inspected(SILENT, cluster(ONE_EACH), EVEN)
    assert seen.partitions == Locality(0, 0, 3)
    assert seen.flows.pairs == {("b", None): 1000.0, ("c", None): 1000.0, ("a", None): 1000.0}
    assert [m.id for m in seen.snapshot.unknown] == ["m1", "m2", "m3"]
    (action,) = seen.actions
    # Nothing is booked: that all are in one rack is as good a guess as any other.
    assert (action.kind, action.uncertain, action.gain, action.gain_bytes_s) == ("rack-map", True, 0, 0.0)
    assert (action.gain_at_most, action.gain_bytes_s_at_most) == (3, 3000.0)
    advice = "state the racks of m1, m2, m3 in a rack map (--rack-map FILE)"
    assert describe_change(action, [seen]) == f"{advice}: what they could read locally is unknown"
    assert action.members == ("m1", "m2", "m3")
    assert seen.best.partitions == Locality(0, 0, 3)


@pytest.mark.parametrize("mapped", [False, True], ids=["reported", "mapped"])
def test_a_rack_that_no_broker_has_is_unknown_and_the_names_come_first(*, mapped: bool) -> None:
    """Zone names against zone IDs: partitions in c have no member, as far as anything is known."""
    racks = {"m1": "us-east-1a", "m2": "b", "m3": "us-east-1a"}
    live = group(*(member(name, None if mapped else rack, {"t": [i]}) for i, (name, rack) in enumerate(racks.items())))
    seen = inspected(live, cluster(ONE_EACH), EVEN, RackMap(racks) if mapped else None)
    assert seen.partitions == Locality(1, 0, 2)
    assert seen.flows.pairs == {("b", "b"): 1000.0, ("a", None): 1000.0, ("c", None): 1000.0}
    assert seen.snapshot.foreign_racks == {"m1": "us-east-1a", "m3": "us-east-1a"}
    assert [m.id for m in seen.snapshot.unknown] == ["m1", "m3"]
    first = seen.actions[0]
    assert (first.kind, first.uncertain, first.members, first.gain_at_most) == ("rack", True, ("m1", "m3"), 2)
    told = describe_change(first, [seen])
    assert told == "use the brokers' names of racks (a, b, c) for m1, m3, which have 'us-east-1a'"
    assert told in verdict(seen, Price(), measured=True)
    assert describe_unknown(seen.snapshot) == (
        "m1 on 10.0.0.1 (no broker is in 'us-east-1a'), m3 on 10.0.0.1 (no broker is in 'us-east-1a')"
    )
    # What is reachable is unknown as well, and no zero.
    assert seen.best.partitions == Locality(1, 0, 2)


def test_of_members_with_foreign_racks_only_the_names_are_a_change() -> None:
    racks = {"m1": "use1-az1", "m2": "use1-az2", "m3": "use1-az3"}
    live = group(*(member(name, rack, {"t": [i]}) for i, (name, rack) in enumerate(racks.items())))
    seen = inspected(live, cluster(ONE_EACH), EVEN)
    assert (kinds(seen), seen.actions[0].uncertain) == (["rack"], True)
    assert seen.best.partitions == seen.partitions == Locality(0, 0, 3)
    assert seen.savings_bytes_s == (0.0, 3000.0)


def test_members_without_a_rack_and_with_a_foreign_one_are_told_apart() -> None:
    live = group(member("m1", "A", {"t": [0]}), member("m2", None, {"t": [1]}), member("m3", "c", {"t": [2]}))
    seen = inspected(live, cluster(ONE_EACH), EVEN)
    assert [describe_change(action, [seen]) for action in seen.actions] == [
        "use the brokers' names of racks (a, b, c) for m1, which has 'A'",
        "state the racks of m2 in a rack map (--rack-map FILE): what they could read locally is unknown",
    ]
    # Where no broker has a rack, members have no wrong names.
    plain = inspected(live, cluster(ONE_EACH, brokers((None, None, None))), EVEN)
    assert (plain.snapshot.foreign_racks, [m.id for m in plain.snapshot.unknown]) == ({}, ["m2"])


def test_a_rack_map_says_what_racks_would_gain() -> None:
    seen = inspected(SILENT, cluster(ONE_EACH), EVEN, MAP)
    assert (seen.partitions, seen.snapshot.unknown) == (Locality(0, 3, 0), ())
    # With rackassign each member reports the rack that is in the map.
    assert [(reach.partitions, reach.moved) for reach in seen.reaches] == [(Locality(3, 0, 0), 3)] * 3
    assert not seen.best.reasons
    (action,) = seen.actions
    assert (action.kind, action.gain, action.members) == ("strategy", 3, ("m1", "m2", "m3"))
    assert describe_change(action, [seen]).endswith("with the rack of each member, which m1, m2, m3 do not send")


def test_what_is_reachable_is_what_a_plan_of_the_snapshot_reaches() -> None:
    there = cluster({"t": [[1, 2], [2, 3], [3, 1]] * 4})
    live = group(*(member(f"m{i}", None, {"t": [i, i + 3, i + 6, i + 9]}) for i in range(3)), strategy="range")
    seen = inspected(live, there, racks=RackMap({"m0": "b", "m1": "c", "m2": "a"}))
    plan = plan_cooperative(seen.snapshot.group, Options())
    assert Locality.of(seen.snapshot.group, plan).local == 12
    assert seen.best.partitions == Locality(12, 0, 0)
    # They read from leaders now, and from local replicas once they have a rack of their own.
    assert seen.partitions.local < 12
    assert [(action.kind, seen.partitions.local + action.gain) for action in seen.actions] == [("rack", 12)]
    assert describe_change(seen.actions[0], [seen]) == (
        "set client.rack on m0, m1, m2, whose racks are only in the rack map"
    )


def test_one_member_of_unknown_rack_leaves_the_others_their_gain() -> None:
    live = group(*TURNED.members[:2], member("m3", None, {"t": [0]}))
    seen = inspected(live, cluster(ONE_EACH), EVEN)
    assert [(action.kind, action.uncertain) for action in seen.actions][:2] == [("strategy", False), ("rack-map", True)]
    assert (seen.actions[0].gain, seen.actions[1].gain_at_most) == (2, 1)


def test_who_sends_no_rack_is_taken_to_read_from_leaders_unless_named() -> None:
    there = cluster({"t": [[1, 2]]})
    live = group(member("m", None, {"t": [0]}))
    assert inspected(live, there, racks=RackMap({"m": "b"})).partitions == Locality(0, 1, 0)
    assert inspected(live, there, racks=RackMap({"m": "b"}, follower_fetchers=("*",))).partitions == Locality(1, 0, 0)


def test_what_is_sent_comes_before_the_map() -> None:
    shot = snapshot(HOME, cluster(ONE_EACH).topology, RackMap({"*": "z"}))
    assert [m.rack for m in shot.group.members] == ["a", "b", "c"]
    assert not shot.rack_map_members


def test_a_member_is_advised_where_it_helps() -> None:
    lone = group(member("m", "a", {"t": [0, 1, 2]}), strategy="cooperative-sticky")
    seen = inspected(lone, cluster(ONE_EACH), rates({("t", 0): 1.0, ("t", 1): 10.0, ("t", 2): 5.0}))
    (action,) = seen.actions
    assert (action.kind, action.rack, action.gain_bytes_s) == ("member", "b", 10.0)
    assert describe_change(action, [seen]) == "add a member in rack b, subscribed to t"
    # It reads all there is, wherever it is.
    assert seen.savings_bytes_s == (0.0, 0.0)


def test_each_change_counts_alone_and_what_costs_least_comes_first() -> None:
    live = group(member("m1", "a", {"t": [1, 2]}), member("m2", "b", {"t": [0]}))
    seen = inspected(live, cluster(ONE_EACH), EVEN)
    # One more member gains more, and is no first thing to do where the strategy gains two thirds of it.
    assert [(action.kind, action.gain_bytes_s) for action in seen.actions] == [("strategy", 2000.0), ("member", 3000.0)]
    assert describe_change(seen.actions[1], [seen]) == (
        "switch to cooperative-sticky of rackassign from range, and add a member in rack c, subscribed to t"
    )


def test_a_group_that_the_broker_serves_must_leave_it() -> None:
    seen = inspected(replace(TURNED, kind="consumer", strategy="uniform"), cluster(ONE_EACH))
    assert "group.protocol=classic" in describe_change(seen.actions[0], [seen])
    led = inspected(replace(TURNED, strategy="cooperative-sticky"), cluster(ONE_EACH))
    assert describe_change(led.actions[0], [led]) == "let a member with rackassign's cooperative-sticky lead"
    # A static member that returned in another rack has its old partitions, whoever leads.
    static = tuple(replace(each, instance_id=each.id) for each in led.snapshot.live.members)
    seen = inspected(replace(led.snapshot.live, members=static), cluster(ONE_EACH))
    assert describe_change(seen.actions[0], [seen]) == (
        "let a member with rackassign's cooperative-sticky lead, or plan again if `rackassign doctor` finds its plan"
        " outdated"
    )


def test_partitions_that_nobody_has_are_counted() -> None:
    seen = inspected(group(member("m", "a", {"t": [0]})), cluster(ONE_EACH))
    assert (seen.unassigned, seen.local_share) == (2, 1.0)
    empty = inspected(group(), cluster({}))
    assert (empty.local_share, empty.reaches, empty.actions) == (None, (), ())


def test_what_a_leader_sent_need_not_make_sense() -> None:
    odd = group(
        member("m1", "a", {"t": [0, 0, -1, 99], "gone": [3]}), replace(member("m2", "b", {}), subscription=None)
    )
    shot = snapshot(odd, cluster(ONE_EACH).topology, RackMap())
    assert shot.group.members[0].owned == {"gone": (3,), "t": (0, 99)}
    # A topic that nobody can describe is counted nowhere, and named where it is known why.
    assert inspected(odd, cluster(ONE_EACH)).partitions == Locality(1, 0, 1)


def test_topics_that_are_not_described_are_named_and_distort_nothing() -> None:
    there = replace(cluster(ONE_EACH), missing={"u": "TopicAuthorizationFailedError", "of others": "x"})
    live = group(*(replace(m, assigned={**m.assigned, "u": (i,)}) for i, m in enumerate(HOME.members)))
    seen = inspected(live, there, EVEN)
    assert (seen.partitions, seen.actions) == (Locality(3, 0, 0), ())
    assert [(reach.partitions, reach.moved) for reach in seen.reaches] == [(Locality(3, 0, 0), 0)] * 3
    assert seen.missing == {"u": "TopicAuthorizationFailedError"}
    assert collection_warnings(ClusterReport(there, (seen,), (), EVEN)) == [
        "g: topic u is not described: TopicAuthorizationFailedError"
    ]


@pytest.mark.parametrize(
    ("owned", "why", "text"),
    [
        ({"u": [0]}, "not allowed: DESCRIBE on topic u", "It is unknown what it reads: 1 topic cannot be described."),
        (
            {"t": [0], "u": [0]},
            "not allowed: DESCRIBE on topic u",
            "Nothing crosses racks as far as it is known: 1 topic cannot be described.",
        ),
        ({"u": [0]}, "UnknownTopicOrPartitionError", "It reads nothing."),
        ({"t": [0], "u": [0]}, "UnknownTopicOrPartitionError", "Nothing crosses racks."),
    ],
)
def test_of_topics_that_are_not_described_nothing_is_stated(owned: Any, why: str, text: str) -> None:
    there = replace(cluster(ONE_EACH), missing={"u": why})
    assert verdict(inspected(group(member("m", "a", owned)), there), Price(), measured=False) == text


def test_bytes_that_were_not_measured_may_cross_racks() -> None:
    seen = inspected(group(member("m", "a", {"t": [0, 1]})), cluster(ONE_EACH), rates({("t", 0): 1000.0}))
    assert (seen.flows.total, seen.flows.cross_at_most, seen.flows.unmeasured) == (1000.0, 0.0, 1)
    assert verdict(seen, Price(), measured=True).startswith("1 of 2 partitions are read across racks")


def test_an_uneven_group_that_is_local_is_told_nothing() -> None:
    uneven = group(member("m1", "a", {"t": [0, 1, 2]}), member("m2", "b", {"t": [3]}))
    assert inspected(uneven, cluster({"t": [[1], [1], [1], [2]]})).actions == ()


THREE_ZONES = {"t": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}
"""Three replicas in three racks, as most clusters have."""


def surveyed(*of: GroupAnalysis, there: ObservedCluster, measured: Throughput = EVEN) -> ClusterReport:
    return ClusterReport(there, of, (), replace(measured, seconds=10.0))


def test_one_line_on_the_brokers_is_the_only_advice_for_all_groups_with_a_replica_in_each_rack() -> None:
    there = cluster(THREE_ZONES, brokers(selector=None))
    silent = inspected(replace(SILENT, name="silent"), there, EVEN)
    far = [inspected(replace(TURNED, name=f"far-{number}"), there, EVEN) for number in range(200)]
    report = surveyed(silent, *far, there=there)
    (row,) = cluster_advice(report)
    assert (row.change.kind, len(row.groups), row.who) == ("selector", 201, "far-0, far-1, far-10 and 198 more")
    # Of members whose rack is unknown only the leaders are known from which they read.
    assert (row.change.gain, row.change.gain_at_most) == (600, 603)
    assert row.what.endswith("so that near replicas are read, and client.rack on m1, m2, m3")
    assert report.savings_bytes_s == (0.0, 0.0)
    assert rack_map_to_fill([row]) is None


def test_where_each_rack_has_a_replica_client_rack_is_all_that_matters() -> None:
    seen = inspected(SILENT, cluster(THREE_ZONES), EVEN)
    assert (seen.partitions, seen.in_each_rack, seen.savings_bytes_s) == (Locality(0, 0, 3), 3, (0.0, 0.0))
    assert (seen.local_share, seen.local_share_at_most) == (0.0, 1.0)
    (action,) = seen.actions
    assert (action.kind, action.gain, action.gain_at_most) == ("rack", 0, 3)
    assert describe_change(action, [seen]) == (
        "client.rack alone makes this local, whatever is assigned: check that each consumer of m1, m2, m3 sets it"
    )
    # A wrong name reads from leaders, and a rack without a replica in sync from another one.
    foreign = inspected(group(member("m", "A", {"t": [0]})), cluster(THREE_ZONES), EVEN)
    lagging = inspected(SILENT, cluster(THREE_ZONES, in_sync={"t": ((1, 2), (2, 3), (3, 1))}), EVEN)
    assert (foreign.in_each_rack, lagging.in_each_rack) == (0, 0)


def test_racks_of_members_are_asked_for_once_with_a_map_to_fill_in() -> None:
    there = cluster(ONE_EACH)
    groups = [inspected(replace(SILENT, name=f"g{number:02}"), there, EVEN) for number in range(20)]
    (row,) = cluster_advice(surveyed(*groups, there=there))
    assert (row.change.kind, len(row.groups), row.change.gain_at_most) == ("rack-map", 20, 60)
    assert rack_map_to_fill([row]) == {"hosts": {"10.0.0.1": ""}}
    many = [replace(m, host=f"10.0.{i // 30}.{i}") for i, m in enumerate(SILENT.members * 30)]
    numbered = [replace(m, id=f"m{i}", assigned=m.assigned if i < 3 else {}) for i, m in enumerate(many)]
    seen = inspected(group(*numbered), there, EVEN)
    template = rack_map_to_fill(cluster_advice(surveyed(seen, there=there)))
    assert template == {"subnets": {"10.0.0.0/24": "", "10.0.1.0/24": "", "10.0.2.0/24": ""}}
    with pytest.raises(InputError, match=r"subnets\.10\.0\.0\.0/24: expected the name of a rack"):
        RackMap.read(template)


def test_a_replica_costs_what_is_copied_to_it() -> None:
    there = cluster(ONE_EACH)

    def lone(name: str, rates_: Throughput = EVEN) -> GroupAnalysis:
        return inspected(group(member("m", "a", {"t": [0, 1, 2]}), name=name), there, rates_)

    def replicas(*groups: GroupAnalysis, free: bool = False) -> list[Advice]:
        advice = cluster_advice(surveyed(*groups, there=there), free_replication=free)
        return [row for row in advice if row.change.kind == "replicas"]

    # What one group reads crosses once, and so does the copy of it. A group that catches up will not for long.
    assert not replicas(lone("g"), lone("h", rates({("t", 0): 9e9})))
    (two,) = replicas(lone("g"), lone("h"), lone("i"))
    assert (two.change.gain, two.change.gain_bytes_s, two.change.copied_bytes_s) == (6, 4000.0, 2000.0)
    assert two.what == "add a replica of 2 partitions of t in rack a; the gain is without what is replicated to it"
    (free,) = replicas(lone("g"), free=True)
    assert (free.change.gain_bytes_s, free.change.copied_bytes_s, free.who) == (2000.0, 0.0, "g")
    assert Price.from_options(None, "msk").free_replication
    # Another assignment makes all of it local, and costs less.
    assert not replicas(inspected(TURNED, there, EVEN), inspected(replace(TURNED, name="h"), there, EVEN))


def test_what_is_not_counted_is_named() -> None:
    there = cluster(THREE_ZONES)
    seen = surveyed(inspected(HOME, there, EVEN), there=there)
    start = "Only what consumers read is counted. Producers and replication cross racks, too, and often more"
    start += " (`rackassign bill` has all of it)"
    written = "3 kB/s are written to the topics of this report, which are 6 kB/s of replication across racks"
    assert describe_uncounted(seen, Price()) == f"{start}: {written} (0.32 USD a month)."
    # A group without members has committed offsets of a topic that is measured and not described.
    gone = replace(seen, measured=replace(seen.measured, bytes_s={**EVEN.bytes_s, TopicPartition("gone", 0): 9e9}))
    assert describe_uncounted(gone, Price()) == describe_uncounted(seen, Price())
    assert describe_uncounted(seen, Price.from_options(None, "msk")) == f"{start}: {written} (not billed)."
    assert describe_uncounted(replace(seen, measured=Throughput()), Price()) == f"{start}."


def test_members_with_one_pattern_subscribe_to_all_that_any_of_them_has() -> None:
    by_pattern: dict[str, Any] = {"pattern": "^t.*", "subscription": Subscription((), rack="a")}
    live = group(
        member("m1", "a", {"t": [0]}, **by_pattern), member("m2", "a", {"u": [0]}, **by_pattern), kind="consumer"
    )
    shot = snapshot(live, cluster({**ONE_EACH, "u": [[1]]}).topology, RackMap())
    assert [m.topics for m in shot.group.members] == [{"t", "u"}] * 2
    assert inspected(live, cluster({**ONE_EACH, "u": [[1]]})).unassigned == 2


def test_a_snapshot_is_a_scenario_with_its_own_topics_only() -> None:
    live = replace(TURNED, name="orders")
    assert topics_of(live) == {"t"}
    shot = snapshot(live, cluster({**ONE_EACH, "other": [[1]]}).topology, RackMap())
    written = json.loads(json.dumps(write_group(shot.group)))
    assert (written["name"], list(written["topics"])) == ("orders", ["t"])
    assert [m["owned"] for m in written["members"]] == [{"t": [1]}, {"t": [2]}, {"t": [0]}]
    assert read_group(written) == shot.group


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.lists(st.integers(1, 3), min_size=1, max_size=12))
def test_flows_add_up_and_no_strategy_promises_what_is_not_so(racks: list[str], leaders: list[int]) -> None:
    there = cluster({"t": [[leader] for leader in leaders]})
    owned: list[list[int]] = [[] for _ in racks]
    for p in range(len(leaders)):
        owned[p % len(racks)].append(p)
    live = group(*(member(f"m{i}", rack, {"t": owned[i]}, "t") for i, rack in enumerate(racks)))
    seen = inspected(live, there, rates({("t", p): 1.0 + p for p in range(len(leaders))}))
    assert seen.flows.total == pytest.approx(sum(1.0 + p for p in range(len(leaders))))
    assert seen.flows.local + seen.flows.cross == pytest.approx(seen.flows.total)
    for reach in seen.reaches:
        assert reach.flows.total == pytest.approx(seen.flows.total)
        assert reach.partitions.local + reach.partitions.cross == len(leaders)
    assert all(action.gain_bytes_s > 0 for action in seen.actions)
    assert len(seen.actions) <= 3


# --- rates


def log(size_: int, first: int, end: int, at_s: float = 0.0) -> LogSample:
    return LogSample(at_s, size_, first, end)


@pytest.mark.parametrize(
    ("then", "now", "bytes_s"),
    [
        (log(1000, 0, 10), log(3000, 0, 30, 2.0), 1000.0),
        (log(0, 0, 0), log(0, 0, 0, 2.0), 0.0),
        # The old end was deleted: 20 records came, of 100 bytes on average.
        (log(1000, 0, 10), log(1500, 15, 30, 2.0), 1000.0),
        # It was compacted.
        (log(5000, 0, 10), log(1000, 0, 20, 1.0), 500.0),
        # All of it was deleted, and nothing came.
        (log(5000, 0, 10), log(0, 10, 10, 1.0), 0.0),
        # The topic was made anew.
        (log(5000, 0, 500), log(100, 0, 1, 1.0), 0.0),
    ],
)
def test_what_is_written_shows_in_what_a_log_grows_by(then: LogSample, now: LogSample, bytes_s: float) -> None:
    place = TopicPartition("t", 0)
    assert compared(LogSamples({place: then}), LogSamples({place: now})).bytes_s == {place: bytes_s}


def test_bytes_are_those_of_the_logs_whenever_each_broker_was_asked() -> None:
    early, late = TopicPartition("t", 0), TopicPartition("t", 1)
    before = LogSamples({early: log(0, 0, 0, 0.0), late: log(0, 0, 0, 0.5)})
    measured = compared(before, LogSamples({early: log(3000, 0, 30, 2.0), late: log(600, 0, 6, 1.5)}))
    assert measured.bytes_written == {early: 3000, late: 600}
    assert (measured.bytes_s, measured.seconds) == ({early: 1500.0, late: 600.0}, 2.0)


def test_a_new_leader_that_has_compacted_less_has_not_been_written_to() -> None:
    place = TopicPartition("t", 0)
    before = LogSamples({place: LogSample(0.0, 1000, 0, 10, broker=1)})
    idle = LogSamples({place: LogSample(10.0, 10**9, 0, 10, broker=2)})
    assert compared(before, idle).bytes_written == {place: 0.0}
    busy = LogSamples({place: LogSample(10.0, 2000, 0, 20, broker=2)})
    assert compared(before, busy).bytes_written == {place: 1000.0}


def test_what_came_and_is_gone_already_is_not_measured() -> None:
    place = TopicPartition("t", 0)
    measured = compared(LogSamples({place: log(5000, 0, 10)}), LogSamples({place: log(0, 500, 500, 1.0)}))
    assert (measured.bytes_s, measured.records_s) == ({}, {place: 490.0})


def test_a_topic_that_is_gone_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def offsets(_: object, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        if any(place.topic == "gone" for place in places):
            raise UnknownTopicOrPartitionError
        return dict.fromkeys(places, (0, 7))

    def sizes(_: object, _broker: int, wanted: Mapping[str, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, p): 5 for topic, count in wanted.items() for p in range(count)}

    monkeypatch.setattr("rackassign.monitoring.throughput.list_offsets", offsets)
    monkeypatch.setattr("rackassign.monitoring.throughput.describe_log_dirs", sizes)
    there = cluster({"t": [[1]], "gone": [[1]], "u": [[2]]})
    seen = sample_logs(object(), there.topology.topics, clock=lambda: 1.0)
    assert seen == LogSamples(
        {TopicPartition(topic, 0): LogSample(1.0, 5, 0, 7, broker) for topic, broker in (("t", 1), ("u", 2))}
    )


def test_partitions_seen_once_are_not_measured() -> None:
    place, other = TopicPartition("t", 0), TopicPartition("t", 1)
    measured = compared(LogSamples({place: log(1, 0, 1)}, ("p",)), LogSamples({other: log(1, 0, 1, 1.0)}, ("p", "q")))
    assert (measured.bytes_s, measured.seconds, measured.problems) == ({}, 0.0, ("p", "q"))
    seen = inspected(HOME, cluster(ONE_EACH), rates({("t", 0): 5.0}))
    assert (seen.flows.total, seen.flows.unmeasured) == (5.0, 2)
    (trouble,) = collection_warnings(ClusterReport(cluster(ONE_EACH), (seen,), (), rates({("t", 0): 5.0})))
    assert trouble == "g: 2 partitions were not measured, so the sums are too low"


# --- the rack map


def test_a_member_is_found_by_client_then_host_then_smallest_network() -> None:
    racks = RackMap(
        {"orders-*": "a", "*": "never"}, {"10.1.*": "b"}, {"10.0.0.0/8": "c", "10.2.0.0/16": "d", "::/0": "e"}
    )
    assert racks.rack_of("orders-1", "10.1.0.1") == "a"
    fewer = replace(racks, client_ids={"x": "x"})
    assert fewer.rack_of("orders-1", "10.1.0.1") == "b"
    assert fewer.rack_of("orders-1", "10.2.0.1") == "d"
    assert fewer.rack_of("orders-1", "::ffff:10.3.0.1") == "c"
    assert fewer.rack_of("orders-1", "2001:db8::1") == "e"
    assert fewer.rack_of("orders-1", "no address") is None
    assert racks.racks() == {"a", "b", "c", "d", "e", "never"}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], ""),
        ({"clients": {}}, ""),
        ({"client_ids": []}, "client_ids"),
        ({"hosts": {"h": 7}}, "hosts.h"),
        ({"hosts": {"h": ""}}, "hosts.h"),
        ({"subnets": {"10.0.0.1/8": "a"}}, "subnets.10.0.0.1/8"),
        ({"subnets": {"nonsense": "a"}}, "subnets.nonsense"),
        ({"follower_fetchers": "x"}, "follower_fetchers"),
        ({"follower_fetchers": [1]}, "follower_fetchers[0]"),
    ],
)
def test_a_wrong_rack_map_names_the_field(value: Any, field: str) -> None:
    with pytest.raises(InputError) as error:
        RackMap.read(value)
    assert error.value.path == field


def test_a_rack_map_is_read() -> None:
    read = RackMap.read({"subnets": {"10.0.0.0/24": "a"}, "follower_fetchers": ["x*"]})
    assert (read.rack_of("c", "10.0.0.9"), read.reads_near("xy"), read.reads_near("y")) == ("a", True, False)


# --- figures


def test_a_month_has_730_hours() -> None:
    assert Price().monthly(1e9 / 3600) == pytest.approx(730 * 0.02)
    assert Price.from_options(0.05).monthly(1e9 / 3600) == pytest.approx(730 * 0.05)
    assert Price.from_options(0.05).source == "as given"
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="price"):
            Price(wrong)


@pytest.mark.parametrize(("cloud", "usd"), [("aws", 0.02), ("google", 0.01), ("azure", 0.0)])
def test_a_cloud_has_its_list_price_and_says_of_what(cloud: str, usd: float) -> None:
    price = Price.from_options(None, cloud)
    assert price.monthly(1e9 / 3600) == pytest.approx(730 * usd)
    assert cloud in price.source.lower()
    assert Price.from_options(None) == Price.from_options(None, "aws")


def test_figures_are_short_and_never_round_to_all_or_nothing() -> None:
    assert [format_percent(*of) for of in ((0, 0), (0, 9), (1, 9999), (1, 3), (9998, 9999), (9, 9))] == [
        *("-", "0.0 %", "<0.1 %", "33.3 %", ">99.9 %", "100.0 %")
    ]
    assert [format_bytes(b) for b in (0, 999, 1000, 999_499, 999_999, 1.5e9, 2e15, -1500)] == [
        *("0 B", "999 B", "1 kB", "999 kB", "1 MB", "1.5 GB", "2e+03 TB", "-1.5 kB")
    ]
    assert [format_usd(usd) for usd in (0, 1.234, 99.99, 12345.6)] == ["0.00", "1.23", "99.99", "12,346"]


def test_json_says_null_for_what_was_not_measured() -> None:
    there = cluster(ONE_EACH)
    for measured in (EVEN, Throughput()):
        survey = ClusterReport(there, (inspected(TURNED, there, measured),), (), measured)
        (written,) = json.loads(json.dumps(as_json(survey, Price())))["groups"]
        assert written["partitions"] == {"local": 0, "cross": 3, "unknown": 0}
        assert [m["rack_source"] for m in written["members"]] == ["member"] * 3
        if measured is EVEN:
            assert written["bytes_per_second"] == {"local": 0.0, "cross": 3000.0, "unknown": 0.0}
            assert written["usd_per_month"]["cross"] == round(3000 * 730 * 3600 / 1e9 * 0.02, 2)
            assert written["flows"][0] == {"from": "a", "to": "c", "bytes_per_second": 1000.0}
        else:
            assert written["bytes_per_second"] is written["usd_per_month"] is written["flows"] is None
            assert written["actions"][0]["gain_usd_per_month"] is None


def test_flows_know_what_stays_and_what_crosses() -> None:
    flows = TrafficMatrix({("a", "a"): 1.0, ("a", "b"): 2.0, (None, "b"): 4.0, ("a", None): 8.0, (None, None): 16.0})
    assert (flows.local, flows.cross, flows.unknown, flows.total) == (1.0, 2.0, 28.0, 31.0)


def test_equal_groups_have_equal_savings_in_any_process() -> None:
    script = """
from tests.helpers.builders import cluster, group, inspected, member, rates
there = cluster({"t": [[1], [2], [3]] * 10})
live = group(member("m1", None, {"t": range(15)}), member("m2", None, {"t": range(15, 30)}))
print(inspected(live, there, rates({("t", p): 0.1 * 1.7**p for p in range(30)})).savings_bytes_s)
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "0123"
    }
    assert len(printed) == 1
