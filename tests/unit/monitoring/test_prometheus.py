"""Metrics, scraped and parsed as Prometheus does."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from rackassign.clients.common.fetch_metrics import FetchLocality, Traffic
from rackassign.errors import ConfigError
from rackassign.monitoring import ClusterReport, Price, SkippedGroup
from rackassign.monitoring.prometheus import ConsumerMetrics, ReportMetrics
from tests.helpers.builders import brokers, cluster, group, inspected, member, rates

ODD_NAME = 'a "quoted"\\ name\nof two lines'


def scraped(collector: Collector) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what a scrape gives, by name and labels."""
    return parsed(generate_latest(registered(collector)).decode())


def registered(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Mapping[Any, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def survey(*names: str) -> ClusterReport:
    there = cluster({"t": [[1], [2]]})
    known = rates({("t", 0): 100.0, ("t", 1): 50.0})
    groups = (group(member("m1", "b", {"t": [0]}), member("m2", None, {"t": [1]}), name=name) for name in names)
    return ClusterReport(there, tuple(inspected(each, there, known) for each in groups), (), known)


def test_a_survey_is_scraped() -> None:
    metrics = ReportMetrics(Price(0.1))
    assert scraped(metrics) == {("rackassign_surveys_failed_total", ()): 0.0}
    metrics.take(replace(survey("g", ODD_NAME), skipped=(SkippedGroup("x", "odd"),)))
    found = scraped(metrics)
    for name in ("g", ODD_NAME):
        assert of(found, "rackassign_partitions", group=name, locality="cross") == 1
        assert of(found, "rackassign_partitions", group=name, locality="unknown") == 1
        assert of(found, "rackassign_read_bytes_total", group=name, rack="b", from_rack="a") == 1000.0
        assert of(found, "rackassign_read_bytes_total", group=name, rack="unknown", from_rack="b") == 500.0
        assert of(found, "rackassign_members", group=name) == 2
        assert of(found, "rackassign_members_without_rack", group=name) == 1
        assert of(found, "rackassign_cross_usd_per_month", group=name) == pytest.approx(Price(0.1).monthly(100.0))
        reached = {"group": name, "strategy": "cooperative-sticky"}
        assert of(found, "rackassign_reachable_partitions", **reached, locality="local") == 1
        assert of(found, "rackassign_reachable_moves", **reached) == 2
    assert of(found, "rackassign_survey_problems") == 1


def test_a_rack_may_be_called_unknown() -> None:
    there = cluster({"t": [[1], [2]]}, brokers(["unknown", "b"]))
    known = rates({("t", 0): 100.0, ("t", 1): 50.0})
    live = group(member("m1", "unknown", {"t": [0]}), member("m2", None, {"t": [1]}))
    metrics = ReportMetrics(Price())
    metrics.take(ClusterReport(there, (inspected(live, there, known),), (), known))
    text = generate_latest(registered(metrics)).decode()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_money_is_left_out_where_not_all_was_measured() -> None:
    there, known = cluster({"t": [[1], [2]]}), rates({("t", 0): 100.0})
    metrics = ReportMetrics(Price())
    metrics.take(ClusterReport(there, (inspected(group(member("m1", "b", {"t": [0, 1]})), there, known),), (), known))
    assert not [key for key in scraped(metrics) if key[0] == "rackassign_cross_usd_per_month"]


def test_what_was_read_adds_up_and_a_group_that_is_gone_is_forgotten() -> None:
    metrics = ReportMetrics(Price())
    metrics.take(survey("stays", "goes", "hides"))
    metrics.take(replace(survey("stays"), skipped=(SkippedGroup("hides", "in a rebalance"),)))
    metrics.take(survey("stays", "hides"))
    metrics.fail()
    found = scraped(metrics)
    pair = {"rack": "b", "from_rack": "a"}
    assert of(found, "rackassign_read_bytes_total", group="stays", **pair) == 3000.0
    assert of(found, "rackassign_read_bytes_total", group="hides", **pair) == 2000.0
    assert not [key for key in found if ("group", "goes") in key[1]]
    assert of(found, "rackassign_surveys_failed_total") == 1


class Consumer:
    config: Mapping[str, Any] = {"group_id": "g"}

    def locality(self) -> FetchLocality:
        return FetchLocality("b", {"t": {"a": Traffic(7, 1), None: Traffic(1, 1)}, "u": {"a": Traffic(3, 1)}})


def test_a_consumer_is_scraped_by_the_same_names() -> None:
    found = scraped(ConsumerMetrics(Consumer()))
    assert found == {
        ("rackassign_read_bytes_total", (("from_rack", "a"), ("group", "g"), ("rack", "b"))): 10.0,
        ("rackassign_read_bytes_total", (("from_rack", "unknown"), ("group", "g"), ("rack", "b"))): 1.0,
    }


def test_a_consumer_must_count_and_have_a_group() -> None:
    with pytest.raises(ConfigError, match="attach"):
        ConsumerMetrics(object())  # type: ignore[arg-type]
    nameless = Consumer()
    nameless.config = {}
    with pytest.raises(ConfigError, match="group"):
        ConsumerMetrics(nameless)
    assert scraped(ConsumerMetrics(nameless, "h"))


def test_metrics_are_served() -> None:
    registry, metrics = CollectorRegistry(), ReportMetrics(Price())
    registry.register(metrics)
    metrics.take(survey("g"))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
            found = parsed(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert of(found, "rackassign_members", group="g") == 2
