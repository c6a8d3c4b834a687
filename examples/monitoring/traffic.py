"""Something to look at on the dashboard: a topic in three racks, 200 kB a second, and a group that knows no racks.

KAFKA_BOOTSTRAP=127.0.0.1:29092 TOPIC=orders python -m examples.monitoring.traffic
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing, suppress

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

from rackassign import attach

PARTITIONS, REPLICAS = 12, 2
RECORDS_PER_S, SIZE = 200, 1000


def create(bootstrap: str, topic: str) -> None:
    """Create the topic, unless it exists."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin, suppress(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, PARTITIONS, REPLICAS)])


def read(bootstrap: str, topic: str, ended: threading.Event) -> None:
    """Read everything, from wherever it is."""
    # With the patches of `attach`, and no rack: without them a member can stay out of its group for good.
    with closing(attach(KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id="reports"))) as consumer:
        while not ended.is_set():
            consumer.poll(timeout_ms=500)


def write(bootstrap: str, topic: str, ended: threading.Event) -> None:
    """Write at a constant rate."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50)) as producer:
        began, number = time.monotonic(), 0
        while not ended.is_set():
            producer.send(topic, os.urandom(SIZE // 2).hex().encode(), partition=number % PARTITIONS)
            number += 1
            ended.wait(max(0.0, began + number / RECORDS_PER_S - time.monotonic()))


def main() -> None:
    """Write and read until SIGTERM or Ctrl-C."""
    bootstrap, topic = os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:29092"), os.environ.get("TOPIC", "orders")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    create(bootstrap, topic)
    reading = threading.Thread(target=read, args=(bootstrap, topic, ended))
    reading.start()
    try:
        write(bootstrap, topic, ended)
    finally:
        ended.set()
        reading.join()


if __name__ == "__main__":
    main()
