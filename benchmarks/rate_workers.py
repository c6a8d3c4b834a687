"""The other workers of `benchmarks.stateful_rate`: they count records of each key, and report what that took.

python -m benchmarks.rate_workers KIND NUMBER BOOTSTRAP GROUP TOPIC FOLDER RECORDS

NUMBER is the size of a batch, and of `stateful` the interval between commits, in milliseconds.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer
from kafka import KafkaConsumer

from benchmarks.rate_meter import Job, Meter
from rackassign.stateful import StatefulConsumer, StateStore

_POLL_MS = 500
_SCHEMA = "CREATE TABLE state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"


def stateful(commit_interval_ms: int, job: Job) -> None:
    """`StatefulConsumer`, with its defaults but for the interval between commits."""
    meter = Meter(job.records)

    def count(record: Any, store: StateStore) -> None:
        meter.record()
        store.put(record.key, b"%d" % (int(store.get(record.key) or 0) + 1))

    member = StatefulConsumer(
        job.topic,
        process=count,
        state_dir=job.folder,
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        commit_interval_ms=commit_interval_ms,
    )
    with member:
        while not meter.complete:
            member.poll(_POLL_MS)
        member.commit()
        meter.end()
        found = {
            key.decode(): int(value)
            for tp in member.active_partitions()
            for key, value in member.store(tp).items()
        }  # fmt: skip
    meter.report(found)


def sqlite(batch: int, job: Job) -> None:
    """The same work without what makes it safe: a file for each partition, a transaction for a batch, no changelog."""
    files: dict[int, sqlite3.Connection] = {}

    def count(partition: int, records: Sequence[Any]) -> None:
        if partition not in files:
            files[partition] = sqlite3.connect(job.folder / f"{partition}.sqlite", isolation_level=None)
            for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", _SCHEMA):
                files[partition].execute(statement)
        file = files[partition]
        file.execute("BEGIN IMMEDIATE")
        for record in records:
            row = file.execute("SELECT value FROM state WHERE key = ?", (record.key,)).fetchone()
            counted = b"%d" % (int(row[0] if row else 0) + 1)
            file.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (record.key, counted))
        file.execute("COMMIT")

    meter = _consumed(batch, job, count)
    rows = (row for file in files.values() for row in file.execute("SELECT key, value FROM state"))
    meter.report({key.decode(): int(value) for key, value in rows})


def kafka_python(batch: int, job: Job) -> None:
    """Records are read, and counted in memory."""
    counts: Counter[bytes] = Counter()
    meter = _consumed(batch, job, lambda _, records: counts.update(r.key for r in records))
    meter.report({key.decode(): number for key, number in counts.items()})


def _consumed(batch: int, job: Job, count: Callable[[int, Sequence[Any]], None]) -> Meter:
    """Read all records with kafka-python; commits are its own, every 5 seconds."""
    meter = Meter(job.records)
    consumer = KafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset="earliest",
        max_poll_records=batch,
    )
    while not meter.complete:
        for tp, records in consumer.poll(timeout_ms=_POLL_MS).items():
            meter.batch(len(records))
            count(tp.partition, records)
    meter.end()
    consumer.close()
    return meter


def confluent(batch: int, job: Job) -> None:
    """The same with librdkafka."""
    meter = Meter(job.records)
    counts: Counter[bytes | str | None] = Counter()
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": job.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([job.topic])
    while not meter.complete:
        records = [record for record in consumer.consume(batch, _POLL_MS / 1000) if not record.error()]
        meter.batch(len(records))
        counts.update(record.key() for record in records)
    meter.end()
    consumer.close()
    meter.report({key.decode(): number for key, number in counts.items() if isinstance(key, bytes)})


KINDS: dict[str, Callable[[int, Job], None]] = {
    "stateful": stateful,
    "sqlite": sqlite,
    "kafka-python": kafka_python,
    "confluent": confluent,
}


if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]), Job.read(sys.argv[3:]))
