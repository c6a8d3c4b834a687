"""Writes the bytes that tasks received from each broker: a line of JSON for each range, if `metricsPath` is set.

librdkafka counts the bytes on the wire, which are the bytes that are billed. It reports them 20 times a second, and
each range waits for the final report. So this is for measurements and not for permanent use.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.spark.splits import Split

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_EVERY_MS = 50
_LONGEST_S = 5.0


class Meter:
    """A callback that sums up the statistics of all consumers of a process."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, int]] = {}
        self._heard = 0

    def __call__(self, statistics: str) -> None:
        """Store the statistics of one consumer."""
        said = json.loads(statistics)
        # A bootstrap address has no broker ID. It belongs to a broker, and few bytes are received from it.
        brokers = said["brokers"].values()
        self._of[said["name"]] = {broker["nodeid"]: broker["rxbytes"] for broker in brokers if broker["nodeid"] >= 0}
        self._heard += 1

    def received(self) -> Counter[int]:
        """Return the bytes received so far, by broker."""
        total: Counter[int] = Counter()
        for each in self._of.values():
            total.update(each)
        return total

    def settle(self, consumer: Consumer) -> None:
        """Wait until the received bytes of a consumer are reported; it must not have an assignment."""
        wanted, deadline = self._heard + 2, time.monotonic() + _LONGEST_S
        while self._heard < wanted and time.monotonic() < deadline:
            consumer.poll(_EVERY_MS / 1000)


@functools.cache
def process_meter() -> Meter:
    """Return the meter to which all consumers of this worker process report."""
    return Meter()


def metered_properties() -> dict[str, Any]:
    """Return the properties of a consumer that reports to the meter."""
    return {"statistics.interval.ms": _EVERY_MS, "stats_cb": process_meter()}


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
        "topic": split.range.place.topic,
        "partition": split.range.place.partition,
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
