"""The series of groups in a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from rackassign.errors import MissingExtraError
from rackassign.monitoring.analysis import GroupAnalysis
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.consumer_pool import rack_label
from rackassign.monitoring.report import Price, hidden_topics
from rackassign.monitoring.prometheus import add_partitions, partitions_metric

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def group_metrics(survey: ClusterReport, rebalances: Mapping[str, int], price: Price) -> Iterator[Metric]:
    """Yield the metrics of the groups of a report.

    Args:
        survey: The report.
        rebalances: Rebalances of each group so far.
        price: Price of cross-rack traffic.
    """
    seen = _gauge("group_seen", "Whether the last survey could describe the group.")
    for name in sorted({odd.name for odd in survey.skipped if odd.name and odd.unseen}):
        seen.add_metric((name,), 0)
    for inspected in survey.inspections:
        seen.add_metric((inspected.snapshot.live.name,), 1)
    yield seen
    yield from _locality(survey)
    yield from _members(survey, rebalances)
    yield from _money(survey, price)
    yield from _lag(survey)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rackassign_{name}", text, labels=("group", *labels))


def _locality(survey: ClusterReport) -> Iterator[Metric]:
    partitions = partitions_metric()
    reachable = _gauge(
        "reachable_partitions", "What a strategy would make of rackassign_partitions.", "strategy", "locality"
    )
    moves = _gauge("reachable_moves", "Partitions that would change readers for that.", "strategy")
    for inspected in survey.inspections:
        name = inspected.snapshot.live.name
        add_partitions(partitions, name, inspected.partitions)
        for reach in inspected.reaches:
            for locality, count in asdict(reach.partitions).items():
                reachable.add_metric((name, reach.strategy, locality), count)
            moves.add_metric((name, reach.strategy), reach.moved)
    yield from (partitions, reachable, moves)


def _members(survey: ClusterReport, rebalances: Mapping[str, int]) -> Iterator[Metric]:
    members = _gauge("members", "Members.")
    without = _gauge("members_without_rack", "Members without a known rack.")
    elsewhere = _gauge(
        "members_in_foreign_racks", "Members with a rack that no broker has. Their reads count as unknown."
    )
    by_broker = _gauge(
        "group_assigned_by_broker",
        "Whether the broker assigns the group (KIP-848), not a member. 0 for a group without members.",
    )
    rebalanced = CounterMetricFamily(
        "rackassign_rebalances",
        "Rebalances between surveys, by the generations that members send. Without these, a change counts as one.",
        labels=("group",),
    )
    racks = set(survey.cluster.topology.broker_racks().values())
    for inspected in survey.inspections:
        live = inspected.snapshot.live
        members.add_metric((live.name,), len(live.members))
        without.add_metric((live.name,), sum(m.rack is None for m in inspected.snapshot.group.members))
        foreign = sum(m.rack is not None and m.rack not in racks for m in inspected.snapshot.group.members)
        elsewhere.add_metric((live.name,), foreign)
        # A group without members keeps the type of the last ones.
        by_broker.add_metric((live.name,), live.kind == "consumer" and bool(live.members))
        rebalanced.add_metric((live.name,), rebalances[live.name])
    yield from (members, without, elsewhere, by_broker, rebalanced)


def _money(survey: ClusterReport, price: Price) -> Iterator[Metric]:
    cost = _gauge("cross_usd_per_month", "What crosses racks, in USD a month at the given price.")
    saved = _gauge(
        "savings_usd_per_month",
        "What the cooperative-sticky strategy of rackassign would save, in USD a month: at least, and at most.",
        "bound",
    )
    for inspected in survey.inspections:
        # If only a part was measured or described, the cost would be too low.
        if survey.measured.seconds and not inspected.flows.unmeasured and not hidden_topics(inspected):
            name = inspected.snapshot.live.name
            cost.add_metric((name,), price.monthly(inspected.flows.cross))
            for bound, bytes_s in zip(("at_least", "at_most"), inspected.savings_bytes_s, strict=True):
                saved.add_metric((name, bound), price.monthly(bytes_s))
    yield from (cost, saved)


def _lag(survey: ClusterReport) -> Iterator[Metric]:
    whole = _gauge("lag_records", "Records between the committed offsets and the ends of the logs.")
    of_racks = _gauge(
        "rack_lag_records", "What of rackassign_lag_records is of partitions with a reader, by its rack.", "rack"
    )
    for inspected in survey.inspections:
        if inspected.rates.total_lag is not None:
            whole.add_metric((inspected.snapshot.live.name,), inspected.rates.total_lag)
            for label, records in _lag_by_label(inspected).items():
                of_racks.add_metric((inspected.snapshot.live.name, label), records)
    yield from (whole, of_racks)


def _lag_by_label(inspected: GroupAnalysis) -> Counter[str]:
    # A rack may have the name that is the label of unknown ones.
    sums: Counter[str] = Counter()
    for rack, records in inspected.lag_by_rack.items():
        sums[rack_label(rack)] += records
    return sums
