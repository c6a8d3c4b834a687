"""What producers write, from the metrics that they export, and beside what groups read.

Producers count what they send (`rackassign_written_bytes_total`), and the brokers' logs show what arrives. So it is
known which part of a topic is written by producers without these metrics: its share of the log's growth.

A rate is the increase of the counters between two looks at the same metrics. A counter that has sunk belongs to a
process that was started again, and has increased by its value. A text in a file does not change: then only its shares
count, of what the logs grow by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rackassign.errors import ConfigError
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.metrics_text import counted_bytes, no_metrics, read_metrics, text_string_to_metric_families
from rackassign.monitoring.pool import UNKNOWN
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix, total_traffic, traffic_matrix
from rackassign.text import counted, join_first, parse_digits, short_repr

NAME = "rackassign_written_bytes_total"

_MOST_PARTITIONS = 2**31


class WrittenSeries(NamedTuple):
    """What was written where."""

    topic: str
    # The partition; None if the producer does not export it.
    partition: int | None
    # Rack of the producer; None if unknown.
    rack: str | None
    # Rack of the leader at that time; None if unknown.
    to_rack: str | None
    source: int = 0
    # All labels. Series that differ only in these or in their source are of different processes.
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenBytes:
    """Bytes that producers have written, since each of them was started."""

    series: Mapping[WrittenSeries, int]
    # When each source was read, in seconds; only differences count.
    read_at: tuple[float, ...] = ()

    def topics(self) -> frozenset[str]:
        """Return the topics that were written to."""
        return frozenset(series.topic for series in self.series)


def read_written_bytes(sources: Sequence[str]) -> WrittenBytes:
    """Read `rackassign_written_bytes_total` from Prometheus's text format."""
    # `sources`: files and http or https addresses. Each is another process, and so are series of one text that differ
    # only in other labels, as in what Prometheus federates.
    texts = read_metrics(sources, "metrics of producers")
    series: Counter[WrittenSeries] = Counter()
    for number, text in enumerate(texts):
        for labels, value in _samples(text.text, text.shown):
            series[_series(labels, text.shown, number)] += counted_bytes(value, NAME, text.shown)
    return WrittenBytes(series, tuple(text.read_at for text in texts))


def _samples(text: str, shown: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of each series.

    Other metrics may be many, and the parser is slow: without a line of ours it decides what the text is.
    """
    described = NAME.removesuffix("_total")
    # Not `splitlines`, which also splits at characters that labels may contain.
    ours = "\n".join(line for line in text.split("\n") if described in line)
    exported = False
    try:
        for metric in text_string_to_metric_families(ours or text):
            # A producer that has not sent anything yet exports the description alone.
            exported |= metric.name in {described, NAME}
            for sample in metric.samples:
                if sample.name == NAME:
                    yield sample.labels, sample.value
    except (ValueError, IndexError):
        raise no_metrics(shown) from None
    if not exported:
        raise ConfigError(f"{shown}: has no {NAME}; is it the metrics of a producer with ProducerMetrics?")


def _series(labels: Mapping[str, str], shown: str, source: int) -> WrittenSeries:
    topic, partition = labels.get("topic", ""), labels.get("partition", "")
    number = parse_digits(partition) if partition else None
    if not topic or (partition and (number is None or number >= _MOST_PARTITIONS)):
        wrong = f"partition={short_repr(partition)}" if topic else "no topic"
        raise ConfigError(f"{shown}: {NAME} has a series with {wrong}")
    return WrittenSeries(
        topic, number, _rack(labels, "rack"), _rack(labels, "to_rack"), source, tuple(sorted(labels.items()))
    )


def _rack(labels: Mapping[str, str], label: str) -> str | None:
    rack = labels.get(label, "")
    return None if rack in {"", UNKNOWN} else rack


RackPairs = dict[tuple[str | None, str | None], float]


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Traffic of a topic."""

    topic: str
    # Bytes per second that its logs grow by; None if that is not known.
    log_bytes_s: float | None
    # What the producers write, from their rack to that of the leader. Unmeasured is 1 if it is not known.
    written: TrafficMatrix
    read: TrafficMatrix


@dataclass(frozen=True, slots=True)
class WrittenTraffic:
    """What producers write, beside what groups read."""

    topics: tuple[TopicTraffic, ...]
    seconds: float
    # Whether these have not changed, so that their totals were taken as shares of what the logs grow by.
    by_totals: bool
    # Number of their sources that have not changed while others have.
    unchanged: int = 0
    # Racks of producers that no broker has; what these write is of unknown rack.
    foreign: frozenset[str] = frozenset()
    # Bytes per second of each series.
    rates: Mapping[WrittenSeries, float] = field(default_factory=dict)

    @property
    def written(self) -> TrafficMatrix:
        """What the producers write to all topics."""
        return total_traffic(each.written for each in self.topics)

    def explained(self, topic: TopicTraffic) -> float | None:
        """Return which share of a topic's growth the producers explain; None if that is not known, or it does not grow.

        It exceeds 1 if they count other bytes than the brokers: before compression, or sent twice.
        """
        return None if self.by_totals or not topic.log_bytes_s else topic.written.total / topic.log_bytes_s


def written_traffic(report: ClusterReport, before: WrittenBytes, after: WrittenBytes) -> WrittenTraffic:
    """Compare what producers have written during a measurement with what groups have read."""
    # Each source has an interval of its own: to read all of them takes a while.
    seconds = [end - begin for begin, end in zip(before.read_at, after.read_at, strict=True)]
    last = before.series
    increases = {
        # A counter that has sunk began at 0 again.
        series: total - last.get(series, 0) if total >= last.get(series, 0) else total
        for series, total in after.series.items()
    }
    changed = {series.source for series, size in increases.items() if size}
    by_totals = not changed
    racks = set(report.cluster.topology.broker_racks().values())
    logs: dict[str, float] = {}
    for tp, rate in report.measured.bytes_s.items():
        logs[tp.topic] = logs.get(tp.topic, 0.0) + rate
    totals: Counter[str] = Counter()
    for series, size in after.series.items():
        totals[series.topic] += size
    rates: dict[WrittenSeries, float] = {}
    for series, size in (after.series if by_totals else increases).items():
        # Of totals only the shares of what a log grows by are known.
        if not by_totals:
            rates[series] = size / seconds[series.source]
        elif series.topic in logs and size:
            rates[series] = logs[series.topic] * size / totals[series.topic]
    pairs: dict[str, RackPairs] = {series.topic: {} for series in after.series}
    for series, rate in rates.items():
        # A rack that no broker has is unknown, as it is of a reader: its name is misspelled, or of another scheme.
        home = series.rack if series.rack in racks or not racks else None
        of_topic, pair = pairs[series.topic], (home, series.to_rack)
        of_topic[pair] = of_topic.get(pair, 0.0) + rate
    unmeasured = int(by_totals)
    written = {topic: TrafficMatrix(of_topic, 0 if of_topic else unmeasured) for topic, of_topic in pairs.items()}
    read = _read_by_topic(report)
    topics = (
        TopicTraffic(
            topic,
            logs.get(topic),
            # What grows without a producer of these is written by others.
            written.get(topic, TrafficMatrix({}, int(logs.get(topic) != 0))),
            read.get(topic, TrafficMatrix({})),
        )
        for topic in written.keys() | read.keys()
    )
    unchanged = len(seconds) - len(changed) if changed else 0
    homes = {series.rack for series in after.series if series.rack is not None}
    ranked = tuple(
        sorted(topics, key=lambda each: (-(each.written.cross_at_most + each.read.cross_at_most), each.topic))
    )
    foreign = frozenset(homes - racks if racks else ())
    return WrittenTraffic(ranked, max(seconds), by_totals, unchanged, foreign, rates)


def _read_by_topic(report: ClusterReport) -> Mapping[str, TrafficMatrix]:
    matrices: dict[str, list[TrafficMatrix]] = {}
    for inspection in report.inspections:
        reads: dict[str, list[PartitionRead]] = {}
        for read in inspection.now:
            reads.setdefault(read.tp.topic, []).append(read)
        for topic, of_topic in reads.items():
            matrices.setdefault(topic, []).append(traffic_matrix(of_topic, inspection.rates.bytes_s))
    return {topic: total_traffic(of_topic) for topic, of_topic in matrices.items()}


def written_warnings(written: WrittenTraffic | None, report: ClusterReport) -> Iterator[str]:
    """Yield what makes figures of producers less than exact, or useless."""
    if written is None:
        return
    if written.by_totals:
        yield (
            f"the producers' metrics have not changed in {written.seconds:.0f} s: only their shares count, of what the"
            " logs grow by"
        )
    if written.unchanged:
        yield (
            f"{counted(written.unchanged, 'source')} of the producers' metrics did not change, unlike others, and"
            " counted as 0: a saved file, or producers that write nothing"
        )
    if problem := foreign_racks(set(written.foreign), set(report.cluster.topology.broker_racks().values())):
        yield problem


def foreign_racks(homes: set[str], racks: set[str]) -> str:
    """Return what is wrong with racks of producers of which brokers have none; empty if they are all known."""
    if not homes - racks:
        return ""
    foreign = join_first([short_repr(rack) for rack in sorted(homes - racks)], _NAMED)
    exist = ", ".join(sorted(racks)) or "none"
    return f"producers are in racks that no broker has: {foreign}; racks of brokers: {exist}"


_NAMED = 5
