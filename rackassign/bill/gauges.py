"""The lines of the bill as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rackassign.bill import LINES, Line
from rackassign.bill.levers import least
from rackassign.bill.usage import Setting, Span, Usage, total
from rackassign.errors import MissingExtraError
from rackassign.monitoring import ClusterReport, Price

try:
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None


class BillMetrics(Collector):
    """The lines of the last report of a cluster; none after a report that failed.

    Args:
        price: Price of traffic between racks.
    """

    def __init__(self, price: Price) -> None:
        self._price = price
        # Replaced as a whole, as it is read by another thread.
        self._lines: Mapping[Line, tuple[Span, float]] = {}

    def take(self, report: ClusterReport | None) -> None:
        """Store a report; None if it could not be made."""
        if report is None or not report.measured.seconds:
            self._lines = {}
            return
        usage = Usage.of(report)
        items, (floor, _) = usage.items(Setting()), least(usage, self._price)
        self._lines = {
            line: (
                total(item.across for key, item in items.items() if key.line == line),
                sum(rate for key, rate in floor.items() if key.line == line),
            )
            for line in LINES
            if line != "other"
        }

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics; called from the server's thread."""
        size = GaugeMetricFamily(
            "rackassign_bill_bytes_per_second",
            "Bytes per second that cross racks, by line of the bill: at least, at most, and what no lever goes below.",
            labels=["line", "bound"],
        )
        money = GaugeMetricFamily(
            "rackassign_bill_usd_per_month", "The same in USD a month of 730 hours.", labels=["line", "bound"]
        )
        for line, (across, floor) in self._lines.items():
            for bound, rate in (("at_least", across.least), ("at_most", across.most), ("least_possible", floor)):
                size.add_metric([line, bound], rate)
                free = line == "replicating" and self._price.free_replication
                money.add_metric([line, bound], 0.0 if free else self._price.monthly(rate))
        yield size
        yield money
