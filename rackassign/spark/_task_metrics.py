"""The bytes that tasks received from each broker and sent to each: lines of JSON if `metricsPath` is set, and sums.

librdkafka counts the bytes on the wire, which are the bytes that are billed. It reports them 20 times a second, and
each range waits for the final report. So this is for measurements and not for permanent use.

The traffic of each batch of a stream is joined with Spark's query progress. Spark passes no metrics of a Python source
to its query progress. A progress has the offsets at which a batch starts and ends, and a line has the range that a task
has read, so each line belongs to one batch. What is written has no range: the driver appends one line for a batch whose
tasks have all ended, with its number.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, InputError
from rackassign.model import TopicPartition
from rackassign.spark._offsets import from_json, recorded_start
from rackassign.spark._options import Options
from rackassign.spark._splits import OffsetRange, Split
from rackassign.text import short_repr

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from typing_extensions import Self

    from rackassign.util.librdkafka_statistics import BrokerStatistics


REPORTS = "*.jsonl"
"""The names of the files with reports, one for each worker process."""

_INTERVAL_MS = 50
_MAX_WAIT_S = 5.0


class Meter:
    """A callback that sums up bytes in the statistics of all clients of a kind in a process."""

    def __init__(self, size: Callable[[BrokerStatistics], int]) -> None:
        self._size = size
        self._sizes: dict[str, Counter[int]] = {}
        self._count = 0
        self._in_flight = 0

    def __call__(self, statistics: str) -> None:
        from rackassign.util.librdkafka_statistics import ConnectionStatistics  # noqa: PLC0415 - it loads msgspec

        reported = ConnectionStatistics.from_json(statistics)
        # A bootstrap address has no broker ID. It belongs to a broker, and few bytes are exchanged with it.
        brokers = [broker for broker in reported.brokers.values() if broker.broker >= 0]
        sizes: Counter[int] = Counter()
        for broker in brokers:
            # The connection to the group coordinator has the ID of that broker, which may have a second connection.
            sizes[broker.broker] += self._size(broker)
        self._sizes[reported.client] = sizes
        self._in_flight = sum(broker.in_flight for broker in brokers)
        self._count += 1

    def total(self) -> Counter[int]:
        total: Counter[int] = Counter()
        for each in self._sizes.values():
            total.update(each)
        return total

    def settle(self, client: Consumer | Producer) -> Counter[int]:
        """Return the bytes by broker once all of a client are reported; it must have nothing to fetch or to send."""
        from rackassign.util.librdkafka_statistics import await_reports  # noqa: PLC0415 - it loads msgspec

        # A fetch that was in flight when the partition was unassigned is awaited as well. Its bytes would otherwise be
        # counted for the next range that this process reads.
        await_reports(client.poll, lambda: self._count, timeout_s=_MAX_WAIT_S, settled=lambda: not self._in_flight)
        return self.total()


@functools.cache
def process_meter() -> Meter:
    return Meter(attrgetter("received_bytes"))


@functools.cache
def writing_meter() -> Meter:
    return Meter(attrgetter("sent_bytes"))


def metered_properties(meter: Meter) -> dict[str, Any]:
    return {"statistics.interval.ms": _INTERVAL_MS, "stats_cb": meter}


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What a task has read of one split."""

    range: OffsetRange
    rack: str | None
    replica_racks: tuple[str, ...]
    # Bytes of the values in the range, and received bytes by broker.
    useful: int
    received: Mapping[int, int]

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse a line of `to_json`; raise any of KeyError, TypeError, ValueError, AttributeError, RecursionError."""
        fields = json.loads(line)
        return cls(
            OffsetRange(
                TopicPartition(fields["topic"], _number(fields["partition"])),
                _number(fields["start"]),
                _number(fields["end"]),
            ),
            fields["rack"],
            tuple(fields["replica_racks"]),
            _number(fields["useful"]),
            {int(broker): _number(size) for broker, size in fields["received"].items()},
        )

    def to_json(self) -> str:
        line = {
            "topic": self.range.tp.topic,
            "partition": self.range.tp.partition,
            "start": self.range.start,
            "end": self.range.end,
            "rack": self.rack,
            "replica_racks": self.replica_racks,
            "useful": self.useful,
            "received": dict(sorted(self.received.items())),
        }
        return json.dumps(line)


def _number(value: object) -> int:
    """Return a number of a report. Another value would fail later, where its line is not known."""
    if type(value) is not int:
        raise TypeError(f"expected a number, got {short_repr(value)}")
    return value


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What the tasks in a rack have written of a batch."""

    batch: int
    rack: str | None
    # Sent bytes by broker.
    sent: Mapping[int, int]

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse a line of `to_json`; raise what `SplitReport.from_json` does."""
        fields = json.loads(line)
        return cls(
            _number(fields["batch"]),
            fields["rack"],
            {int(broker): _number(size) for broker, size in fields["sent"].items()},
        )

    def to_json(self) -> str:
        return json.dumps({"batch": self.batch, "rack": self.rack, "sent": dict(sorted(self.sent.items()))})


def write_report(directory: str, split: Split, rack: str | None, useful: int, received: Counter[int]) -> None:
    """Append a line to the file of this process in a directory, which is created if missing."""
    append_line(directory, SplitReport(split.range, rack, tuple(split.racks), useful, received).to_json())


def append_line(directory: str, line: str) -> None:
    folder = Path(directory)
    name = REPORTS.replace("*", f"{socket.gethostname()}-{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise ConfigError(f"metricsPath: cannot write to {short_repr(directory)}: {error}") from error


@dataclass(frozen=True, slots=True)
class BatchTraffic:
    """What the tasks of a batch have read and written, in bytes.

    A range that was read again, by a retried task, counts again. What is written is known of a batch that has ended, of
    the tasks that have completed it.

    Args:
        batch: The number of the batch, `batchId` in its progress.
        useful: Bytes of the values in the ranges that were read, decompressed.
        local: Received from brokers in the rack of the executor; as on the wire, with headers and compressed.
        crossed: Received from brokers in other racks.
        unknown: Received by an executor without a rack, or from a broker whose rack is not known.
        stolen: The part of `crossed` of splits without a replica in the rack of the executor. The rest of `crossed` was
            read from a leader although the rack has a replica.
        unreported: Offsets of the batch that are in no report. Above 0 the other figures are too small: a task has
            ended before its report, or reports of some executors are missing.
        written_local: Sent to brokers in the rack of the executor, by a writer with `metricsPath`; as on the wire.
        written_crossed: Sent to brokers in other racks.
        written_unknown: Sent by an executor without a rack, or to a broker whose rack is not known.
    """

    batch: int
    useful: int = 0
    local: int = 0
    crossed: int = 0
    unknown: int = 0
    stolen: int = 0
    unreported: int = 0
    written_local: int = 0
    written_crossed: int = 0
    written_unknown: int = 0

    @property
    def received(self) -> int:
        """All bytes received, as on the wire."""
        return self.local + self.crossed + self.unknown


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The offsets of a batch, from its progress."""

    batch: int
    # Without partitions that are new.
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @classmethod
    def of(cls, progress: Any, source: int) -> Self:  # noqa: ANN401 - a dictionary or a class of Spark
        """Return the offsets in a query progress."""
        sources = progress["sources"]
        if not 0 <= source < len(sources):
            raise ConfigError(f"source: expected 0 to {len(sources) - 1}, got {source}")
        start, _ = _offsets(sources[source]["startOffset"])
        end, recorded = _offsets(sources[source]["endOffset"])
        # The first batch of a query has no start in its progress.
        return cls(progress["batchId"], start or recorded or {}, end)

    def contains(self, read: OffsetRange) -> bool:
        return self.start.get(read.tp, 0) <= read.start and read.end <= self.end.get(read.tp, -1)

    def unreported(self, ranges: Iterable[OffsetRange]) -> int:
        """Return how many offsets of the batch are in none of these ranges."""
        by_partition: dict[TopicPartition, list[OffsetRange]] = {}
        for each in ranges:
            by_partition.setdefault(each.tp, []).append(each)
        missing = 0
        for tp, end in self.end.items():
            read = sorted(by_partition.get(tp, ()), key=lambda each: each.start)
            # A new partition starts at its first range, because its progress has no start.
            reached = self.start.get(tp, read[0].start if read else end)
            for each in read:
                missing += max(0, each.start - reached)
                reached = max(reached, each.end)
            missing += max(0, end - reached)
        return missing


def batch_traffic(options: Mapping[str, str], progress: Iterable[Any], *, source: int = 0) -> list[BatchTraffic]:
    """Return the traffic of each batch of a stream, from the reports in its `metricsPath`.

    The folder must be the same for all executors and this process, and for this query only.

    Args:
        options: The options of the stream, with `metricsPath`.
        progress: Progress of batches, as in `query.recentProgress`.
        source: The index of the source in the progress, for a query with several.

    Raises:
        ConfigError: An option is invalid, or `metricsPath` is missing.
        InputError: A progress is of another source, or a file in the folder has something else than reports.
        KafkaUnavailableError: The racks of brokers cannot be requested.
    """
    from rackassign.spark._metadata import KafkaMetadata  # noqa: PLC0415 - it loads confluent_kafka

    parsed = Options.of(options, "stream")
    if not parsed.metrics_path:
        raise ConfigError("metricsPath is missing: expected the folder with the reports of the stream")
    batches = [BatchOffsets.of(each, source) for each in progress]
    racks = {broker.id: broker.rack for broker in KafkaMetadata(parsed.client).brokers()}
    return traffic_of(batches, list(read_reports(Path(parsed.metrics_path))), racks)


def read_reports(folder: Path) -> Iterator[SplitReport | WriteReport]:
    """Yield the reports in a folder, which may not exist yet."""
    for file in sorted(folder.glob(REPORTS)):
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(str(file), f"expected a file with reports of metricsPath: {error}") from None
        # The last line may be incomplete, while a task writes it.
        lines = text.split("\n")[:-1]
        for number, line in enumerate(lines, 1):
            yield _parsed(f"{file}:{number}", line)


def traffic_of(
    batches: Iterable[BatchOffsets], reports: Sequence[SplitReport | WriteReport], racks: Mapping[int, str | None]
) -> list[BatchTraffic]:
    """Return the traffic of each batch, in the order of the batches."""
    rows = []
    written = [report for report in reports if isinstance(report, WriteReport)]
    for batch in batches:
        own = [report for report in reports if isinstance(report, SplitReport) and batch.contains(report.range)]
        total: Counter[str] = Counter()
        for report in written:
            if report.batch == batch.batch:
                for broker, size in report.sent.items():
                    total[f"written_{_kind(report.rack, racks.get(broker))}"] += size
        for read in own:
            total["useful"] += read.useful
            for broker, size in read.received.items():
                kind = _kind(read.rack, racks.get(broker))
                total[kind] += size
                if kind == "crossed" and read.replica_racks and read.rack not in read.replica_racks:
                    total["stolen"] += size
        unreported = batch.unreported(read.range for read in own)
        rows.append(BatchTraffic(batch.batch, **total, unreported=unreported))
    return rows


def _parsed(place: str, line: str) -> SplitReport | WriteReport:
    try:
        return (WriteReport if '"batch": ' in line else SplitReport).from_json(line)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(place, f"expected a report of metricsPath: {error}") from None


def _kind(executor: str | None, broker: str | None) -> str:
    if executor is None or broker is None:
        return "unknown"
    return "local" if executor == broker else "crossed"


def _offsets(written: object) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int] | None]:
    """Return offsets of a progress, none at the start of a new query, and the start that they contain."""
    # The progress of a listener has them as JSON. `recentProgress` of pyspark 4.0 to 4.3 has the text of the parsed
    # JSON, which is a Python literal, and so is this JSON.
    if str(written) in {"None", "null"}:
        return {}, None
    try:
        parsed: Any = ast.literal_eval(written) if isinstance(written, str) else written
        return from_json(parsed), recorded_start(parsed)
    except (ValueError, SyntaxError):
        raise InputError("progress", "expected the offsets of a Kafka source; set source") from None
