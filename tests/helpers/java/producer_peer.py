"""Kafka's own Java producer: where it writes records without a key."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rackassign.testing import kafka_jars
from tests.helpers.java.assignor_peer import JavaProcess, compiled, find_jdk, skipped_without_java

SOURCE = Path(__file__).with_name("ProducerPeer.java")


class ProducerPeer(JavaProcess):
    """A JVM that makes a producer for each call."""

    def write(self, topic: str, records: int, size: int, config: Mapping[str, str]) -> dict[int, int]:
        """Write records without a key; returns how many were stored in each partition that has some."""
        request = {"topic": topic, "records": records, "size": size, "config": dict(config)}
        stored = self._exchange(json.dumps(request).encode() + b"\n", self._timeout_s)
        return {int(partition): count for partition, count in stored.items()}


@contextmanager
def producer_peer() -> Iterator[ProducerPeer]:
    """Run a peer while the block lasts; without JDK or jars the test is skipped, or fails where `CI` is true."""
    with skipped_without_java():
        jdk, class_path = find_jdk(), os.pathsep.join(map(str, kafka_jars()))
    classes = compiled(jdk, class_path, SOURCE)
    with ProducerPeer(jdk.java, (str(classes), class_path), "ProducerPeer", heap="256m") as peer:
        yield peer
