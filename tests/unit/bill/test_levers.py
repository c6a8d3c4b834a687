"""What crosses racks, what each lever saves alone and beyond those before it, and what no lever goes below."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest

from rackassign.bill.levers import Evaluation, billed, evaluate, least
from rackassign.bill.usage import ItemKey, Setting, Span, Usage
from rackassign.model import TopicPartition
from rackassign.monitoring import (
    ClusterReport,
    GroupDescription,
    ObservedCluster,
    Price,
    RackMap,
    ReadRates,
    cluster_advice,
)
from rackassign.monitoring.written_bytes import WrittenBytes, WrittenSeries, written_traffic
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates
from tests.helpers.highs import cheapest_choice

RACKS = "abc"
TOPIC = "t"

Written = Mapping[int, Mapping[str, float]]
"""Bytes per second of each partition by rack of the producer."""


def usage_of(
    there: ObservedCluster, groups: Sequence[GroupDescription], written: Written, known: Written | None = None
) -> tuple[Usage, ClusterReport]:
    measured = rates({(TOPIC, p): sum(by_rack.values()) for p, by_rack in written.items()})
    analyses = tuple(inspected(live, there, measured) for live in groups)
    report = ClusterReport(there, analyses, (), measured)
    racks = there.topology.broker_racks()
    series: dict[WrittenSeries, int] = {}
    for p, by_rack in (written if known is None else known).items():
        leader = there.topology.topics[TOPIC][p].leader
        assert leader is not None
        for rack, rate in by_rack.items():
            series[WrittenSeries(TOPIC, p, rack, racks[leader])] = round(rate * 10)
    before = WrittenBytes(dict.fromkeys(series, 0), (0.0,))
    producers = written_traffic(report, before, WrittenBytes(series, (10.0,))) if series else None
    return Usage.of(report, producers), report


def spread(partitions: int, replicas: int) -> list[list[int]]:
    """Replicas of which each pair of racks is used equally often."""
    return [[(p + i * (1 + p // 3 % 2)) % 3 + 1 for i in range(replicas)] for p in range(partitions)]


def per_byte(found: Evaluation, written: float) -> list[float]:
    """Bytes across racks per byte written: now, after each lever, and at the least."""
    stages = [found.now, *(lever.items for lever in found.levers)]
    return [round(billed(stage, Price()).most / written, 2) for stage in stages] + [round(found.least / written, 2)]


@pytest.mark.parametrize(
    ("replicas", "groups", "expected"),
    [
        # now, fetching, leaders, producers, members, replicas, least
        (3, 2, [4.0, 2.67, 2.0, 2.0, 2.0, 2.0, 2.0]),
        (3, 5, [6.0, 2.67, 2.0, 2.0, 2.0, 2.0, 2.0]),
        (2, 2, [3.0, 2.33, 2.0, 2.0, 1.33, 1.0, 1.0]),
        (2, 5, [5.0, 3.33, 3.0, 3.0, 1.33, 1.0, 1.0]),
    ],
)
def test_bytes_across_racks_per_byte_written(replicas: int, groups: int, expected: list[float]) -> None:
    plain = brokers(RACKS, selector=None)
    there = cluster({TOPIC: spread(54, replicas)}, plain)
    # Each partition is written from one rack, and read from one that is neither the leader's nor the writer's more
    # often than others are.
    written = {p: {RACKS[p // 6 % 3]: 1000.0} for p in range(54)}
    readers = [
        group(
            *(
                member(f"{g}{r}", r, {TOPIC: [p for p in range(54) if (p // 18 + i + g) % 3 == 0]})
                for i, r in enumerate(RACKS)
            ),
            name=f"g{g}",
        )
        for g in range(groups)
    ]
    usage, report = usage_of(there, readers, written)
    assert per_byte(evaluate(usage, report, Price()), 54_000.0) == expected


def test_replication_that_is_not_billed_is_no_part_of_what_levers_save() -> None:
    there = cluster({TOPIC: spread(9, 3)}, brokers(RACKS, selector=None))
    usage, report = usage_of(there, [], {p: {RACKS[(p + 1) % 3]: 1000.0} for p in range(9)})
    price = Price.from_options(None, "msk")
    found = evaluate(usage, report, price)
    assert billed(found.now, price) == Span(9000.0, 9000.0)
    leaders = next(lever for lever in found.levers if lever.kind == "leaders")
    assert leaders.beyond == leaders.alone == Span(9000.0, 9000.0)
    assert billed(found.levers[-1].items, price) == Span()


def test_each_lever_is_counted_alone_and_beyond_those_before_it() -> None:
    """RF 3 in three racks: fetching from followers alone makes all local, and so would nothing else."""
    there = cluster({TOPIC: spread(9, 3)}, brokers(RACKS, selector=None))
    live = group(*(member(r, r, {TOPIC: [3 * i, 3 * i + 1, 3 * i + 2]}) for i, r in enumerate(RACKS)))
    usage, report = usage_of(there, [live], {p: {"a": 1000.0} for p in range(9)}, known={})
    found = {lever.kind: lever for lever in evaluate(usage, report, Price()).levers}
    assert found["fetching"].alone.least == found["fetching"].beyond.least == 6000.0
    assert found["members"].alone.least == 6000.0
    assert found["members"].beyond == Span()
    assert not found["members"].change.groups
    assert found["leaders"].alone == Span()


def test_a_cluster_with_nothing_to_gain_has_no_lever() -> None:
    there = cluster({TOPIC: spread(9, 3)})
    live = group(*(member(r, r, {TOPIC: [i, i + 3, i + 6]}) for i, r in enumerate(RACKS)))
    usage, report = usage_of(there, [live], {p: {RACKS[p % 3]: 1000.0} for p in range(9)})
    found = evaluate(usage, report, Price())
    assert all(lever.beyond == Span() for lever in found.levers)
    assert billed(found.now, Price()) == Span(18_000.0, 18_000.0)
    assert found.least == sum(found.floor.values()) == 18_000.0


def test_producers_of_unknown_rack_are_between_nothing_and_all_that_they_write() -> None:
    there = cluster({TOPIC: spread(9, 3)})
    usage, report = usage_of(there, [], {p: {"a": 1000.0} for p in range(9)}, known={})
    found = evaluate(usage, report, Price())
    assert found.now[ItemKey("producing", TOPIC)].across == Span(0.0, 9000.0)
    producers = next(lever for lever in found.levers if lever.kind == "producers")
    assert producers.beyond == Span(0.0, 9000.0)


def test_brokers_write_to_topics_of_their_own() -> None:
    there = cluster({"__consumer_offsets": [[1, 2, 3]]})
    measured = rates({("__consumer_offsets", 0): 1000.0})
    usage = Usage.of(ClusterReport(there, (), (), measured))
    found = usage.items(Setting())
    assert found[ItemKey("producing", "__consumer_offsets")].across == Span()
    assert found[ItemKey("replicating", "__consumer_offsets")].across == Span(2000.0, 2000.0)


def test_readers_of_unknown_rack_are_local_with_client_rack_where_each_rack_has_a_replica() -> None:
    there = cluster({TOPIC: spread(9, 3)})
    live = group(*(member(str(i), None, {TOPIC: [i, i + 3, i + 6]}) for i in range(3)))
    usage, report = usage_of(there, [live], {p: {RACKS[p % 3]: 1000.0} for p in range(9)})
    found = evaluate(usage, report, Price())
    assert found.now[ItemKey("consuming", TOPIC, "g")].across == Span(0.0, 9000.0)
    assert found.levers[0].kind == "fetching"
    assert found.levers[0].beyond == Span(0.0, 9000.0)
    assert found.levers[-1].items[ItemKey("consuming", TOPIC, "g")].across == Span()


def test_what_consumers_that_assign_themselves_read_may_cross_whatever_is_changed() -> None:
    there = cluster({TOPIC: spread(3, 3)}, brokers(RACKS, selector=None))
    measured = rates({(TOPIC, p): 1000.0 for p in range(3)})
    analysis = inspected(group(name="flink", state="Empty"), there, ReadRates(unowned_s=measured.bytes_s))
    usage = Usage.of(ClusterReport(there, (analysis,), (), measured))
    found = evaluate(usage, ClusterReport(there, (analysis,), (), measured), Price())
    for items in (found.now, *(lever.items for lever in found.levers)):
        assert items[ItemKey("consuming", TOPIC, "flink")].across == Span(0.0, 3000.0)


def test_where_brokers_are_in_one_rack_clients_have_no_nearer_ones() -> None:
    there = cluster({TOPIC: [[1, 2, 3]] * 3}, brokers("aaa", selector=None))
    # Of unknown rack, and of a rack without brokers: what crosses now does so whatever is set.
    live = group(member("m", None, {TOPIC: [0]}), member("n", "b", {TOPIC: [1, 2]}))
    usage, report = usage_of(there, [live], {p: {"a": 1000.0} for p in range(3)}, known={})
    found = evaluate(usage, report, Price())
    assert billed(found.now, Price()) == Span(0.0, 6000.0)
    assert [(lever.alone, lever.beyond) for lever in found.levers] == [(Span(), Span())] * len(found.levers)
    silent = group(member("m", None, {TOPIC: [0, 1, 2]}))
    _, report = usage_of(there, [silent], {p: {"a": 1000.0} for p in range(3)}, known={})
    assert not any(row.change.kind in {"selector", "rack"} for row in cluster_advice(report))


def test_brokers_without_a_rack_may_be_in_any_when_the_least_is_computed() -> None:
    known = (*brokers("a"), *brokers((None, None, None))[1:])
    usage, report = usage_of(cluster({TOPIC: [[1, 2, 3]]}, known), [], {0: {"a": 1000.0}})
    found = evaluate(usage, report, Price())
    assert found.now[ItemKey("replicating", TOPIC)].across == Span(0.0, 2000.0)
    assert found.least == sum(found.floor.values()) == 0.0


def test_replicas_are_brought_to_a_rack_in_which_several_groups_read() -> None:
    there = cluster({TOPIC: [[1, 2]] * 6})
    readers = [group(member(f"m{g}", "c", {TOPIC: range(6)}), name=f"g{g}") for g in range(5)]
    usage, report = usage_of(there, readers, {p: {"a": 1000.0} for p in range(6)})
    levers = {lever.kind: lever for lever in evaluate(usage, report, Price()).levers}
    # Three groups get one member more in a rack that has replicas, for half of what they read.
    assert levers["members"].beyond == Span(9_000.0, 9_000.0)
    assert {name: member.rack for name, (member, _) in levers["members"].change.joined.items()} == {
        "g0": "a",
        "g1": "a",
        "g2": "a",
    }
    replicas = levers["replicas"]
    assert replicas.beyond.least == replicas.beyond.most > 0
    assert replicas.change.groups or replicas.change.added
    assert set(replicas.change.copied.values()) == {1}
    after = [item.across for key, item in replicas.items.items() if key.group in {"g3", "g4"}]
    assert after == [Span(), Span()]


@pytest.mark.parametrize(("size", "moves"), [(0, True), (10**9, True), (10**13, False)])
def test_replicas_whose_copies_are_not_paid_back_within_a_year_stay(size: int, moves: bool) -> None:  # noqa: FBT001
    there = cluster({TOPIC: [[1, 2]] * 6})
    readers = [group(member(f"m{g}", "c", {TOPIC: range(6)}), name=f"g{g}") for g in range(5)]
    usage, report = usage_of(there, readers, {p: {"a": 1000.0} for p in range(6)})
    # 1000 bytes per second are 32 GB in a year.
    sized = replace(usage.measured, sizes={TopicPartition(TOPIC, p): size for p in range(6)})
    usage = replace(usage, measured=sized)
    paid, free = (
        {lever.kind: lever for lever in evaluate(usage, report, Price.from_options(None, cloud)).levers}["replicas"]
        for cloud in ("aws", "msk")
    )
    assert (paid.beyond.least > 0, bool(paid.change.copied)) == (moves, moves)
    # Where replication is not billed, copies cost nothing.
    assert free.beyond.least > 0


def test_a_group_that_catches_up_gets_neither_a_member_nor_replicas() -> None:
    there = cluster({TOPIC: [[1, 2]] * 6})
    live = group(member("m", "c", {TOPIC: range(6)}))
    usage, report = usage_of(there, [live], {p: {"a": 1000.0} for p in range(6)})
    levers = evaluate(usage, report, Price()).levers
    assert sum(lever.beyond.least for lever in levers if lever.kind in {"members", "replicas"}) > 0
    (now,) = report.inspections
    late = replace(
        now, rates=replace(now.rates, lag={TopicPartition(TOPIC, 0): 9}, by_commits=frozenset(now.rates.bytes_s))
    )
    levers = evaluate(usage, replace(report, inspections=(late,)), Price()).levers
    assert all(lever.beyond == Span() for lever in levers if lever.kind in {"members", "replicas"})


def test_a_lever_that_costs_more_than_it_saves_is_left_out() -> None:
    there = cluster({TOPIC: [[1, 2]] * 6})
    # One of two readers is local now; moved to c, the other one would be.
    readers = [group(member(f"m{r}", r, {TOPIC: range(6)}), name=f"g{r}") for r in "bc"]
    usage, report = usage_of(there, readers, {p: {"a": 1000.0} for p in range(6)})
    found = evaluate(usage, report, Price())
    assert all(lever.beyond.least >= 0 for lever in found.levers)
    stages = [billed(found.now, Price()).most, *(billed(lever.items, Price()).most for lever in found.levers)]
    assert stages == sorted(stages, reverse=True)


def test_members_whose_racks_are_only_in_the_rack_map_count_as_there() -> None:
    there = cluster({TOPIC: spread(6, 1)})
    live = group(
        *(member(r, None, {TOPIC: [(i + 1) % 3, (i + 1) % 3 + 3]}, client_id=f"c-{r}") for i, r in enumerate(RACKS))
    )
    measured = rates({(TOPIC, p): 1000.0 for p in range(6)})
    analysis = inspected(live, there, measured, RackMap(client_ids={f"c-{r}": r for r in RACKS}))
    report = ClusterReport(there, (analysis,), (), measured)
    usage = Usage.of(report)
    members = next(lever for lever in evaluate(usage, report, Price()).levers if lever.kind == "members")
    assert members.beyond == Span(6000.0, 6000.0)
    assert [found.snapshot.live.name for found in members.change.groups] == ["g"]


def random_usage(seed: int) -> tuple[Usage, ClusterReport, Written]:
    dice = random.Random(seed)
    racks = [dice.choice(RACKS[: dice.randint(2, 3)]) for _ in range(dice.randint(2, 5))]
    known = brokers(racks, selector=dice.choice([None, "x.RackAwareReplicaSelector"]))
    factor = dice.randint(1, min(3, len(racks)))
    partitions = dice.randint(1, 6)
    there = cluster({TOPIC: [dice.sample(range(1, len(racks) + 1), factor) for _ in range(partitions)]}, known)
    written = {p: {r: float(dice.randint(0, 3) * 100) for r in set(racks)} for p in range(partitions)}
    written = {p: by_rack if sum(by_rack.values()) else {racks[0]: 100.0} for p, by_rack in written.items()}
    members = [f"m{i}" for i in range(dice.randint(1, 3))]
    owned: dict[str, list[int]] = {name: [] for name in members}
    for p in range(partitions):
        owned[dice.choice(members)].append(p)
    live = group(*(member(name, dice.choice(racks), {TOPIC: ids}) for name, ids in owned.items()))
    usage, report = usage_of(there, [live], written)
    return usage, report, written


def least_of(usage: Usage, written: Written) -> int | None:
    """Return the fewest bytes across racks of an integer program: leaders, and replicas in no fewer racks than now."""
    racks = usage.cluster.topology.broker_racks()
    costs: list[dict[int, int]] = []
    for p, partition in enumerate(usage.cluster.topology.topics[TOPIC]):
        size, distinct = sum(written[p].values()), len({racks[b] for b in partition.replicas})
        of: dict[int, int] = {}
        for leader in racks:
            others = product([b for b in racks if b != leader], repeat=len(partition.replicas) - 1)
            placed = (row for row in others if len(set(row)) == len(row))
            across = [
                sum(racks[b] != racks[leader] for b in row)
                for row in placed
                if len({racks[leader], *(racks[b] for b in row)}) >= distinct
            ]
            if across:
                of[leader - 1] = round(
                    min(across) * size + sum(r for rack, r in written[p].items() if rack != racks[leader])
                )
        costs.append(of)
    return (
        cheapest_choice(costs, [0] * len(racks), [len(costs)] * len(racks))
        if min(map(len, costs)) == len(racks)
        else None
    )


def test_the_least_is_that_of_an_integer_program() -> None:
    compared = 0
    for seed in range(300):
        usage, _, written = random_usage(seed)
        best = least_of(usage, written)
        if best is not None:
            floor, together = least(usage, Price())
            assert together == pytest.approx(best), seed
            assert sum(floor.values()) <= together + 1e-6, seed
            compared += 1
    assert compared > 250


def test_no_lever_goes_below_the_least() -> None:
    for seed in range(30):
        usage, report, _ = random_usage(seed)
        found = evaluate(usage, report, Price())
        for lever in found.levers:
            assert billed(lever.items, Price()).least >= found.least - 1e-6, seed


def test_the_order_of_groups_changes_nothing() -> None:
    there = cluster({TOPIC: spread(9, 2)}, brokers(RACKS, selector=None))
    readers = [group(member(f"m{r}", r, {TOPIC: range(9)}), name=f"g{r}") for r in RACKS]
    usage, report = usage_of(there, readers, {p: {"a": 1000.0} for p in range(9)})
    turned = replace(report, inspections=report.inspections[::-1])
    found, again = evaluate(usage, report, Price()), evaluate(Usage.of(turned), turned, Price())
    known, unknown = ({k: i.across for k, i in e.levers[-1].items.items() if k.group} for e in (found, again))
    assert known.keys() == unknown.keys()
    assert _replicating(found) == _replicating(again)


def _replicating(found: Evaluation) -> list[Span]:
    return [lever.items[ItemKey("replicating", TOPIC)].across for lever in found.levers[:1]]


def test_replicas_out_of_sync_serve_no_reader_now() -> None:
    there = cluster({TOPIC: [[1, 2]]}, in_sync={TOPIC: ((1,),)})
    live = group(member("m", "b", {TOPIC: [0]}))
    usage, _ = usage_of(there, [live], {0: {"a": 1000.0}})
    assert usage.items(Setting())[ItemKey("consuming", TOPIC, "g")].across == Span(1000.0, 1000.0)
    moved = replace(there.topology.topics[TOPIC][0], replicas=(1, 2, 3))
    after = usage.items(Setting({TopicPartition(TOPIC, 0): moved}))
    assert after[ItemKey("consuming", TOPIC, "g")].across == Span()


def test_settings_that_inspect_advises_first_are_the_first_lever() -> None:
    compared = 0
    for seed in range(80):
        dice = random.Random(seed)
        racks = [dice.choice(RACKS) for _ in range(dice.randint(2, 4))]
        known = brokers(racks, selector=dice.choice([None, "x.RackAwareReplicaSelector"]))
        factor, partitions = dice.randint(1, min(3, len(racks))), dice.randint(2, 6)
        there = cluster({TOPIC: [dice.sample(range(1, len(racks) + 1), factor) for _ in range(partitions)]}, known)
        measured = rates({(TOPIC, p): float(dice.randint(0, 5) * 100) for p in range(partitions)})
        owned: dict[str, list[int]] = {f"m{i}": [] for i in range(dice.randint(1, 3))}
        for p in range(partitions):
            owned[dice.choice(sorted(owned))].append(p)
        live = group(*(member(m, dice.choice([*racks, None]), {TOPIC: ids}, TOPIC) for m, ids in owned.items()))
        report = ClusterReport(there, (inspected(live, there, measured),), (), measured)
        levers = evaluate(Usage.of(report), report, Price()).levers
        gaining = [lever.kind for lever in levers if lever.beyond.most > 0 and lever.kind != "producers"]
        first = next((row.change for row in cluster_advice(report)), None)
        if first is None:
            assert [lever.kind for lever in levers if lever.beyond.least > 0] in ([], ["replicas"]), seed
        elif first.kind in {"selector", "rack"}:
            assert gaining[0] in ({"fetching", "members"} if first.switches else {"fetching"}), seed
            compared += 1
    assert compared > 10


def test_what_levers_save_is_in_the_range_whatever_the_unknown_racks_are() -> None:
    for seed in range(60):
        dice = random.Random(seed)
        racks = [dice.choice(RACKS) for _ in range(dice.randint(2, 4))]
        known = brokers(racks, selector=dice.choice([None, "x.RackAwareReplicaSelector"]))
        factor, partitions = dice.randint(1, min(2, len(racks))), dice.randint(1, 4)
        there = cluster({TOPIC: [dice.sample(range(1, len(racks) + 1), factor) for _ in range(partitions)]}, known)
        written = {p: {rack: float(dice.randint(0, 3) * 100) for rack in racks} for p in range(partitions)}
        # Of some producers the rack is not exported, and one reader reports none.
        exported = {p: {r: size for r, size in of.items() if dice.random() < 0.6} for p, of in written.items()}
        hidden, home = dice.choice(racks), dice.choice(racks)
        ids, rest = range(partitions // 2), range(partitions // 2, partitions)

        def lived(rack: str | None, ids: range = ids, rest: range = rest, home: str = home) -> GroupDescription:
            return group(member("a", rack, {TOPIC: ids}, TOPIC), member("b", home, {TOPIC: rest}, TOPIC))

        usage, report = usage_of(there, [lived(None)], written, known=exported)
        truth = usage_of(there, [lived(hidden)], written)[0]
        assert truth.items(Setting()).keys() == usage.items(Setting()).keys()
        before = Setting()
        for lever in evaluate(usage, report, Price()).levers:
            after = lever.change.setting
            # Other members would be planned with another rack.
            if lever.kind in {"fetching", "leaders"} and after != before:
                saved = billed(truth.items(before), Price()).least - billed(truth.items(after), Price()).least
                assert lever.beyond.least - 1e-6 <= saved <= lever.beyond.most + 1e-6, (seed, lever.kind)
            before = after
