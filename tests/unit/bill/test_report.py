"""The bill as people and programs get it: its first line, sentences with commands, JSON and the page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from rich.console import Console

from rackassign.bill import LINES, Line
from rackassign.bill.gauges import BillMetrics
from rackassign.bill.invoice import BilledTraffic, Explanation, Invoice
from rackassign.bill.levers import evaluate
from rackassign.bill.page import HistoryPoint, page
from rackassign.bill.report import (
    Bill,
    Source,
    as_json,
    commands,
    describe_invoice,
    further,
    headline,
    once,
    summary,
    what,
)
from rackassign.bill.usage import Span, Usage
from rackassign.cli.commands.bill import show
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterReport, Price, RackMap
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.monitoring.written_bytes import WrittenBytes, WrittenSeries, written_traffic
from tests.helpers import json_schemas
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates

GB_MONTH = 1e9 / (730 * 3600)
"""Bytes per second that are a GB in a month."""

AT = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)
HOSTILE = "</td><script>alert(1)</script>\x1b[31m"


def bill(
    *,
    replicas: Sequence[Sequence[int]] = ((1, 2, 3), (2, 3, 1), (3, 1, 2)),
    selector: str | None = None,
    price: Price | None = None,
    writer: str | None = "next",
    name: str = "billing",
    measured: Mapping[Line, tuple[Source, TrafficMatrix]] | None = None,
) -> Bill:
    """A topic of which 100 GB are written in a month to each partition, and read once by a group of three."""
    there = cluster({"t": replicas}, brokers("abc", selector=selector))
    rate = 100 * GB_MONTH
    written = rates({("t", p): rate for p in range(len(replicas))})
    owned = {rack: [p for p in range(len(replicas)) if p % 3 == (i + 1) % 3] for i, rack in enumerate("abc")}
    live = group(*(member(rack, rack, {"t": ids}) for rack, ids in owned.items()), name=name)
    report = ClusterReport(there, (inspected(live, there, written),), (), written)
    producers = None
    if writer is not None:
        series = {
            # By default each partition is written from another rack than that of its leader.
            WrittenSeries("t", p, "abc"[row[0] % 3] if writer == "next" else writer, "abc"[row[0] - 1]): round(
                rate * 1000
            )
            for p, row in enumerate(replicas)
        }
        producers = written_traffic(
            report, WrittenBytes(dict.fromkeys(series, 0), (0.0,)), WrittenBytes(series, (1000.0,))
        )
    usage, cost = Usage.of(report, producers), price or Price()
    sources = ("http://app:9100/metrics",) if writer else ()
    evaluation, connection = evaluate(usage, report, cost), "--bootstrap-server broker:9092"
    return Bill(usage, report, evaluation, cost, measured or {}, sources, connection)


def shown(made: Bill) -> str:
    file = io.StringIO()
    show(made, Console(file=file, width=100, force_terminal=False, highlight=False))
    return file.getvalue()


def test_the_first_line_has_the_sum_the_saving_and_the_first_lever() -> None:
    made = bill()
    # Of 300 GB all are replicated twice, and written and read across, since leaders serve.
    assert headline(made) == (
        "Kafka's traffic between racks costs 24.00 USD a month (replicating 12.00, producing 6.00, consuming 6.00)."
        " 12.00 of it can be saved, 6.00 with the first lever: fetch from followers."
        " 12.00 is the least that is possible."
    )
    assert json_schemas.schema("bill")
    json_schemas.check("bill", as_json(made))
    found = as_json(made)
    assert found["usd_per_month"] == {"at_least": 24.0, "at_most": 24.0}
    assert [line["floor_bytes_per_second"] for line in found["lines"]][1:] == [0.0, 0.0, 0]


def test_a_cluster_with_nothing_to_gain_says_so_first() -> None:
    there = cluster({"t": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]})
    written = rates({("t", p): 100 * GB_MONTH for p in range(3)})
    live = group(*(member(rack, rack, {"t": [i]}) for i, rack in enumerate("abc")))
    report = ClusterReport(there, (inspected(live, there, written),), (), written)
    series = {WrittenSeries("t", p, "abc"[p], "abc"[p]): round(100_000 * GB_MONTH) for p in range(3)}
    producers = written_traffic(report, WrittenBytes(dict.fromkeys(series, 0), (0.0,)), WrittenBytes(series, (1000.0,)))
    usage = Usage.of(report, producers)
    made = Bill(usage, report, evaluate(usage, report, Price()), Price())
    assert headline(made) == (
        "Nothing is to be gained: Kafka's traffic between racks costs 12.00 USD a month (replicating 12.00), and no"
        " lever lowers that."
    )
    assert shown(made).startswith("Nothing is to be gained: Kafka's")


@pytest.mark.parametrize("cloud", ["azure"])
def test_where_nothing_is_billed_there_is_nothing_to_save(cloud: str) -> None:
    text = shown(bill(price=Price.from_options(None, cloud)))
    assert text.startswith("Traffic between racks costs nothing (Azure between availability zones of a region: free)")
    assert text.count("\n") == 1
    # An invoice is explained in bytes all the same.
    explained = Explanation(300.0, Span(100.0, 200.0), Span(1.0, 2.0), Span(98.0, 199.0), 0.0, "USD", {}, ())
    made = replace(bill(price=Price.from_options(None, cloud)), invoice=explained)
    assert "The invoice has 300 B" in shown(made)


def test_replication_that_msk_does_not_bill_costs_nothing() -> None:
    made = bill(price=Price.from_options(None, "msk"))
    assert "costs 12.00 USD a month (replicating 0.00, producing 6.00, consuming 6.00)" in headline(made)
    assert made.floor == 0.0


def test_without_a_measurement_there_is_no_bill() -> None:
    there = cluster({"t": [[1]]})
    report = ClusterReport(there, (), (), rates({}).__class__())
    usage = Usage.of(report)
    made = Bill(usage, report, evaluate(usage, report, Price()), Price())
    assert shown(made) == "Bytes were not measured, so there is no bill.\n"


def test_each_lever_has_its_command() -> None:
    levers = {lever.kind: lever for lever in bill().evaluation.levers}
    made = bill()
    assert what(levers["fetching"], made) == (
        "set replica.selector.class to the rack-aware one on all brokers, so that near replicas are read"
        " (replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector)"
    )
    assert what(levers["leaders"], made) == "elect leaders where the fewest bytes cross racks, as even as they are"
    (command,) = commands(levers["leaders"], made)
    assert command == (
        "rackassign balance-leaders --bootstrap-server broker:9092 --near-producers http://app:9100/metrics"
    )
    assert commands(levers["fetching"], made) == []
    secret = replace(made, sources=("https://me:s3cret@app:9100/metrics",))
    assert commands(levers["leaders"], secret)[0].endswith("--near-producers https://USER:PASSWORD@app:9100/metrics")
    # Where what followers copy is free, it does not count for the command either.
    msk = replace(made, price=Price.from_options(None, "msk"))
    assert commands(levers["leaders"], msk) == [f"{command} --cloud msk"]
    assert once(levers["leaders"], made) == "nothing is copied"


def test_members_are_moved_by_an_assignor_and_replicas_by_a_plan() -> None:
    made = bill(replicas=[[1], [2], [3]] * 2, selector="x.RackAwareReplicaSelector", writer=None)
    levers = {lever.kind: lever for lever in made.evaluation.levers}
    assert what(levers["members"], made) == "billing: switch to cooperative-sticky of rackassign from range"
    made = bill(replicas=[[1, 2]] * 3, selector="x.RackAwareReplicaSelector")
    replicas = made.evaluation.levers[-1]
    assert commands(replicas, made) == [
        "rackassign reassign plan --bootstrap-server broker:9092 --near-producers http://app:9100/metrics",
        "rackassign reassign apply --bootstrap-server broker:9092",
    ]
    assert made.usage.measured.sizes == {}


def test_copies_are_paid_back_in_days() -> None:
    made = bill(replicas=[[1, 2]] * 3, selector="x.RackAwareReplicaSelector", writer="c")
    lever = made.evaluation.levers[-1]
    assert lever.change.copied
    made.report.measured.sizes.update({TopicPartition("t", p): 10**12 for p in range(3)})  # type: ignore[attr-defined]
    assert once(lever, made).startswith(
        f"{len(lever.change.copied)} TB are copied once, {20 * len(lever.change.copied)}.00 USD across racks"
    )


def test_what_a_member_more_saves_is_shown_and_that_one_more_replica_stays() -> None:
    there = cluster({"t": [[1, 2]] * 6})
    written = rates({("t", p): 100 * GB_MONTH for p in range(6)})
    written = replace(written, sizes={TopicPartition("t", p): 10**9 for p in range(6)})
    names = [f"g{i}" for i in range(5)]
    readers = (inspected(group(member(n, "c", {"t": range(6)}), name=n), there, written) for n in names)
    report = ClusterReport(there, tuple(readers), (), written)
    usage = Usage.of(report)
    made = Bill(usage, report, evaluate(usage, report, Price()), Price())
    levers = {lever.kind: lever for lever in made.evaluation.levers}
    assert "g0: one more member in rack a, subscribed to t, for 6.00 USD of it" in what(levers["members"], made)
    replicas = levers["replicas"]
    assert once(replicas, made).startswith("6 GB are copied once, 0.12 USD across racks, paid back in ")
    added = replace(replicas, change=replace(replicas.change, added="c"))
    assert once(added, made).startswith("6 GB are copied once, and stay on disks, 0.12 USD across racks")
    # Where it may save nothing, it is not paid back before.
    unsure = replace(replicas, beyond=Span(0.0, 100 * GB_MONTH))
    assert once(unsure, made).endswith(" days at the earliest")


def test_what_groups_still_read_across_racks_is_a_matter_of_their_members() -> None:
    # Two topics of one replica in racks a and c, and members in a and b: no assignment and no even layout is local.
    there = cluster({"t": [[1], [3]], "u": [[2]]}, brokers("abc", selector="x.RackAwareReplicaSelector"))
    written = rates({("t", 0): 100 * GB_MONTH, ("t", 1): 100 * GB_MONTH, ("u", 0): 0.0})
    live = group(member("a", None, {"t": [0, 1]}, host="h"), member("b", "b", {"u": [0]}), name="billing")
    report = ClusterReport(there, (inspected(live, there, written, RackMap(hosts={"h": "a"})),), (), written)
    usage = Usage.of(report)
    now = evaluate(usage, report, Price())
    made = Bill(
        usage, report, replace(now, levers=tuple(replace(lever, items=now.now) for lever in now.levers)), Price()
    )
    (line,) = further(made)
    assert line.startswith(
        "billing still read 2.00 USD a month across racks then: `rackassign scale --bootstrap-server"
    )


def test_the_price_of_even_leaders_is_shown() -> None:
    assert further(bill(writer="b")) == [
        "Leaders are near producers as far as even leaders can be: --max-skew 1 saves 2.00 USD a month."
    ]


def test_a_better_source_takes_the_place_of_an_estimate() -> None:
    counted = TrafficMatrix({("a", "b"): 1200 * GB_MONTH, ("a", "a"): 5.0})
    made = bill(measured={"replicating": ("brokers", counted)})
    assert made.across("replicating") == Span(1200 * GB_MONTH, 1200 * GB_MONTH)
    text = shown(made)
    assert "replicating: from counters of the brokers" in text
    assert "producing: from counters of producers" in text
    assert "consuming: from growth of logs" in text


def test_levers_save_of_what_is_measured_and_no_more_than_that() -> None:
    def network(a: float, b: float, c: float) -> Mapping[Line, tuple[Source, TrafficMatrix]]:
        rows: list[tuple[Line, float]] = [("replicating", a), ("producing", b), ("consuming", c)]
        return {line: ("network", TrafficMatrix({("a", "b"): gb * GB_MONTH})) for line, gb in rows}

    # What groups read is twice of what Kafka shows: so is what fetching from followers saves, alone and first.
    found = as_json(bill(measured=network(600, 100, 600)))
    assert found["usd_per_month"] == {"at_least": 26.0, "at_most": 26.0}
    fetching = found["levers"][0]
    assert fetching["alone"] == fetching["beyond"] == {"at_least": 12.0, "at_most": 12.0}
    assert found["floor_usd_per_month"] == 12.0
    # Of unknown producers it is known what crosses: fetching changes nothing of it, and local leaders save no more.
    found = as_json(bill(measured=network(600, 100, 600), writer=None))
    levers = {lever["lever"]: lever for lever in found["levers"]}
    assert levers["fetching"]["beyond"] == {"at_least": 12.0, "at_most": 12.0}
    assert levers["producers"]["beyond"] == levers["producers"]["alone"] == {"at_least": 0.0, "at_most": 2.0}
    assert found["saving_usd_per_month"] == {"at_least": 12.0, "at_most": 14.0}


def test_levers_save_no_more_together_than_there_is() -> None:
    # What a reader of unknown rack reads, fetching from followers may save, and so may the other member.
    there = cluster({"t": [[3, 1], [1, 2], [2, 1]]}, brokers("abc", selector=None))
    written = rates({("t", p): 100 * GB_MONTH for p in range(3)})
    live = group(member("x", "c", {}, "t"), member("y", None, {"t": [0, 1, 2]}, "t"))
    report = ClusterReport(there, (inspected(live, there, written),), (), written)
    usage = Usage.of(report)
    made = Bill(usage, report, evaluate(usage, report, Price()), Price())
    _, most = made.money()
    assert sum(made.beyond(lever)[1] for lever in made.evaluation.levers) == pytest.approx(14.0)
    assert made.saving[1] == pytest.approx(most - made.floor) == pytest.approx(12.0)


def test_packets_that_the_network_counts_have_their_headers() -> None:
    now = TrafficMatrix({("a", "b"): 100.0})
    made = bill(
        measured={"replicating": ("network", now), "producing": ("network", now), "consuming": ("network", now)}
    )
    at = AT, AT.replace(hour=13)
    invoice = Invoice(2, BilledTraffic(1.08e6, 1.08e6), {}, *at, "USD", ())
    assert describe_invoice(made.explain(invoice, 1500)) == [
        "The invoice has 2.16 MB between zones, both ends counted: Kafka 2.16 MB (100%), others 0 B (0%)."
    ]
    assert "headers" in describe_invoice(replace(made, measured={}).explain(invoice, 1500))[0]


def test_a_group_that_reads_many_topics_is_one_row_of_who_causes_most() -> None:
    topics = {f"t{i:02}": [[1, 2, 3]] for i in range(20)}
    there = cluster(topics, brokers("abc", selector=None))
    written = rates({(topic, 0): 100 * GB_MONTH for topic in topics})
    live = group(member("m", "b", {topic: [0] for topic in topics}), name="billing")
    report = ClusterReport(there, (inspected(live, there, written),), (), written)
    usage = Usage.of(report)
    made = Bill(usage, report, evaluate(usage, report, Price()), Price())
    # A topic is replicated for 4 USD and read for 2, and the group reads all of them.
    who = shown(made).split("Who causes most")[1].splitlines()
    (row,) = (line.split() for line in who if "billing" in line)
    assert row == ["consuming", "t00", "and", "19", "more", "billing", "40.00", "0.00", "0.00"]
    assert who.index(next(line for line in who if "billing" in line)) < who.index(
        next(line for line in who if "replicating" in line)
    )
    assert "<td>t00, t01, t02 and 17 more</td><td>billing</td>" in page(made, at=AT)
    assert len([item for item in as_json(made)["items"] if item["group"] == "billing"]) == len(topics)


def test_names_of_others_are_shown_as_they_are() -> None:
    made = bill(name=HOSTILE)
    assert "\x1b" not in shown(made)
    text = page(made, [HistoryPoint(AT, {line: Span(1.0, 2.0) for line in LINES})] * 2, AT)
    assert "<script>" not in text
    assert "2026-11-29 12:00 UTC" in text


def test_the_page_has_the_bill_its_levers_and_its_history() -> None:
    history = [HistoryPoint(AT, {line: Span(GB_MONTH * 100, GB_MONTH * 100) for line in LINES})] * 3
    text = page(bill(), history, AT)
    for part in ("Kafka&#39;s traffic between racks costs 24.00", 'id="levers"', 'id="history"', "balance-leaders"):
        assert part in text
    assert 'id="history"' not in page(bill(), history[:1], AT)
    explained = Explanation(300.0, Span(100.0, 200.0), Span(1.0, 2.0), Span(98.0, 199.0), 0.0, "USD", {}, ())
    assert "The invoice has 300 B" in page(replace(bill(), invoice=explained))


def test_a_lever_that_costs_more_alone_says_that_it_comes_later() -> None:
    made = bill()
    lever = next(lever for lever in made.evaluation.levers if lever.kind == "leaders")
    assert summary(lever, made).startswith("lead partitions where they are written: saves 6.00 USD a month (alone ")
    alone = replace(lever, alone=Span(-1000.0, -1000.0))
    assert summary(alone, made).endswith(". Only after those before it: alone it may cost more")


def test_a_lever_that_saves_nothing_has_no_sentences() -> None:
    found = as_json(bill(replicas=[[1], [2], [3]], writer=None))
    for lever in found["levers"]:
        gains = lever["beyond"]["at_most"] > 0
        assert (lever["what"] is not None, lever["owners"] is not None) == (gains, gains), lever


def test_a_group_that_catches_up_is_named_in_the_first_line() -> None:
    made = bill()
    (group_,) = made.report.inspections
    first = TopicPartition("t", 0)
    late = replace(group_.rates, lag={first: 5}, by_commits=frozenset({first}), written_s=1.0)
    report = replace(made.report, inspections=(replace(group_, rates=late),))
    assert ", while billing catches up, which does not last. " in headline(replace(made, report=report))


def test_the_lines_are_metrics_of_the_exporter() -> None:
    metrics = BillMetrics(Price.from_options(None, "msk"))
    assert sum(len(metric.samples) for metric in metrics.collect()) == 0
    metrics.take(bill().report)
    size, money = ({tuple(s.labels.values()): s.value for s in m.samples} for m in metrics.collect())
    assert size[("replicating", "at_least")] == pytest.approx(600 * GB_MONTH)
    assert size[("replicating", "least_possible")] == pytest.approx(600 * GB_MONTH)
    assert size[("producing", "at_least")] == 0.0
    assert size[("producing", "at_most")] == pytest.approx(300 * GB_MONTH)
    assert money[("replicating", "at_most")] == 0.0
    assert money[("consuming", "at_most")] == pytest.approx(6.0)
    metrics.take(None)
    assert sum(len(metric.samples) for metric in metrics.collect()) == 0
