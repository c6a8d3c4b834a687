"""What producers write beside what groups read, by topic: the same bytes may cross racks twice.

Producers count what they send (`rackassign_written_bytes_total`), and the brokers' logs show what arrives. So it is
known which part of a topic is written by producers without these metrics: its share of the log's growth.

A rate is the increase of the counters between two looks at the same metrics. A counter that has sunk belongs to a
process that was started again, and has increased by its value. A text in a file does not change: then only its shares
count, of what the logs grow by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix, total_traffic, traffic_matrix
from rackassign.monitoring.written_bytes import WrittenBytes
from rackassign.text import join_first

RackPairs = dict[tuple[str | None, str | None], float]


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Traffic of a topic.

    Args:
        topic: The topic.
        log_bytes_s: Bytes per second that its logs grow by; None if that is not known.
        written: What the producers write, from their rack to that of the leader. Unmeasured is 1 if it is not known.
        read: What all groups read.
    """

    topic: str
    log_bytes_s: float | None
    written: TrafficMatrix
    read: TrafficMatrix

    def explained(self) -> float | None:
        """Return which share of the log's growth the producers explain; None if the log is not known or idle.

        It exceeds 1 if they count other bytes than the brokers: before compression, or sent twice.
        """
        return self.written.total / self.log_bytes_s if self.log_bytes_s else None


@dataclass(frozen=True, slots=True)
class WrittenTraffic:
    """What producers write, beside what groups read.

    Args:
        topics: The topics, the one with most bytes across racks first.
        seconds: Time between the two looks at the producers' metrics.
        by_totals: Whether these have not changed, so that their totals were taken as shares of what the logs grow by.
    """

    topics: tuple[TopicTraffic, ...]
    seconds: float
    by_totals: bool

    @property
    def written(self) -> TrafficMatrix:
        """What the producers write to all topics."""
        return total_traffic(each.written for each in self.topics)

    def explained(self, topic: TopicTraffic) -> float | None:
        """Return which share of a topic's growth the producers explain; None if that is not known."""
        return None if self.by_totals else topic.explained()


def written_traffic(report: ClusterReport, before: WrittenBytes, after: WrittenBytes, seconds: float) -> WrittenTraffic:
    """Compare what producers have written during a measurement with what groups have read.

    Args:
        report: The groups, measured.
        before: The producers' counters at its begin.
        after: The same at its end.
        seconds: Time between the two.
    """
    increases = {series: _increase(before.series.get(series, 0), total) for series, total in after.series.items()}
    by_totals = not any(increases.values())
    pairs: dict[str, RackPairs] = {}
    for series, size in (after.series if by_totals else increases).items():
        of_topic, pair = pairs.setdefault(series.topic, {}), (series.rack, series.to_rack)
        of_topic[pair] = of_topic.get(pair, 0.0) + (size if by_totals else size / seconds)
    logs: dict[str, float] = {}
    for tp, rate in report.measured.bytes_s.items():
        logs[tp.topic] = logs.get(tp.topic, 0.0) + rate
    written = {
        topic: _scaled(of_topic, logs.get(topic)) if by_totals else TrafficMatrix(of_topic)
        for topic, of_topic in pairs.items()
    }
    read = _read_by_topic(report)
    topics = (
        TopicTraffic(topic, logs.get(topic), written.get(topic, TrafficMatrix({})), read.get(topic, TrafficMatrix({})))
        for topic in written.keys() | read.keys()
    )
    return WrittenTraffic(tuple(sorted(topics, key=_most_across_racks)), seconds, by_totals)


def _increase(before: int, after: int) -> int:
    return after - before if after >= before else after


def _scaled(pairs: RackPairs, log_bytes_s: float | None) -> TrafficMatrix:
    """Return shares of what a log grows by."""
    total = sum(pairs.values())
    if log_bytes_s is None or not total:
        return TrafficMatrix({}, unmeasured=1)
    return TrafficMatrix({pair: log_bytes_s * size / total for pair, size in pairs.items()})


def _read_by_topic(report: ClusterReport) -> Mapping[str, TrafficMatrix]:
    matrices: dict[str, list[TrafficMatrix]] = {}
    for inspection in report.inspections:
        reads: dict[str, list[PartitionRead]] = {}
        for read in inspection.now:
            reads.setdefault(read.tp.topic, []).append(read)
        for topic, of_topic in reads.items():
            matrices.setdefault(topic, []).append(traffic_matrix(of_topic, inspection.rates.bytes_s))
    return {topic: total_traffic(of_topic) for topic, of_topic in matrices.items()}


def _most_across_racks(topic: TopicTraffic) -> tuple[float, str]:
    return -(topic.written.cross_at_most + topic.read.cross_at_most), topic.topic


def written_warnings(written: WrittenTraffic | None, report: ClusterReport) -> Iterator[str]:
    """Yield what makes figures of producers less than exact, or useless."""
    if written is None:
        return
    if written.by_totals:
        yield (
            f"the producers' metrics have not changed in {written.seconds:.0f} s: only their shares count, of what the"
            " logs grow by"
        )
    racks = set(report.cluster.topology.broker_racks().values())
    homes = {rack for (rack, _) in written.written.pairs if rack is not None}
    if strange := sorted(homes - racks):
        yield (
            f"producers are in racks that no broker has: {join_first(strange, _NAMED)}; racks of brokers:"
            f" {', '.join(sorted(racks)) or 'none'}"
        )


_NAMED = 3
