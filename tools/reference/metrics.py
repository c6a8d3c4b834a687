"""The page of all metrics, made from those that the collectors give for a small group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric

from rackassign.monitoring import ClusterReport, Price
from rackassign.monitoring.prometheus import ConsumerMetrics
from rackassign.monitoring.report_metrics import ReportMetrics
from rackassign.stateful.prometheus import StateMetrics
from tests.helpers.builders import cluster, group, inspected, member, rates

_HEAD = """# Metrics

This page is made from the metrics themselves, by `make reference`. [Monitor
groups](../how-to/monitor-groups.md#questions-in-promql) has queries, alerts and a dashboard. Metrics of an exporter and
of consumers with the same name have the same labels.
"""


def families() -> dict[str, list[Metric]]:
    """Return all metrics by who serves them."""
    there, known = cluster({"t": [[1], [2]]}), rates({("t", 0): 100.0, ("t", 1): 50.0})
    live = group(member("m1", "b", {"t": [0]}), member("m2", None, {"t": [1]}))
    exported = ReportMetrics(Price())
    exported.take(ClusterReport(there, (inspected(live, there, known),), (), known))
    return {
        "`rackassign exporter`": list(exported.collect()),
        "Consumers: `ConsumerMetrics`": list(ConsumerMetrics().describe()),
        "`StatefulConsumer`: `StateMetrics`": list(StateMetrics().describe()),
    }


def page() -> str:
    """Return the page, in Markdown."""
    return "\n".join([_HEAD, *(_section(name, of) for name, of in families().items())])


def _section(name: str, metrics: Iterable[Metric]) -> str:
    head = f"## {name}\n\n| metric | type | labels | description |\n| --- | --- | --- | --- |\n"
    return head + "".join(_rows(metrics))


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in labels_of(metric))
        # A client library appends it where metrics are scraped.
        suffix = "_total" if metric.type == "counter" else ""
        yield f"| `{metric.name}{suffix}` | {metric.type} | {labels} | {metric.documentation} |\n"


def labels_of(metric: Metric) -> tuple[str, ...]:
    """Return the names of the labels of a metric, which may have no samples yet."""
    # There is no public attribute.
    return tuple(metric._labelnames)  # type: ignore[attr-defined]
