"""Writes the bytes that tasks received from each broker: a line of JSON for each range, if `metricsPath` is set.

librdkafka counts the bytes on the wire, which are the bytes that are billed. It reports them 20 times a second, and
each range waits for the final report. So this is for measurements and not for permanent use.
"""

from __future__ import annotations

import functools
import json
import os
import socket
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark.splits import OffsetRange, Split
from rackassign.util.librdkafka_statistics import ClientStatistics, await_reports
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from typing_extensions import Self

REPORTS = "*.jsonl"
"""The names of the files with reports, one for each worker process."""

_INTERVAL_MS = 50
_MAX_WAIT_S = 5.0


class Meter:
    """A callback that sums up the statistics of all consumers of a process."""

    def __init__(self) -> None:
        self._received: dict[str, dict[int, int]] = {}
        self._count = 0
        self._in_flight = 0

    def __call__(self, statistics: str) -> None:
        """Store the statistics of one consumer."""
        reported = ClientStatistics.of_connections(statistics)
        # A bootstrap address has no broker ID. It belongs to a broker, and few bytes are received from it.
        brokers = [broker for broker in reported.brokers if broker.broker >= 0]
        received: Counter[int] = Counter()
        for broker in brokers:
            # The connection to the group coordinator has the ID of that broker, which may have a second connection.
            received[broker.broker] += broker.received_bytes
        self._received[reported.client] = received
        self._in_flight = sum(broker.in_flight for broker in brokers)
        self._count += 1

    def received(self) -> Counter[int]:
        """Return the bytes received so far, by broker."""
        total: Counter[int] = Counter()
        for each in self._received.values():
            total.update(each)
        return total

    def start(self, consumer: Consumer, topic: str) -> Counter[int]:
        """Return the bytes received before a range is read, with those of the client's first requests.

        A new client requests metadata and its group's coordinator from any broker. Those bytes are not of the range.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

        # If no broker answers, the read of the range fails next, with a better message.
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=_MAX_WAIT_S)
        self.settle(consumer)
        return self.received()

    def settle(self, consumer: Consumer) -> None:
        """Wait until all received bytes of a consumer are reported; it must not have an assignment.

        A fetch that was in flight when the partition was unassigned is awaited as well. Its bytes would otherwise be
        counted for the next range that this process reads.
        """
        await_reports(consumer.poll, lambda: self._count, timeout_s=_MAX_WAIT_S, settled=lambda: not self._in_flight)


@functools.cache
def process_meter() -> Meter:
    """Return the meter to which all consumers of this worker process report."""
    return Meter()


def metered_properties() -> dict[str, Any]:
    """Return the properties of a consumer that reports to the meter."""
    return {"statistics.interval.ms": _INTERVAL_MS, "stats_cb": process_meter()}


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What a task has read of one split.

    Args:
        range: The range of the split.
        rack: The rack of the executor; None if it has none.
        replica_racks: The racks with a replica of the partition.
        useful: Bytes of the values in the range.
        received: Received bytes by broker.
    """

    range: OffsetRange
    rack: str | None
    replica_racks: tuple[str, ...]
    useful: int
    received: Mapping[int, int]

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse a line that `to_json` has written.

        Raises:
            KeyError: A field is missing.
            TypeError, AttributeError: A field has another type.
            ValueError: The line is not JSON, or a value is invalid.
            RecursionError: The JSON is nested too deeply.
        """
        found = json.loads(line)
        return cls(
            OffsetRange(
                TopicPartition(found["topic"], _number(found["partition"])),
                _number(found["start"]),
                _number(found["end"]),
            ),
            found["rack"],
            tuple(found["replica_racks"]),
            _number(found["useful"]),
            {int(broker): _number(size) for broker, size in found["received"].items()},
        )

    def to_json(self) -> str:
        """Return the report as a line of JSON."""
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


def write_report(directory: str, split: Split, rack: str | None, useful: int, received: Counter[int]) -> None:
    """Append a line to the file of this process.

    Args:
        directory: A directory on this machine, which is created if missing.
        split: The split that was read.
        rack: The rack of the reader.
        useful: Bytes of the values in the range.
        received: Received bytes by broker.

    Raises:
        ConfigError: The directory cannot be written to.
    """
    report = SplitReport(split.range, rack, tuple(split.racks), useful, received)
    folder = Path(directory)
    name = REPORTS.replace("*", f"{socket.gethostname()}-{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(report.to_json() + "\n")
    except OSError as error:
        raise ConfigError(f"metricsPath: cannot write to {short_repr(directory)}: {error}") from error
