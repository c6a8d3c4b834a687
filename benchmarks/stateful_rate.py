"""How many records a worker with state processes in a second, of its processor and of the clock, beside Quix Streams.

Each record counts one up for its key. Each way works alone, in a process of its own, on the same topic of 6 partitions
on one local broker; the ways take turns, and each round begins with another. A worker counts its own processor time,
from its first record until the state of the last one is stored. Rates are comparable only as ratios in one round. At
the end each key must have been counted as often as it was written, or the benchmark fails.

Quix Streams has an environment of its own (`make bench-stateful` makes it), whose interpreter is `--quix`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from benchmarks.rate_meter import Job
from benchmarks.tables import Sheet, show, write_markdown
from rackassign.testing import LocalCluster, create_topic

PARTITIONS = 6
KEYS = 1000
_HANG_S = 900.0


class WrongCountError(Exception):
    """A worker has not counted each record once, so its speed compares nothing."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to process records."""

    name: str
    words: tuple[str, ...]
    stored: str
    quix: bool = False


def _ours(kind: str, batch: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.rate_workers", kind, str(batch))


def _quix(guarantee: str, commit_every: int) -> tuple[str, ...]:
    return ("-m", "benchmarks.rate_quix", guarantee, str(commit_every))


WAYS = (
    Way("Quix Streams, at-least-once", _quix("at-least-once", 0), "5 s: changelog, RocksDB, offsets", quix=True),
    Way("Quix Streams, exactly-once", _quix("exactly-once", 0), "5 s: the same, in a transaction", quix=True),
    Way("Quix Streams, exactly-once, commit_every=500", _quix("exactly-once", 500), "500 records: the same", quix=True),
    Way("StatefulConsumer", _ours("stateful", 1000), "1 s: changelog, offsets in a transaction; SQLite"),
    Way("StatefulConsumer, commit_interval_ms=5000", _ours("stateful", 5000), "5 s: the same"),
    Way("StatefulConsumer, commit_interval_ms=100", _ours("stateful", 100), "0.1 s: the same"),
    Way("kafka-python and sqlite3", _ours("sqlite", 500), "500 records: SQLite, no changelog"),
    Way("kafka-python, no state", _ours("kafka-python", 500), "never"),
    Way("confluent-kafka, no state", _ours("confluent", 500), "never"),
)
"""The first one is 1."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a worker spent."""

    records: int
    cpu_s: float
    # Seconds of the clock.
    wall_s: float
    logged: int


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that all ways read."""

    bootstrap: str
    topic: str
    counts: Mapping[str, int]

    def processed(self, way: Way, group: str, quix: Path) -> Spent:
        """Have a way process all records."""
        total = sum(self.counts.values())
        interpreter = str(quix) if way.quix else sys.executable
        with tempfile.TemporaryDirectory() as folder:
            job = Job(self.bootstrap, group, self.topic, Path(folder), total)
            command = [interpreter, *way.words, *job.words()]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=_HANG_S).stdout
        found = json.loads(printed.splitlines()[-1])
        if found["counts"] != self.counts or found["records"] != total:
            raise WrongCountError(
                f"{way.name}: {sum(found['counts'].values())} counted in {len(found['counts'])} keys and "
                f"{found['records']} processed, of {total} in {len(self.counts)}"
            )
        return Spent(total, found["cpu_s"], found["wall_s"], self._logged(group))

    def _logged(self, group: str) -> int:
        """Return how many offsets the changelogs of a group have."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            places = [
                KafkaPythonPartition(topic, partition)
                for topic in consumer.topics()
                if group in topic
                for partition in consumer.partitions_for_topic(topic) or ()
            ]
            return sum(consumer.end_offsets(places).values()) if places else 0
        finally:
            consumer.close()


def write(bootstrap: str, size: int, records: int) -> Input:
    """Write records into a new topic; each key has its own partition, and the keys take turns."""
    topic = f"lines-{size}"
    create_topic(bootstrap, topic, [[1]] * PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    value = (bytes(range(32, 127)) * (size // 95 + 1))[:size]
    counts: Counter[str] = Counter()
    for number in range(records):
        # Neighbours have other keys in other partitions, as in a topic of many producers.
        key = number * 7 % KEYS
        while True:
            try:
                producer.produce(topic, value, f"key-{key:03}", key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        counts[f"key-{key:03}"] += 1
    if producer.flush(120):
        raise RuntimeError(f"{topic} was not written")
    return Input(bootstrap, topic, counts)


def rounds(source: Input, ways: Sequence[Way], number: int, quix: Path) -> dict[Way, list[Spent]]:
    """Have all ways take turns; the first round warms the caches of disk and broker, and does not count."""
    found: dict[Way, list[Spent]] = {way: [] for way in ways}
    for played in range(number + 1):
        shift = played % len(ways)
        for place, way in enumerate((*ways[shift:], *ways[:shift])):
            spent = source.processed(way, f"{source.topic}-{played}-{place}", quix)
            print(
                f"{source.topic} {played} {way.name}: {spent.records / spent.cpu_s:,.0f} a CPU second, "
                f"{spent.records / spent.wall_s:,.0f} a second",
                flush=True,
            )
            if played:
                found[way].append(spent)
    return found


def sheet(size: int, found: Mapping[Way, Sequence[Spent]]) -> Sheet:
    """Return the table of a size of records."""
    base = next(iter(found.values()))
    rows = []
    for way, spent in found.items():
        rows.append((
            way.name,
            way.stored,
            _range([each.records / each.cpu_s / 1000 for each in spent], ",.1f"),
            _range([one.cpu_s / each.cpu_s for each, one in zip(spent, base, strict=True)], ".2f"),
            _range([each.records / each.wall_s / 1000 for each in spent], ",.1f"),
            _range([one.wall_s / each.wall_s for each, one in zip(spent, base, strict=True)], ".2f"),
            f"{median(each.logged / each.records for each in spent):.2f}",
        ))  # fmt: skip
    first = next(iter(found))
    title = (
        f"{base[0].records:,} records of {size:,} bytes, {KEYS:,} keys, {PARTITIONS} partitions, {len(base)} rounds: "
        "median (least to most)"
    )
    headings = (
        "",
        "state is stored after",
        "1,000 records / CPU s",
        f"{first.name} = 1",
        "1,000 records / s",
        f"{first.name} = 1",
        "changelog records / record",
    )
    return Sheet(title, headings, rows)


def _range(values: Sequence[float], form: str) -> str:
    middle = f"{median(values):{form}}"
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}} to {max(values):{form}})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quix", type=Path, default=Path(".venv-quix/bin/python"), help="interpreter with quixstreams")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="bytes of a value")
    parser.add_argument("--records", type=int, default=150_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="20,000 records, one round: does it still run?")
    parser.add_argument("--only", default="", help="only ways whose name contains this; the first of them is 1")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables into this document")
    options = parser.parse_args(arguments)
    if options.quick:
        options.records, options.rounds = 20_000, 1
    ways = [way for way in WAYS if options.only.lower() in way.name.lower()]
    if not ways:
        parser.error(f"no way has {options.only!r} in its name")
    if any(way.quix for way in ways) and not options.quix.exists():
        parser.error(f"{options.quix} does not exist: `make bench-stateful-rate` makes it")
    sheets = []
    with LocalCluster(["a"]) as cluster:
        for size in options.sizes:
            source = write(cluster.bootstrap, size, options.records)
            sheets.append(sheet(size, rounds(source, ways, options.rounds, options.quix)))
    if options.markdown:
        write_markdown(options.markdown, "stateful-rate", sheets)
    show(sheets)


if __name__ == "__main__":
    main()
