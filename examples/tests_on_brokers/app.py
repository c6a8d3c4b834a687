"""What is tested: it counts the records of a topic, and commits what it has counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rackassign import RackAwareConsumer


class Counting:
    """A member of a group that counts values.

    Args:
        topic: What it reads.
        zone: Where it runs.
        **config: Of the consumer.
    """

    def __init__(self, topic: str, zone: str, **config: Any) -> None:
        self.counts: Counter[bytes] = Counter()
        self.consumer = RackAwareConsumer(
            topic,
            client_rack=zone,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1_000,
            **config,
        )

    def step(self) -> int:
        """Count some records, and commit them; return how many are counted so far."""
        for records in self.consumer.poll(timeout_ms=200).values():
            self.counts.update(record.value for record in records)
        if self.consumer.assignment():
            self.consumer.commit()
        return self.counts.total()

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
