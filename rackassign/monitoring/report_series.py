"""Prometheus metrics of reports, and the HTTP server of the exporter."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rackassign.errors import MissingExtraError
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.group_metrics import group_metrics
from rackassign.monitoring.consumer_pool import RackPair
from rackassign.monitoring.rebalance_counter import RebalanceCounter
from rackassign.monitoring.report import Price, hidden_topics
from rackassign.monitoring.prometheus import add_read_bytes, read_bytes_metric
from rackassign.monitoring.traffic import traffic_matrix

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_LATE, _GRACE_S = 3, 10.0
"""A report that has not come after so many intervals, and so many seconds more, is overdue."""


class ReportMetrics(Collector):
    """Metrics of reports, the last one at each scrape; bytes are accumulated over reports.

    After a report that failed there are no series of groups, until the next one: values of the past would look like
    those of a healthy cluster. A report that is long overdue counts as failed: while Kafka does not respond,
    kafka-python waits for much longer than the interval of the reports.

    Args:
        price: Price of cross-rack traffic.
        interval_s: Seconds of each report.
        clock: Unix time in seconds.
        timer: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        price: Price,
        interval_s: float = math.inf,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._price = price
        self._interval_s = interval_s
        self._clock = clock
        self._timer = timer
        self._taken_at = 0.0
        self._lock = threading.Lock()
        self._last: ClusterReport | None = None
        self._problem = "nothing was measured yet"
        self._succeeded_at: float | None = None
        self._failed = 0
        self._read: dict[tuple[str, RackPair], float] = {}
        self._rebalances = RebalanceCounter()

    def take(self, survey: ClusterReport) -> None:
        """Store a report."""
        with self._lock:
            self._last = survey
            self._problem = ""
            self._succeeded_at = self._clock()
            self._taken_at = self._timer()
            gone = {name for name, _ in self._read} - {i.snapshot.live.name for i in survey.inspections}
            # A group that is temporarily skipped continues its counter; deleted groups are dropped.
            odd = {odd.name for odd in survey.skipped}
            if any(odd.unlisted for odd in survey.skipped):
                # Any group that is missing may be one of those that a broker does not list now.
                odd |= gone | self._rebalances.totals().keys()
            self._read = {key: total for key, total in self._read.items() if key[0] not in gone - odd}
            self._drop_former_racks(survey)
            self._rebalances.take((i.snapshot.live for i in survey.inspections), frozenset(odd))
            for inspected in survey.inspections:
                # Bytes, and not rates times seconds: the time between the samples differs between brokers.
                for pair, size in traffic_matrix(inspected.now, inspected.rates.bytes_read).pairs.items():
                    key = (inspected.snapshot.live.name, pair)
                    self._read[key] = self._read.get(key, 0.0) + size

    def _drop_former_racks(self, survey: ClusterReport) -> None:
        """Drop series of reader racks that no broker and no member of the group has any more.

        Otherwise members that report the name of their pod as rack would add series with each of their starts.
        """
        brokers = {broker.rack for broker in survey.cluster.topology.brokers}
        homes = {i.snapshot.live.name: {m.rack for m in i.snapshot.group.members} for i in survey.inspections}
        self._read = {
            (name, pair): total
            for (name, pair), total in self._read.items()
            if pair[1] is None or pair[1] in brokers or name not in homes or pair[1] in homes[name]
        }

    def fail(self, problem: str) -> None:
        """Count a report that could not be made, and withdraw the series of groups."""
        with self._lock:
            self._failed += 1
            self._problem = problem
            self._last = None

    @property
    def succeeded(self) -> bool:
        """Whether there has been a report."""
        return self._succeeded_at is not None

    def not_ready(self) -> str:
        """Return why there are no series of groups; empty if there are."""
        with self._lock:
            return self._problem or self._overdue()

    def _overdue(self) -> str:
        """Return since when a report is overdue; empty if none is."""
        if self._last is None:
            return ""
        age_s = self._timer() - self._taken_at
        # The analysis of hundreds of groups may take longer than the interval.
        if age_s <= _LATE * max(self._interval_s, self._last.duration_s) + _GRACE_S:
            return ""
        return f"no survey has succeeded for {age_s:.0f} s"

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the last report; called from the server's thread."""
        with self._lock:
            last, failed, read, succeeded_at = self._last, self._failed, dict(self._read), self._succeeded_at
            rebalances = self._rebalances.totals()
            if self._overdue():
                last = None
        yield GaugeMetricFamily(
            "rackassign_up",
            "Whether the last survey succeeded: 1, or 0 without series of groups.",
            value=last is not None,
        )
        yield CounterMetricFamily(
            "rackassign_surveys_failed", "Surveys that failed because Kafka did not respond.", value=failed
        )
        if succeeded_at is not None:
            yield GaugeMetricFamily(
                "rackassign_last_success_timestamp_seconds",
                "Unix time of the last survey that succeeded.",
                succeeded_at,
            )
        if last is None:
            return
        yield GaugeMetricFamily(
            "rackassign_survey_duration_seconds", "Duration of the last survey, with its interval.", last.duration_s
        )
        bytes_ = read_bytes_metric()
        add_read_bytes(bytes_, read)
        yield bytes_
        yield from group_metrics(last, rebalances, self._price)
        problems = sum(odd.unseen for odd in last.skipped) + len(last.measured.problems)
        problems += len({topic for inspected in last.inspections for topic in hidden_topics(inspected)})
        yield GaugeMetricFamily("rackassign_survey_problems", "What the last survey could not see.", value=problems)


def metrics_registry(metrics: Collector) -> CollectorRegistry:
    """Return a registry with these metrics only; they change with each survey, so none are described in advance."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return registry
