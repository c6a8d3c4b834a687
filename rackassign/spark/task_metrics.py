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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.spark.splits import Split
from rackassign.util.librdkafka_statistics import ClientStatistics, await_reports

if TYPE_CHECKING:
    from confluent_kafka import Consumer

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
        reported = ClientStatistics.from_json(statistics)
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


def write_report(directory: str, split: Split, rack: str | None, useful: int, received: Counter[int]) -> None:
    """Append a line to the file of this process.

    Args:
        directory: A directory on this machine, which is created if missing.
        split: The split that was read.
        rack: The rack of the reader.
        useful: Bytes of the values in the range.
        received: Received bytes by broker.
    """
    line = {
        "topic": split.range.tp.topic,
        "partition": split.range.tp.partition,
        "start": split.range.start,
        "end": split.range.end,
        "rack": rack,
        "replica_racks": split.racks,
        "useful": useful,
        "received": dict(sorted(received.items())),
    }
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{socket.gethostname()}-{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
