"""The worker of `benchmarks.stateful_rate` with Quix Streams: its own counting example, in an environment of its own.

python -m benchmarks.rate_quix GUARANTEE COMMIT_EVERY BOOTSTRAP GROUP TOPIC FOLDER RECORDS

All settings but the group, the addresses and the guarantee are its defaults, with changelog topics. `COMMIT_EVERY` 0 is
the default too: a checkpoint every 5 seconds. Keys and values stay bytes, which is cheaper than its default, JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from quixstreams import Application

from benchmarks.rate_meter import Job, Meter

_ANSWER_S = 30.0


def process(guarantee: str, commit_every: int, job: Job) -> None:
    """Count all records, and print what that took and what was counted."""
    app: Any = Application(
        broker_address=job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        processing_guarantee=guarantee,
        commit_every=commit_every,
        state_dir=job.folder,
        loglevel="WARNING",
    )
    meter = Meter(job.records)

    def count(_: bytes, state: Any) -> int:
        meter.record()
        counted = int(state.get("count", 0)) + 1
        state.set("count", counted)
        if meter.complete:
            app.stop()
        return counted

    # The last checkpoint belongs to the work, and closing does not: what is between has no public name.
    context = app._processing_context
    commit = context.commit_checkpoint

    def commit_checkpoint(*words: Any, **named: Any) -> None:
        commit(*words, **named)
        if meter.complete:
            meter.end()

    context.commit_checkpoint = commit_checkpoint
    read = app.topic(job.topic, key_deserializer="bytes", value_deserializer="bytes")
    app.dataframe(read).apply(count, stateful=True)
    app.run()
    meter.report(changelog_counts(job.bootstrap, f"changelog__{job.group}--{job.topic}--default"))


def changelog_counts(bootstrap: str, changelog: str) -> dict[str, int]:
    """Return the last count of each key in the changelog, without those of transactions that were aborted."""
    client = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "check",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    try:
        partitions = client.list_topics(changelog, timeout=_ANSWER_S).topics[changelog].partitions
        client.assign([TopicPartition(changelog, partition, OFFSET_BEGINNING) for partition in partitions])
        counts: dict[str, int] = {}
        ended = 0
        while ended < len(partitions):
            message = client.poll(_ANSWER_S)
            if message is None:
                raise RuntimeError(f"{changelog} cannot be read to its end")
            if message.error():
                ended += 1
                continue
            key, value = message.key() or b"", message.value()
            # A key of the state is that of the record, a separator, and the name of the value as JSON.
            if value is not None and key.endswith(b'|"count"'):
                counts[key.partition(b"|")[0].decode()] = json.loads(value)
    finally:
        client.close()
    return counts


if __name__ == "__main__":
    process(sys.argv[1], int(sys.argv[2]), Job.read(sys.argv[3:]))
