"""What tasks have received, and from where: a line of JSON for each range, for those who ask for it (`metricsPath`).

Counted by librdkafka, on the wire: what is paid for. It says so ten times a second, and each range waits for its last
word; so this is for looking, and not for every day.
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
    """Adds up the statistics of all consumers of a process."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, int]] = {}
        self._heard = 0

    def __call__(self, statistics: str) -> None:
        """Take in what one of them says of itself."""
        said = json.loads(statistics)
        # The address that was bootstrapped from has no number; it is a broker's, and little comes from there.
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
        """Wait until what a consumer has received is known; nothing may be assigned to it."""
        wanted, deadline = self._heard + 2, time.monotonic() + _LONGEST_S
        while self._heard < wanted and time.monotonic() < deadline:
            consumer.poll(_EVERY_MS / 1000)


@functools.cache
def process_meter() -> Meter:
    """Return the one that all consumers of this worker report to."""
    return Meter()


def metered_properties() -> dict[str, Any]:
    """Return the properties of a consumer that is counted."""
    return {"statistics.interval.ms": _EVERY_MS, "stats_cb": process_meter()}


def write_report(directory: str, split: Split, rack: str | None, useful: int, received: Counter[int]) -> None:
    """Add a line to this process's file.

    Args:
        directory: On this machine; made if it is missing.
        split: What was read.
        rack: Of the reader.
        useful: Bytes of the values that were wanted.
        received: Bytes by broker.
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
