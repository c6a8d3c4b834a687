"""Metrics, scraped and parsed as Prometheus does.

Rebalances between descriptions of a group, with generations and without.

The JSON of a report follows its published schema.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeVar
from urllib.error import URLError

import pytest
from jsonschema import Draft202012Validator
from prometheus_client import generate_latest

from rackassign import __version__
from rackassign.model import TopicPartition
from rackassign.monitoring import ClusterReport, Price, RackMap, ReadRates, SkippedGroup, Throughput, as_json
from rackassign.monitoring.live_groups import GroupDescription, snapshot, topics_of
from rackassign.monitoring.report_metrics import RebalanceCounter, ReportMetrics, metrics_registry, serve_metrics
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates
from tests.helpers.exposition import of, parsed, registry_of, scraped
from tests.helpers.http_get import fetched
from tests.helpers.json_schemas import check, schema, strict

ODD_NAME = 'a "quoted"\\ name\nof two lines'


def survey(*names: str) -> ClusterReport:
    there = cluster({"t": [[1], [2]]})
    known = rates({("t", 0): 100.0, ("t", 1): 50.0})
    groups = (group(member("m1", "b", {"t": [0]}), member("m2", None, {"t": [1]}), name=name) for name in names)
    return ClusterReport(there, tuple(inspected(each, there, known) for each in groups), (), known)


def test_a_survey_is_scraped() -> None:
    metrics = ReportMetrics(Price(0.1), clock=lambda: 1234.5)
    assert scraped(metrics) == {("rackassign_up", ()): 0.0, ("rackassign_surveys_failed_total", ()): 0.0}
    assert metrics.not_ready() == "nothing was measured yet"
    metrics.take(replace(survey("g", ODD_NAME), skipped=(SkippedGroup("x", "odd"),)))
    found = scraped(metrics)
    for name in ("g", ODD_NAME):
        assert of(found, "rackassign_partitions", group=name, locality="cross") == 1
        assert of(found, "rackassign_partitions", group=name, locality="unknown") == 1
        pair = {"rack": "b", "from_rack": "a", "locality": "cross"}
        assert of(found, "rackassign_read_bytes_total", group=name, **pair) == 1000.0
        pair = {"rack": "unknown", "from_rack": "b", "locality": "unknown"}
        assert of(found, "rackassign_read_bytes_total", group=name, **pair) == 500.0
        assert of(found, "rackassign_members", group=name) == 2
        assert of(found, "rackassign_members_without_rack", group=name) == 1
        assert of(found, "rackassign_members_in_foreign_racks", group=name) == 0
        assert of(found, "rackassign_group_assigned_by_broker", group=name) == 0
        assert of(found, "rackassign_cross_usd_per_month", group=name) == pytest.approx(Price(0.1).monthly(100.0))
        reached = {"group": name, "strategy": "cooperative-sticky"}
        assert of(found, "rackassign_reachable_partitions", **reached, locality="local") == 1
        assert of(found, "rackassign_reachable_moves", **reached) == 2
    assert of(found, "rackassign_survey_problems") == 1
    assert (of(found, "rackassign_up"), of(found, "rackassign_last_success_timestamp_seconds")) == (1, 1234.5)
    assert [of(found, "rackassign_group_seen", group=name) for name in ("g", ODD_NAME, "x")] == [1, 1, 0]
    assert metrics.not_ready() == ""


def test_after_a_survey_that_failed_nothing_of_the_past_is_shown_and_counters_go_on() -> None:
    now = iter([1.0, 2.0])
    metrics = ReportMetrics(Price(), clock=lambda: next(now))
    metrics.take(replace(survey("g"), duration_s=3.5))
    assert of(scraped(metrics), "rackassign_survey_duration_seconds") == 3.5
    metrics.fail("Kafka at k:1 does not respond")
    assert scraped(metrics) == {
        ("rackassign_up", ()): 0.0,
        ("rackassign_surveys_failed_total", ()): 1.0,
        ("rackassign_last_success_timestamp_seconds", ()): 1.0,
    }
    assert metrics.not_ready() == "Kafka at k:1 does not respond"
    metrics.take(survey("g"))
    found = scraped(metrics)
    pair = {"rack": "b", "from_rack": "a", "locality": "cross"}
    assert of(found, "rackassign_read_bytes_total", group="g", **pair) == 2000.0
    assert (of(found, "rackassign_up"), of(found, "rackassign_last_success_timestamp_seconds")) == (1, 2.0)


def test_a_survey_that_is_overdue_counts_as_failed_until_the_next_one() -> None:
    now = 100.0
    metrics = ReportMetrics(Price(), 10.0, clock=lambda: 7.0, timer=lambda: now)
    metrics.take(replace(survey("g"), duration_s=11.0))
    now += 42.0
    assert of(scraped(metrics), "rackassign_up") == 1
    assert metrics.not_ready() == ""
    now += 2.0
    assert scraped(metrics) == {
        ("rackassign_up", ()): 0.0,
        ("rackassign_surveys_failed_total", ()): 0.0,
        ("rackassign_last_success_timestamp_seconds", ()): 7.0,
    }
    assert metrics.not_ready() == "no survey has succeeded for 44 s"
    metrics.take(survey("g"))
    assert of(scraped(metrics), "rackassign_up") == 1


def test_a_rack_may_be_called_unknown() -> None:
    there = cluster({"t": [[1], [2]]}, brokers(["unknown", "b"]))
    known = rates({("t", 0): 100.0, ("t", 1): 50.0})
    live = group(member("m1", "unknown", {"t": [0]}), member("m2", None, {"t": [1]}))
    metrics = ReportMetrics(Price())
    metrics.take(ClusterReport(there, (inspected(live, there, known),), (), known))
    text = generate_latest(registry_of(metrics)).decode()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_money_is_left_out_where_not_all_was_measured() -> None:
    there, known = cluster({"t": [[1], [2]]}), rates({("t", 0): 100.0})
    metrics = ReportMetrics(Price())
    metrics.take(ClusterReport(there, (inspected(group(member("m1", "b", {"t": [0, 1]})), there, known),), (), known))
    assert not [key for key in scraped(metrics) if key[0] == "rackassign_cross_usd_per_month"]


@pytest.mark.parametrize(("why", "hidden"), [("not allowed: DESCRIBE on topic u", 1), ("InvalidTopicError", 0)])
def test_money_is_left_out_where_not_all_was_described(why: str, hidden: int) -> None:
    there, known = replace(cluster({"t": [[1], [2]]}), missing={"u": why}), rates({("t", 0): 100.0})
    metrics = ReportMetrics(Price())
    groups = (group(member("m1", "b", {"t": [0], "u": [0]}), name=name) for name in "gh")
    metrics.take(ClusterReport(there, tuple(inspected(each, there, known) for each in groups), (), known))
    found = scraped(metrics)
    assert of(found, "rackassign_survey_problems") == hidden
    assert ("rackassign_cross_usd_per_month" in {name for name, _ in found}) is not bool(hidden)


def test_a_rack_that_is_named_like_an_unknown_one_is_one_series_with_it() -> None:
    there = cluster({"t": [[1], [1]]})
    tps = [TopicPartition("t", p) for p in (0, 1)]
    odd = group(member("m", "unknown", {"t": [0]}), member("n", None, {"t": [1]}), name="odd")
    metrics = ReportMetrics(Price())
    read = ReadRates(lag={tps[0]: 3, tps[1]: 4})
    metrics.take(ClusterReport(there, (inspected(odd, there, read),), (), rates({})))
    assert of(scraped(metrics), "rackassign_rack_lag_records", group="odd", rack="unknown") == 7


def test_members_in_racks_of_no_broker_and_groups_of_the_broker_are_exported() -> None:
    there = cluster({"t": [[1], [2]]})
    far = group(member("m", "use1-az9", {"t": [0]}), member("n", "a", {"t": [1]}), name="far")
    late = replace(member("m", "a", {"t": [0, 1]}), epoch=6)
    served = replace(group(late, name="served"), kind="consumer", strategy="uniform", epoch=7, assignment_epoch=6)
    left = replace(group(name="left"), kind="consumer", state="Empty")
    metrics, groups = ReportMetrics(Price()), (far, served, left)
    metrics.take(ClusterReport(there, tuple(inspected(g, there, rates({})) for g in groups), (), rates({})))
    found = scraped(metrics)
    assert [of(found, "rackassign_members_in_foreign_racks", group=g.name) for g in groups] == [1, 0, 0]
    assert [of(found, "rackassign_members_without_rack", group=g.name) for g in groups] == [0, 0, 0]
    assert [of(found, "rackassign_group_assigned_by_broker", group=g.name) for g in groups] == [0, 1, 0]
    assert of(found, "rackassign_broker_assignor", group="served", assignor="uniform") == 1
    epochs = ("rackassign_group_epoch", "rackassign_group_assignment_epoch", "rackassign_members_behind")
    assert [of(found, name, group="served") for name in epochs] == [7, 6, 1]
    assert of(found, "rackassign_reachable_partitions", group="served", strategy="rackassign", locality="local") == 1


def test_rebalances_are_counted_between_surveys() -> None:
    there, metrics = cluster({"t": [[1], [2]]}), ReportMetrics(Price())
    for owned in ([0], [0], [0, 1]):
        seen = inspected(group(member("m", "b", {"t": owned}), name="g"), there, rates({}))
        metrics.take(ClusterReport(there, (seen,), (), rates({})))
    assert of(scraped(metrics), "rackassign_rebalances_total", group="g") == 1


def test_lag_is_exported_where_it_is_known_and_savings_as_a_range() -> None:
    there, tp = cluster({"t": [[1]]}), TopicPartition("t", 0)
    lagging = inspected(
        group(member("m", "b", {"t": [0]}), member("n", "a", {}, "t"), name="lagging"),
        there,
        ReadRates({tp: 1e6}, {tp: 1e7}, {tp: 77}, frozenset({tp})),
    )
    # A group of one member would save nothing, wherever that is.
    silent = inspected(
        group(member("m", None, {"t": [0]}), member("n", None, {}, "t"), name="silent"),
        there,
        ReadRates({tp: 1e6}, {tp: 1e7}),
    )
    metrics = ReportMetrics(Price())
    metrics.take(ClusterReport(there, (lagging, silent), (), rates({("t", 0): 1e6})))
    found = scraped(metrics)
    assert {key: value for key, value in found.items() if key[0] == "rackassign_lag_records"} == {
        ("rackassign_lag_records", (("group", "lagging"),)): 77.0
    }
    assert {key: value for key, value in found.items() if key[0] == "rackassign_rack_lag_records"} == {
        ("rackassign_rack_lag_records", (("group", "lagging"), ("rack", "b"))): 77.0
    }
    savings = "rackassign_savings_usd_per_month"
    assert of(found, savings, group="lagging", bound="at_least") == pytest.approx(Price().monthly(1e6))
    assert of(found, savings, group="silent", bound="at_least") == 0.0
    assert of(found, savings, group="silent", bound="at_most") == pytest.approx(Price().monthly(1e6))


def test_what_was_read_adds_up_and_a_group_that_is_gone_is_forgotten() -> None:
    metrics = ReportMetrics(Price())
    metrics.take(survey("stays", "goes", "hides"))
    metrics.take(replace(survey("stays"), skipped=(SkippedGroup("hides", "in a rebalance"),)))
    metrics.take(survey("stays", "hides"))
    metrics.fail("lost")
    metrics.take(survey("stays", "hides"))
    found = scraped(metrics)
    pair = {"rack": "b", "from_rack": "a", "locality": "cross"}
    assert of(found, "rackassign_read_bytes_total", group="stays", **pair) == 4000.0
    assert of(found, "rackassign_read_bytes_total", group="hides", **pair) == 3000.0
    assert not [key for key in found if ("group", "goes") in key[1]]
    assert of(found, "rackassign_surveys_failed_total") == 1


def test_a_group_that_a_broker_does_not_list_now_continues_its_counters() -> None:
    metrics, there = ReportMetrics(Price()), cluster({"t": [[1], [2]]})
    metrics.take(survey("g", "h"))
    silent = SkippedGroup("", "broker 1 does not list its groups: NodeNotReadyError", unlisted=True)
    metrics.take(replace(survey("g"), skipped=(silent,)))
    moved = inspected(group(member("m1", "b", {"t": [0, 1]}), name="h"), there, rates({("t", 0): 100.0}))
    metrics.take(ClusterReport(there, (moved,), (), rates({("t", 0): 100.0})))
    found = scraped(metrics)
    pair = {"rack": "b", "from_rack": "a", "locality": "cross"}
    assert of(found, "rackassign_read_bytes_total", group="h", **pair) == 2000.0
    assert of(found, "rackassign_rebalances_total", group="h") == 1
    # All brokers have listed their groups again, and this one was not among them.
    assert not [key for key in found if ("group", "g") in key[1]]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_metrics_are_served_and_nothing_else(address: str) -> None:
    metrics = ReportMetrics(Price())
    with serve_metrics(address, 0, metrics_registry(metrics), metrics.not_ready) as port:
        base = f"http://{address}:{port}"
        assert fetched(f"{base}/-/healthy") == (200, "healthy\n")
        assert fetched(f"{base}/-/ready") == (503, "nothing was measured yet\n")
        assert of(parsed(fetched(f"{base}/metrics")[1]), "rackassign_up") == 0
        metrics.take(survey("g"))
        assert fetched(f"{base}/-/ready") == (200, "ready\n")
        assert of(parsed(fetched(f"{base}/metrics?x=1")[1]), "rackassign_members", group="g") == 2
        for path in ("", "/", "/metric", "/metrics/", "/-/reload"):
            assert fetched(base + path) == (404, "not found: /metrics, /-/healthy and /-/ready are\n")
    with pytest.raises(URLError):
        fetched(f"{base}/-/healthy")


def test_a_client_that_sends_nothing_keeps_no_other_waiting() -> None:
    metrics = ReportMetrics(Price())
    with serve_metrics("127.0.0.1", 0, metrics_registry(metrics), metrics.not_ready) as port, ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert fetched(f"http://127.0.0.1:{port}/-/healthy") == (200, "healthy\n")


def test_connections_that_end_or_stay_silent_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    limit = "rackassign.monitoring.report_metrics._Handler.timeout"
    metrics = ReportMetrics(Price())
    with serve_metrics("127.0.0.1", 0, metrics_registry(metrics), metrics.not_ready) as port:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as reset:
                # Closing then sends RST, as health checks do.
                reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # For this connection only: it is read when the connection is accepted, and a request needs its time.
        with pytest.MonkeyPatch.context() as brief:
            brief.setattr(limit, 0.05)
            with socket.create_connection(("127.0.0.1", port)) as silent:
                assert silent.recv(1) == b""
        assert fetched(f"http://127.0.0.1:{port}/-/healthy") == (200, "healthy\n")
    assert capsys.readouterr().err == ""


def test_racks_that_no_member_has_any_more_leave_no_series() -> None:
    metrics = ReportMetrics(Price())
    known = rates({("t", 0): 100.0})
    for start in range(50):
        there = cluster({"t": [[1], [2]]}, brokers((f"pod-{start}", "b")))
        live = group(member("m", f"pod-{start}", {"t": [0]}), name="g")
        metrics.take(ClusterReport(there, (inspected(live, there, known),), (), known))
    series = [labels for name, labels in scraped(metrics) if name == "rackassign_read_bytes_total"]
    assert [dict(labels)["rack"] for labels in series] == ["pod-49"]
    # What was read in a rack with brokers stays, whoever reads there now.
    there = cluster({"t": [[1], [2]]})
    for rack in ("b", "a"):
        live = group(member("m", rack, {"t": [0]}), name="g")
        metrics.take(ClusterReport(there, (inspected(live, there, known),), (), known))
    series = [labels for name, labels in scraped(metrics) if name == "rackassign_read_bytes_total"]
    assert sorted(dict(labels)["rack"] for labels in series) == ["a", "b"]


NONE: frozenset[str] = frozenset()
ONE, TWO = {"t": [0]}, {"t": [1]}


def at(generation: int | None, *owned: dict[str, list[int]]) -> GroupDescription:
    """Return a group whose members send a generation, or none."""
    found = group(*(member(f"m{i}", "a", each) for i, each in enumerate(owned)))
    if generation is None:
        return found
    members = tuple(
        replace(each, subscription=replace(each.subscription, generation=generation)) if each.subscription else each
        for each in found.members
    )
    return replace(found, members=members)


@pytest.mark.parametrize(
    ("seen", "rebalances"),
    [
        pytest.param([at(4, ONE), at(4, ONE), at(9, ONE)], 5, id="each generation"),
        # It is not known yet what is sent after the change.
        pytest.param([at(4, ONE), at(4, TWO)], 1, id="a change before its generation"),
        pytest.param([at(4, ONE), at(6, TWO), at(6, TWO)], 2, id="generations with a change"),
        pytest.param([at(None, ONE), at(None, ONE)], 0, id="no generation and no change"),
        pytest.param(
            [at(None, ONE), at(None, ONE, TWO), at(None, ONE, TWO), at(None, TWO, ONE)],
            2,
            id="changes without generations",
        ),
        pytest.param([at(40, ONE), at(1, TWO), at(2, TWO)], 2, id="generations that begin again"),
        pytest.param([at(40, ONE), at(None), at(1, ONE)], 2, id="a group that was empty"),
    ],
)
def test_rebalances_are_counted_by_generations_or_by_changes(seen: list[GroupDescription], rebalances: int) -> None:
    counter = RebalanceCounter()
    for each in seen:
        counter.take([each], NONE)
    assert counter.totals()[seen[0].name] == rebalances


def test_a_hidden_group_goes_on_and_a_deleted_one_begins_again() -> None:
    counter, seen = RebalanceCounter(), at(4, ONE)
    counter.take([seen], NONE)
    counter.take([], frozenset({seen.name}))
    counter.take([at(7, TWO)], NONE)
    assert counter.totals() == {seen.name: 3}
    counter.take([], NONE)
    assert counter.totals() == {}
    counter.take([at(9, TWO)], NONE)
    assert counter.totals() == {seen.name: 0}


EACH = cluster({"t": [[at % 3 + 1] for at in range(18)]})
"""A topic of 18 partitions without copies, a third of them in each rack."""


def wanted(metrics: ReportMetrics, counts: str, growth: int = 0, name: str = "g") -> str:
    """Report a group whose members are in these racks, and return the racks of the wanted ones."""
    live = group(*(member(f"m{at}", rack, {}, "t") for at, rack in enumerate(counts)), name=name)
    found = inspected(live, EACH, ReadRates(lag_growth=growth))
    metrics.take(ClusterReport(EACH, (found,), (), Throughput()))
    gauges = {
        dict(labels)["rack"]: n for (gauge, labels), n in scraped(metrics).items() if gauge.endswith("wanted_members")
    }
    return "".join(rack * int(count) for rack, count in gauges.items())


def test_wanted_members_are_even_and_change_at_a_step_alone() -> None:
    metrics = ReportMetrics(Price())
    assert wanted(metrics, "aaaaa") == "aabbc"
    # Members that stop, start, or are replaced change nothing, nor does lag while not all of them are there.
    for racks in ("aabb", "", "aabbcc", "aabb"):
        assert wanted(metrics, racks or "a", 5) == "aabbc"
    # All are there, but were not all the time.
    assert wanted(metrics, "aabbc", 5) == "aabbc"
    assert wanted(metrics, "aabbc", -5) == "aabbc"
    # Five read 4 partitions at most, and six read 3; next are nine, who read 2.
    assert wanted(metrics, "aabbc", 5) == "aabbcc"
    assert wanted(metrics, "aabbc", 5) == "aabbcc"
    assert wanted(metrics, "aabbcc", 5) == "aabbcc"
    assert wanted(metrics, "aabbcc", 5) == "aaabbbccc"
    # A group that could not be described goes on; one without members begins again.
    metrics.take(ClusterReport(EACH, (), (SkippedGroup("g", "in a rebalance"),), Throughput()))
    assert wanted(metrics, "ab") == "aaabbbccc"
    assert wanted(metrics, "") == ""
    assert wanted(metrics, "ab") == "ab"


def test_what_scales_to_the_wanted_members_ends_and_does_not_go_back() -> None:
    metrics, racks, seen = ReportMetrics(Price()), "a", list[str]()
    # A member reads 2.5 partitions as fast as they are written.
    for _ in range(20):
        busy = 2.5 * len(racks) < 18
        racks = wanted(metrics, racks, 100 if busy else -100)
        seen.append(racks)
    assert list(dict.fromkeys(seen)) == ["a", "ab", "abc", "aabc", "aabbc", "aabbcc", "aaabbbccc"]
    assert len(seen[-1]) * 2.5 >= 18
    # More than a member for each partition are never wanted, however much a group lags.
    for _ in range(9):
        racks = wanted(metrics, racks, 100)
    assert len(racks) == 18


def test_a_group_that_cannot_be_scaled_has_no_wanted_members() -> None:
    metrics = ReportMetrics(Price())
    odd = group(member("m", "a", {"t": [0]}), member("n", "b", {}, "t", "u"))
    metrics.take(ClusterReport(EACH, (inspected(odd, EACH),), (), Throughput()))
    assert not [name for name, _ in scraped(metrics) if name == "rackassign_wanted_members"]


SCHEMA = schema("inspection")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

THERE = cluster({"t": [[1, 2], [2], [3]], "gone": [[1]]}, brokers(("a", "b", None)))
KNOWN = rates({("t", p): 1000.0 * (p + 1) for p in range(3)})
LAGGING = ReadRates(
    {TopicPartition("t", 0): 5.0}, {TopicPartition("t", 0): 50.0}, {TopicPartition("t", 0): 7}, frozenset()
)


@pytest.mark.parametrize("measured", [True, False])
def test_it_follows_the_schema(*, measured: bool) -> None:
    known = KNOWN if measured else Throughput()
    groups = (
        inspected(
            group(member("m1", "a", {"t": [0, 1]}), member("m2", None, {"t": [2]}), name="odd"),
            THERE,
            known,
            RackMap({"m2": "b"}),
        ),
        inspected(
            replace(group(member("m1", "a", {"t": [0]}), name="served"), kind="consumer", epoch=2, assignment_epoch=2),
            THERE,
            known,
        ),
        inspected(group(member("m1", None, {"t": [0]}), name="silent"), THERE, LAGGING if measured else known),
        inspected(group(name="empty"), THERE, known),
    )
    report = ClusterReport(THERE, groups, (SkippedGroup("", "odd"), SkippedGroup("x", "odd")), known)
    found = json.loads(json.dumps(as_json(report, Price(), AT)))
    check("inspection", found)
    assert (found["version"], found["time"]) == (__version__, "2026-01-02T03:04:05+00:00")
    assert (found["groups"][0]["savings"] is not None) == measured
    if measured:
        assert found["groups"][2]["lag"] == {
            "records": 7,
            "partitions": {"t": {"0": 7}},
            "racks": [{"rack": None, "records": 7}],
        }


def test_the_schema_finds_what_is_undocumented_or_missing() -> None:
    report = ClusterReport(THERE, (inspected(group(member("m1", "a", {"t": [0]})), THERE, KNOWN),), (), KNOWN)
    found = as_json(report, Price(), AT)
    found["groups"][0]["lagg"] = found["groups"][0].pop("lag")
    assert len(list(Draft202012Validator(strict(SCHEMA)).iter_errors(found))) == 2
    assert len(list(Draft202012Validator(SCHEMA).iter_errors(found))) == 1


T = TypeVar("T")


class Counted(tuple[T, ...]):  # noqa: SLOT001 - it counts
    """A tuple that counts how often it is iterated over."""

    passes = 0

    def __iter__(self) -> Iterator[T]:
        self.passes += 1
        return super().__iter__()


def passes(members: int) -> tuple[int, int, int]:
    """Return how often all members, and all partitions, are looked at for a snapshot and for the JSON of a group."""
    there = cluster({"t": [[1]] * members})
    asked = Counted(member(f"m{i}", "a", {"t": [i]}) for i in range(members))
    live = replace(group(), members=asked)
    shot = snapshot(live, there.topology, RackMap())
    topics_of(live)
    seen = inspected(group(*asked), there)
    reads, kept = Counted(seen.now), Counted(shot.group.members)
    seen = replace(seen, now=reads, snapshot=replace(shot, group=replace(shot.group, members=kept)))
    before = kept.passes
    as_json(ClusterReport(there, (seen,), (), Throughput()), Price())
    return asked.passes, reads.passes, kept.passes - before


def test_a_large_group_is_not_looked_at_once_for_each_member() -> None:
    assert passes(40) == passes(4)
