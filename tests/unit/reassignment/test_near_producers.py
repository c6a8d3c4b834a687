"""Leaders and replicas near producers: the fewest bytes across racks, within bounds, and never at the readers' cost."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rackassign.admin.describe import DescribedTopic
from rackassign.cli.app import run
from rackassign.cli.commands import reassign
from rackassign.cli.layouts import prediction_as_json, show_prediction, show_prepared
from rackassign.errors import ConfigError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.monitoring import BrokerDescription, MemberDescription, RackMap, ReadRates
from rackassign.monitoring.analysis import inspect
from rackassign.monitoring.live_groups import snapshot
from rackassign.monitoring.report import Price
from rackassign.monitoring.written_bytes import WrittenBytes, WrittenSeries
from rackassign.placement import PlacementConstraints
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.layout import Layout
from rackassign.placement.leader_traffic import CrossRackBytes, LeaderTraffic, OwnerReads
from rackassign.placement.local_reads import GroupLocality
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import (
    Journal,
    PreparedReassignment,
    ReassignmentPlan,
    ReassignmentRequest,
    plan_leader_balance,
    plan_reassignment,
)
from tests.helpers.builders import SELECTOR, cluster, group, member
from tests.helpers.examples import seeds
from tests.helpers.highs import cheapest_choice

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("aabbcc", 1))
RACKS = dict(enumerate("aabbcc", 1))

Rows = Sequence[Sequence[int]]
Written = Sequence[Mapping[str | None, int]]
"""Bytes of each partition of topic t, by rack of the producer."""


def state(
    rows: Rows,
    others: Mapping[str, Rows] | None = None,
    *,
    down: Sequence[int] = (),
    brokers: Sequence[Broker] = BROKERS,
) -> ClusterState:
    def described(lists: Rows) -> DescribedTopic:
        up = [tuple(broker for broker in row if broker not in down) for row in lists]
        return DescribedTopic(
            tuple(Partition(tuple(row), next(iter(live), None)) for row, live in zip(lists, up, strict=True)),
            tuple(up),
            tuple(tuple(broker for broker in row if broker in down) for row in lists),
        )

    known = tuple(replace(broker, fenced=broker.id in down) for broker in brokers)
    return ClusterState(known, {name: described(lists) for name, lists in {"t": rows, **(others or {})}.items()})


def metrics(written: Written, topic: str = "t") -> WrittenBytes:
    return WrittenBytes(
        {
            WrittenSeries(topic, number, rack, "a"): count
            for number, by_rack in enumerate(written)
            for rack, count in by_rack.items()
        }
    )


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def balanced(seen: ClusterState, written: Written, **more: Any) -> ReassignmentPlan:
    rules = PlacementConstraints(leader_racks=more.pop("leader_racks", frozenset()))
    return plan_leader_balance(seen, rules, None, LeaderTraffic.of(metrics(written), seen, **more))


def moved(seen: ClusterState, written: Written, near: GroupLocality | None = None, **more: Any) -> ReassignmentPlan:
    traffic = LeaderTraffic.of(
        metrics(written),
        seen,
        None if near is None else OwnerReads.of(near),
        more.pop("max_skew", 0),
        free_replication=more.pop("free_replication", False),
    )
    request = ReassignmentRequest(**{"group": "g" if near is not None else "", **more})
    coverage = None if near is None else near.members_per_rack(["t"])
    return plan_reassignment(seen, request, PlacementState(), coverage, near, clients=traffic)


def prepared(seen: ClusterState, planned: ReassignmentPlan, traffic: LeaderTraffic) -> PreparedReassignment:
    return PreparedReassignment(seen, planned, Journal("c"), clients=traffic)


def across(leader: str, racks: Sequence[str], by_rack: Mapping[str | None, int]) -> int:
    """Return the bytes of a partition across racks, of producers and followers, given the racks of its replicas."""
    sent = sum(count for rack, count in by_rack.items() if rack not in {None, leader})
    return sent + sum(by_rack.values()) * sum(rack != leader for rack in racks)


def crossing(layout: Layout, written: Written) -> int:
    """Return the bytes across racks with the first replica of each list as the leader."""
    rows = zip(layout.topics["t"], written, strict=True)
    return sum(across(RACKS[row[0]], [RACKS[broker] for broker in row], by_rack) for row, by_rack in rows)


def led(layout: Layout) -> Counter[int]:
    return Counter(row[0] for rows in layout.topics.values() for row in rows)


def near_of(rows: Rows, *members: MemberDescription, selector: str = SELECTOR) -> GroupLocality:
    there = cluster(
        {"t": rows}, tuple(BrokerDescription(broker.id, broker.rack, selector=selector) for broker in BROKERS)
    )
    shot = snapshot(group(*members), there.topology, RackMap())
    racks = [each.rack for each in shot.group.members]
    coverage = {rack: racks.count(rack) for rack in "abc"}
    return GroupLocality(there, inspect(shot, there, ReadRates()), coverage, {}, 0)


def test_each_partition_is_led_where_it_is_written_and_nothing_is_copied() -> None:
    rows = [[1, 3, 5]] * 3
    written: Written = [{"a": 9, "b": 1}, {"b": 9, "c": 1}, {"c": 9, "a": 1}]
    found = balanced(state(rows), written)

    assert [row[0] for row in found.after.topics["t"]] == [1, 3, 5]
    assert all(sorted(move.before) == sorted(move.after) for move in found.moves.values())
    assert (found.copies, set(found.moves)) == (0, {place(1), place(2)})


def test_balance_bounds_what_producers_gain_as_far_as_the_option_allows() -> None:
    rows = [[3, 1]] * 4 + [[1, 3]] * 4
    written: Written = [{"a": 10 + number} for number in range(8)]
    seen = state(rows, brokers=(BROKERS[0], BROKERS[2]))

    numbers = [led(balanced(seen, written, max_skew=skew).after) for skew in (0, 1, 10**30)]

    assert numbers == [{1: 4, 3: 4}, {1: 5, 3: 3}, {1: 8}]
    # Those with the fewest bytes are led from the other rack.
    even = balanced(seen, written)
    assert [row[0] for row in even.after.topics["t"]] == [3] * 4 + [1] * 4


def test_a_second_plan_goes_no_further_beyond_the_bounds() -> None:
    seen = state([[1, 3, 5], [3, 5, 1], [5, 1, 3]] * 3, brokers=BROKERS[::2])
    written: Written = [{"a": 1}] * 9

    first = moved(seen, written, max_skew=1)
    second = moved(state(first.after.topics["t"], brokers=BROKERS[::2]), written, max_skew=1)

    assert led(first.after) == {1: 4, 3: 2, 5: 3}
    assert second.moves == {}
    # Leaders that are less even may stay so.
    assert moved(state([[1, 3]] * 9, brokers=BROKERS[::2]), written, max_skew=1).moves == {}


def test_fewer_replicas_keep_one_where_most_is_written() -> None:
    rows = [[1 + (number + copy) % 6 for copy in range(3)] for number in range(12)]
    homes = [RACKS[row[2]] for row in rows]
    found = moved(state(rows), [{home: 1} for home in homes], max_skew=12, replication_factor=2)

    assert found.copies == 0
    assert [RACKS[row[0]] for row in found.after.topics["t"]] == homes


def test_partitions_without_bytes_keep_their_leader() -> None:
    rows = [[1, 3, 5], [3, 5, 1], [5, 1, 3]] * 4
    found = balanced(state(rows), [{}] * 11 + [{"a": 5}], max_skew=2)

    assert set(found.moves) == {place(11)}
    assert found.after.topics["t"][11][0] == 1


def test_an_uneven_lead_without_bytes_across_racks_stays_whatever_else_is_led() -> None:
    seen = state([[1, 3, 5]] * 12, {"idle": [[3, 5, 1], [5, 1, 3]] * 9})
    found = balanced(seen, [{"a": 1000}] * 12)

    assert (found.moves, found.skews) == ({}, {})
    # Nor is the acting leader given up, beside which the preferred one has fewer bytes across racks for others only.
    acting = replace(seen, topics={"t": replace(seen.topics["t"], partitions=(Partition((1, 3, 5), 3),) * 12)})
    kept = balanced(acting, [{"b": 1000}] * 12)
    assert {row[0] for row in kept.after.topics["t"]} == {3}


@pytest.mark.parametrize("plan", [balanced, moved])
def test_what_the_next_skews_save_is_shown_until_nothing_more_crosses_racks(
    plan: Callable[..., ReassignmentPlan],
) -> None:
    seen = state([[1, 3, 5], [3, 5, 1], [5, 1, 3]] * 8, brokers=BROKERS[::2])
    written: Written = [{"a": 1000}] * 24

    # Of producers; each byte is copied to two other racks as well, whoever leads.
    assert crossing(plan(seen, written).after, written) == 16_000 + 2 * 24_000
    assert plan(seen, written).skews == {1: 1000, 2: 2000, 5: 5000}
    assert plan(seen, written, max_skew=5).skews == {10: 5000, 20: 11_000}
    assert plan(seen, written, max_skew=20).skews == {}


def leading(row: Sequence[int], by_rack: Mapping[str | None, int], *, copying: bool) -> dict[int, int]:
    """Return the bytes across racks with each leader: a replica, or any broker in place of one replica."""
    racks = [RACKS[broker] for broker in row]
    found = {broker - 1: across(RACKS[broker], racks, by_rack) for broker in row}
    for broker in set(RACKS) - set(row) if copying else ():
        placed = [[*racks[:at], RACKS[broker], *racks[at + 1 :]] for at in range(len(row))]
        fair = [
            of
            for of in placed
            if len(set(of)) >= len(set(racks)) and max(Counter(of).values()) <= max(Counter(racks).values())
        ]
        found[broker - 1] = min(across(RACKS[broker], of, by_rack) for of in fair)
    return found


def fewest(led_now: Sequence[Counter[int]], even: Counter[int], costs: Sequence[Mapping[int, int]], skew: int) -> int:
    """Return the fewest bytes across racks if each partition chooses its leader, by an integer program."""
    low = [min(max(0, min(len(costs) // 6, even[b]) - skew), *(now[b] for now in led_now)) for b in RACKS]
    high = [max(max(-(-len(costs) // 6), even[b]) + skew, *(now[b] for now in led_now)) for b in RACKS]
    least = cheapest_choice(costs, low, high)
    assert least is not None
    return least


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_no_leaders_and_no_new_replicas_have_fewer_bytes_across_racks_and_a_second_plan_moves_nothing(
    seed: int,
) -> None:
    rng = random.Random(seed)
    rows = [rng.sample(range(1, 7), rng.randint(1, 4)) for _ in range(rng.randint(6, 40))]
    written: Written = [{rack: rng.choice([1, rng.randint(1, 10**6)]) for rack in (*"abc", "zz")} for _ in rows]
    skew, idle = rng.choice([0, 1, 5]), {"idle": [[1]] * rng.choice([0, 9])}
    seen = state(rows, idle)
    now = Counter(row[0] for row in rows)

    found = balanced(seen, written, max_skew=skew)

    even = led(plan_leader_balance(state(rows), PlacementConstraints()).after)
    costs = [leading(row, by_rack, copying=False) for row, by_rack in zip(rows, written, strict=True)]
    assert crossing(found.after, written) == fewest([now], even, costs, skew) <= crossing(found.before, written)
    assert (found.notes, balanced(state(found.after.topics["t"], idle), written, max_skew=skew).moves) == ((), {})

    repaired = plan_reassignment(seen, ReassignmentRequest(), PlacementState()).after.topics["t"]
    better = moved(seen, written, max_skew=skew)
    lists = better.after.topics["t"]
    costs = [leading(row, by_rack, copying=True) for row, by_rack in zip(repaired, written, strict=True)]
    fair = Counter(dict.fromkeys(RACKS, len(rows) // 6))
    least = fewest([now, Counter(row[0] for row in repaired)], fair, costs, skew)
    assert crossing(better.after, written) == least
    for before, row in zip(repaired, lists, strict=True):
        assert len({RACKS[broker] for broker in row}) >= len({RACKS[broker] for broker in before})
        assert len(set(row)) == len(before)
    again = moved(state(lists, idle), written, max_skew=skew)
    assert (again.moves, better.notes) == ({}, ())


@pytest.mark.parametrize("selector", ["", SELECTOR])
@pytest.mark.parametrize("seed", seeds(20, 300))
def test_readers_lose_nothing_to_producers_and_a_second_plan_moves_nothing(seed: int, selector: str) -> None:
    rng = random.Random(seed)
    count = rng.randint(6, 20)
    rows = [rng.sample(range(1, 7), rng.choice([1, 2, 2, 3, 4])) for _ in range(count)]
    written: Written = [{rack: rng.randint(1, 100) for rack in "abc"} for _ in rows]
    # Members in all racks, or in some, twice in one, and of unknown rack.
    homes = rng.choice(["abc", "ab", "aac", "aab", "cab", ["b", None], ["a", None, "c"], ["b", "c", "c", None, "a"]])
    owned = [tuple(range(at, count, len(homes))) for at in range(len(homes))]
    members = [member(f"m{at}", rack, {"t": owned[at]}, "t") for at, rack in enumerate(homes)]

    def planned(lists: Rows, **more: Any) -> tuple[ReassignmentPlan, GroupLocality]:
        near = near_of(lists, *members, selector=selector)
        return moved(state(lists), written, near, **more), near

    near = near_of(rows, *members, selector=selector)
    coverage = near.members_per_rack(["t"])
    alone = plan_reassignment(state(rows), ReassignmentRequest(group="g"), PlacementState(), coverage, near)
    found, near = planned(rows, max_skew=2)

    assert near.local_partitions(found.after) >= near.local_partitions(alone.after)
    assert crossing(found.after, written) <= crossing(alone.after, written)
    assert planned(found.after.topics["t"], max_skew=2)[0].moves == {}


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_balanced_brokers_near_producers_are_left_as_they_are_by_a_second_plan(seed: int) -> None:
    rng = random.Random(seed)
    rows = [rng.sample(range(1, 7), 1 + seed % 3) for _ in range(rng.randint(2, 14))]
    written: Written = [{rack: rng.randint(1, 100) for rack in "abc"} for _ in rows]

    found = moved(state(rows), written, rebalance=True, max_skew=seed % 2)

    assert moved(state(found.after.topics["t"]), written, rebalance=True, max_skew=seed % 2).moves == {}


def test_a_new_broker_is_filled_near_producers_as_it_is_without_them() -> None:
    seen = state([[1 + n % 2, 3 + n % 2, 5 + n % 2] for n in range(42)], brokers=(*BROKERS, Broker(7, "a")))
    written: Written = [dict.fromkeys("abc", 1)] * 42
    alone = plan_reassignment(seen, ReassignmentRequest(rebalance=True), PlacementState())

    found = moved(seen, written, rebalance=True)

    held = Counter(broker for row in found.after.topics["t"] for broker in row)
    assert held == Counter(broker for row in alone.after.topics["t"] for broker in row)
    assert (held[7], found.copies, found.lower_bound) == (14, alone.copies, alone.copies)


def test_a_replica_that_makes_room_for_others_leaves_nothing_to_a_second_plan() -> None:
    brokers = tuple(Broker(number, rack) for number, rack in enumerate("bbaab", 1))
    written: Written = [{"a": 1, "b": 8}, {"a": 9, "b": 8}, {"a": 8, "b": 6}]

    found = moved(state([[2, 4], [1, 3, 2], [3, 2, 5]], brokers=brokers), written)

    assert found.copies
    assert moved(state(found.after.topics["t"], brokers=brokers), written).moves == {}


def test_a_leader_near_producers_does_not_double_what_followers_copy() -> None:
    written: Written = [{"a": 40, "b": 60}]
    seen, elsewhere = (state([row], brokers=BROKERS[:4]) for row in ([1, 2, 3], [3, 1, 2]))

    # Led from b, 20 bytes less come from producers of another rack, and 100 bytes more are copied to followers.
    assert balanced(seen, written, max_skew=9).moves == {}
    assert balanced(seen, written, max_skew=9, free_replication=True).moves[place(0)].after[0] == 3
    # Nor does a leader stay where that is so.
    assert balanced(elsewhere, written, max_skew=9).moves[place(0)].after[0] == 1
    assert balanced(elsewhere, [{None: 9}], max_skew=9).moves[place(0)].after[0] == 1
    # With a copy two replicas are where most is written, and only one is copied across racks.
    assert sorted(RACKS[broker] for broker in moved(seen, written, max_skew=9).moves[place(0)].after) == ["a", "b", "b"]
    assert moved(seen, written, max_skew=9, free_replication=True).copies == 0


def test_what_followers_copy_is_shown_where_other_leaders_change_it() -> None:
    seen, written = state([[3, 1, 2]], brokers=BROKERS[:4]), metrics([{"a": 40_000, "b": 60_000}])

    for free, ends in ((False, "160 kB would cross racks instead of 240 kB"), (True, "no other leaders")):
        traffic = LeaderTraffic.of(written, seen, max_skew=9, free_replication=free)
        ready = prepared(seen, plan_leader_balance(seen, PlacementConstraints(), None, traffic), traffic)
        out = io.StringIO()
        show_prediction(ready, Console(file=out, width=120), Price())
        rows = [line.split() for line in out.getvalue().splitlines()]
        copied = [] if free else ["200", "kB", "100", "kB"]
        sent = ["40", "kB", "40", "kB"] if free else ["40", "kB", "60", "kB"]
        assert ["t", "100", "kB", *sent, *copied] in rows
        assert ("replicated across racks" in out.getvalue()) is not free
        assert ends in out.getvalue()


def test_a_replica_moves_to_where_most_is_written_also_if_that_is_less_than_half() -> None:
    rows = [[1, 3], [3, 1], [5], [3, 1]]
    written: Written = [{"c": 6, "a": 5}, {"c": 5, "a": 3, "b": 3}, {"a": 49, "b": 30, "c": 21}, {"c": 5, "b": 5}]
    found = moved(state(rows), written, max_skew=9)

    assert {tp: RACKS[move.after[0]] for tp, move in found.moves.items()} == {
        place(0): "c",
        place(1): "c",
        place(2): "a",
    }
    assert (found.copies, found.lower_bound) == (3, 3)


def test_a_plan_for_producers_leaves_unmeasured_partitions_and_their_leaders_alone() -> None:
    rows = [[1, 3, 5]] * 9
    written: Written = [{"b": 5}, *[{}] * 8]
    found = moved(state(rows), written)

    assert set(found.moves) == {place(0)}
    assert found.moves[place(0)].after[0] == 3


def test_constraints_bind_leaders_and_copies() -> None:
    written: Written = [{"c": 5}, {"b": 5, "a": 1}]
    found = balanced(state([[1, 3, 5]] * 2), written, leader_racks=frozenset({"a", "b"}), max_skew=9)
    assert [RACKS[row[0]] for row in found.after.topics["t"]] == ["a", "b"]
    kept = moved(state([[1, 3]] * 2), written, rules={"leader_racks": ["a", "b"]}, max_skew=9)
    assert kept.copies == 0
    emptied = moved(state([[1, 3]] * 2), written, removed_brokers=frozenset({5, 6}), max_skew=9)
    assert (emptied.copies, set(emptied.moves)) == (0, {place(1)})


def test_an_offline_broker_does_not_lead_and_its_partition_without_leader_is_left_out() -> None:
    seen = state([[1, 3, 5], [5]], down=[5])
    found = balanced(seen, [{"c": 9, "b": 1}, {"c": 3}], max_skew=9)

    assert found.after.topics["t"][0] == (3, 1, 5)
    assert found.skipped == {place(1): "has no leader to copy from"}
    # A disk that failed, on a broker that is there.
    disk = replace(state([[1, 3, 5]]), topics={"t": replace(state([[1, 3, 5]], down=[5]).topics["t"])})
    assert balanced(disk, [{"c": 9, "b": 1}], max_skew=9).after.topics["t"][0] == (3, 1, 5)


def test_one_rack_or_none_gives_nothing_to_gain() -> None:
    written: Written = [{"a": 5, "b": 5}] * 2
    for brokers in ((Broker(1, "a"), Broker(2, "a")), (Broker(1), Broker(2))):
        seen = state([[1, 2], [2, 1]], brokers=brokers)
        for found in (balanced(seen, written), moved(seen, written)):
            assert (found.moves, found.notes) == ({}, ())


def test_a_reader_that_is_sent_to_the_leader_counts_as_much_as_all_writers() -> None:
    rows = [[1, 3, 5], [3, 1, 5]]
    written: Written = [{"b": 4, "c": 5}, {"b": 9}]
    owners = member("m", "c", {"t": (0, 1)}, "t")
    seen = state(rows)

    for selector, leaders in (("", [5, 3]), (SELECTOR, [5, 3])):
        readers = OwnerReads.of(near_of(rows, owners, selector=selector))
        found = balanced(seen, written, readers=readers, max_skew=9)
        assert [row[0] for row in found.after.topics["t"]] == leaders
        traffic = LeaderTraffic.of(metrics(written), seen, readers, 9)
        total = prediction_as_json(prepared(seen, found, traffic), Price())["producers"]["total"]
        assert total == {
            "written": 18,
            "now": 9,
            "after": 4,
            "read_now": 0 if selector else 18,
            "read_after": 0 if selector else 9,
            "copied_now": 36,
            "copied_after": 36,
        }


@pytest.mark.parametrize("seed", seeds(5, 50))
def test_leaders_that_a_restart_of_a_broker_has_moved_are_put_back(seed: int) -> None:
    rng = random.Random(seed)
    rows = [rng.sample(range(1, 7), 3) for _ in range(24)]
    written: Written = [{rack: rng.randint(1, 100) for rack in "abc"} for _ in rows]
    near_layout = balanced(state(rows), written).after
    lists = near_layout.topics["t"]
    near, gone = state(lists), rng.randint(1, 6)
    partitions = tuple(
        replace(partition, leader=partition.replicas[1]) if partition.leader == gone else partition
        for partition in near.topics["t"].partitions
    )

    found = balanced(replace(near, topics={"t": replace(near.topics["t"], partitions=partitions)}), written)

    # With the bounds of what each broker leads for the moment, they may be better than they were.
    assert crossing(found.after, written) <= crossing(near_layout, written)
    assert {tp for tp, row in enumerate(lists) if row[0] == gone} <= {tp.partition for tp in found.moves}
    assert balanced(state(found.after.topics["t"]), written).moves == {}


@pytest.mark.parametrize(
    ("words", "written", "code", "line"),
    [
        ((), [{"b": 100}, {"a": 9900}], 0, "other leaders would save 100 B across racks, 1.0 % of 10 kB that were"),
        ((), [{"b": 101}, {"a": 9899}], 1, "other leaders would save 101 B across racks, 1.0 % of 10 kB that were"),
        (("--tolerance", "5%"), [{"b": 101}, {"a": 9899}], 0, "written; --tolerance is 5.0 %"),
        ((), [{"a": 7}, {"a": 7}], 0, "other leaders would save 0 B across racks, 0.0 % of 14 B that were written;"),
        ((), [{}, {}], 3, "near-producers: the metrics count no bytes of these topics, so there is no answer"),
        (("--tolerance", "0.5"), [{"b": 1}, {}], 2, "tolerance: 0.5 is ambiguous: give 50% or 0.5%"),
    ],
)
def test_a_check_moves_nothing_and_answers_with_one_line(
    words: tuple[str, ...],
    written: Written,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = state([[1, 3], [1, 3]], brokers=(BROKERS[0], BROKERS[2]))

    def ready(*_: object, max_skew: int, **__: object) -> PreparedReassignment:
        traffic = LeaderTraffic.of(metrics(written), seen, max_skew=max_skew)
        return prepared(seen, plan_leader_balance(seen, PlacementConstraints(), None, traffic), traffic)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reassign, "admin_client", lambda *_: nullcontext())
    monkeypatch.setattr(reassign, "read_written_bytes", lambda _: metrics(written))
    monkeypatch.setattr(reassign, "prepare_leaders", ready)
    command = ("balance-leaders", "--bootstrap-server", "k:9092", "--near-producers", "m", "--max-skew", "9", "--check")
    assert run([*command, *words]) == code
    out, err = capsys.readouterr()
    assert line in out + err
    assert (out + err).count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_readers_who_are_local_stay_local() -> None:
    rows = [[1, 5], [1, 5], [3, 5]]
    for selector in (SELECTOR, ""):
        near = near_of(
            rows, member("m1", "a", {"t": (0, 1)}, "t"), member("m2", "b", {"t": (2,)}, "t"), selector=selector
        )
        alone = moved(state(rows), [{"c": 9}, {"b": 9}, {"a": 9}], max_skew=9)
        found = moved(state(rows), [{"c": 9}, {"b": 9}, {"a": 9}], near, max_skew=9)
        assert near.local_partitions(found.after) >= near.local_partitions(found.before) == 3
        # By itself a producer takes the only replica of a reader's rack.
        assert alone.copies == 2
        assert found.copies <= (2 if selector else 0)


def test_series_without_partitions_are_refused_and_what_is_not_counted_is_reported() -> None:
    seen = state([[1, 3]])
    with pytest.raises(ConfigError, match=r"ProducerMetrics\(\.\.\., by_partition=True\)"):
        LeaderTraffic.of(WrittenBytes({WrittenSeries("t", None, "a", "b"): 5}), seen)
    found = LeaderTraffic.of(
        WrittenBytes(
            {
                WrittenSeries("t", None, "a", "b"): 1,
                WrittenSeries("t", 0, "A", "b"): 4,
                WrittenSeries("t", 0, None, "b"): 4,
                WrittenSeries("t", 9, "a", "b"): 1,
                WrittenSeries("gone", 0, "a", "b"): 1,
                WrittenSeries("idle", 0, "other", "b"): 0,
            }
        ),
        seen,
    )
    assert found.written == {place(0): {"A": 4, None: 4}}
    assert found.problems == (
        "9.1 % of the bytes have no partition, and are not counted",
        "40.0 % of the bytes are of producers without a rack, and count as local everywhere",
        "not counted, since they do not exist or may not be described: gone, t-9",
        'producers are in racks that no broker has: "A"; racks of brokers: a, b, c',
    )
    assert found.cross_written(place(0), 1) == 4
    assert LeaderTraffic.of(WrittenBytes({}), seen).problems == ()


@pytest.mark.parametrize(
    ("written", "skew", "ends"),
    [
        ([{"b": 2000}, {"a": 5}], 9, "0 B would cross racks instead of 2 kB"),
        ([{"a": 7}, {"c": 5}], 9, "no other leaders within these bounds have fewer bytes across racks"),
        ([{"b": 7000}, {"b": 5}], 0, "--max-skew 1: 5 B less across racks, 0.00 USD of the measured bytes"),
        ([{}, {}], 0, "the metrics count no bytes of these topics"),
    ],
)
def test_the_end_of_the_table_states_what_is_gained(written: Written, skew: int, ends: str) -> None:
    seen = state([[1, 3], [1, 3]], brokers=(BROKERS[0], BROKERS[2]))
    traffic = LeaderTraffic.of(metrics(written), seen, max_skew=skew)
    planned = plan_leader_balance(seen, PlacementConstraints(), None, traffic)
    out = io.StringIO()

    show_prediction(prepared(seen, planned, traffic), Console(file=out, width=120), Price())

    assert out.getvalue().splitlines()[-1] == ends


def test_the_table_has_the_topics_with_most_bytes_across_racks_and_their_sum() -> None:
    names = [f"u{number:02d}" for number in range(12)]
    seen = state([[1, 3]], {name: [[1, 3]] for name in names})
    written = WrittenBytes({WrittenSeries(name, 0, "b", "a"): 10 + at for at, name in enumerate(names)})
    traffic = LeaderTraffic.of(written, seen, max_skew=99)
    ready = prepared(seen, plan_leader_balance(seen, PlacementConstraints(), None, traffic), traffic)
    out = io.StringIO()

    show_prediction(ready, Console(file=out, width=120), Price())

    lines = [line.split() for line in out.getvalue().splitlines()]
    assert [line[0] for line in lines if line and line[0].startswith("u")] == names[:1:-1]
    assert ["total", "186", "B", "186", "B", "0", "B"] in lines
    assert "leaders by broker: 1 (a) 13 to 1, 2 (a) 0, 3 (b) 0 to 12, 4 (b) 0" in out.getvalue()
    assert ready.predicted()["u11"] == CrossRackBytes(21, 21, 0, copied_now=21, copied_after=21)
    assert prepared(seen, ready.planned, traffic).predicted().keys() == set(names)


def test_a_plan_begins_with_the_bytes_for_each_broker_and_how_long_they_take() -> None:
    seen = state([[1, 2]])
    planned = plan_reassignment(seen, ReassignmentRequest(), PlacementState())
    out = io.StringIO()

    ready = PreparedReassignment(seen, planned, Journal("c"), received={3: 7_000_000_000, 5: 2_000_000_000})
    show_prepared(ready, Console(file=out, width=120), Price())

    first = out.getvalue().splitlines()[0]
    assert first == "to copy by broker: 3 7 GB, 5 2 GB; with --throttle 50M this takes 3 minutes or more"
    assert ready.bytes == 9_000_000_000
