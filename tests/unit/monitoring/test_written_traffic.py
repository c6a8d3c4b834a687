"""What producers write beside what groups read, from counters and reports made here."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rackassign.model import Broker, TopicPartition, Topology
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.throughput import Throughput
from rackassign.monitoring.traffic import ObservedCluster
from rackassign.monitoring.written_bytes import (
    WrittenBytes,
    WrittenSeries,
    WrittenTraffic,
    written_traffic,
    written_warnings,
)

SECONDS = 10.0


def counters(sizes: Mapping[str, int], at: float = 0.0) -> WrittenBytes:
    """Return bytes by topic, rack and rack of the leader in one word, `t a b`, with `?` for an unknown rack."""
    series = {}
    for names, size in sizes.items():
        topic, rack, to_rack = (None if name == "?" else name for name in names.split())
        series[WrittenSeries(topic or "", 0, rack, to_rack)] = size
    return WrittenBytes(series, (at,))


def report(logs: Mapping[str, float]) -> ClusterReport:
    """Return a report without groups of a cluster in the racks a and b, whose logs grow by so many bytes a second."""
    topology = Topology((Broker(1, "a"), Broker(2, "b")), {})
    cluster = ObservedCluster((), topology)
    rates = {TopicPartition(topic, number): rate / 2 for topic, rate in logs.items() for number in range(2)}
    return ClusterReport(cluster, (), (), Throughput(rates, seconds=SECONDS))


def compared(before: Mapping[str, int], after: Mapping[str, int], logs: Mapping[str, float]) -> WrittenTraffic:
    return written_traffic(report(logs), counters(before), counters(after, SECONDS))


def test_rates_are_increases_between_the_two_looks() -> None:
    before = {"t a a": 1000, "t a b": 50, "u b b": 7}
    after = {"t a a": 1100, "t a b": 350, "u b b": 7, "t ? b": 10}
    written = compared(before, after, {"t": 50, "u": 0})
    t, u = written.topics
    assert (t.topic, t.written.pairs) == ("t", {("a", "a"): 10, ("a", "b"): 30, (None, "b"): 1})
    assert (written.explained(t), written.explained(u)) == (41 / 50, None)
    assert (written.written.cross, written.by_totals) == (30, False)


def test_a_process_that_was_started_again_has_written_what_it_counts_since() -> None:
    (t,) = compared({"t a b": 5000}, {"t a b": 40}, {}).topics
    assert (t.written.cross, t.log_bytes_s) == (4, None)


def test_a_process_that_was_started_again_does_not_spoil_the_counters_of_another() -> None:
    before, after = (
        WrittenBytes({WrittenSeries("t", 0, "a", "b", number): size for number, size in enumerate(sizes)}, (at, at))
        for sizes, at in (((5000, 10**12), 0), ((40, 10**12 + 60), SECONDS))
    )
    (t,) = written_traffic(report({}), before, after).topics
    assert t.written.cross == 10


def test_each_source_has_its_own_interval() -> None:
    before, after = (
        WrittenBytes({WrittenSeries("t", 0, "a", "b", number): size for number, size in enumerate(sizes)}, read_at)
        for sizes, read_at in (((0, 0, 9), (0.0, 1.0, 2.0)), ((100, 300, 9), (10.0, 16.0, 12.0)))
    )
    written = written_traffic(report({}), before, after)
    assert (written.topics[0].written.cross, written.seconds) == (10 + 20, 15)
    # A saved file among metrics that change.
    (line,) = written_warnings(written, report({}))
    assert line.startswith("1 source of the producers' metrics did not change, unlike others, and counted as 0")


def test_what_has_not_changed_counts_by_its_shares() -> None:
    totals = {"t a a": 300, "t a b": 100, "u a b": 9}
    written = compared(totals, totals, {"t": 80})
    t, u = written.topics
    assert (t.written.local, t.written.cross, written.explained(t)) == (60, 20, None)
    assert (u.written.total, u.written.unmeasured) == (0, 1)
    (line,) = written_warnings(written, report({}))
    assert line.startswith("the producers' metrics have not changed in 10 s")


@pytest.mark.parametrize(("rack", "lines"), [("a", []), ("?", []), ("A", ['"A"; racks of brokers: a, b'])])
def test_a_rack_that_no_broker_has_is_named(rack: str, lines: list[str]) -> None:
    written = compared({}, {f"t {rack} b": 10}, {})
    assert [line.rpartition("has: ")[2] for line in written_warnings(written, report({}))] == lines
    # It is unknown whether it crosses racks, as with a reader in such a rack.
    assert written.written.cross == (1 if rack == "a" else 0)


def test_without_metrics_there_is_nothing_to_warn_of() -> None:
    assert not list(written_warnings(None, report({})))
