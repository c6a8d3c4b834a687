"""A process with the clients of one rack, whose traffic the kernel counts: `python -m ... JSON`.

It writes a line when it has started, and for each line on its standard input the bytes that it has sent to and received
from each port, and those of values that it has written to each topic and read in each group. It ends with its standard
input; its consumers leave their groups.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from prometheus_client import CollectorRegistry, start_http_server

from rackassign import RackAwareConsumer, RackAwareProducer, attach
from rackassign.monitoring.prometheus import ProducerMetrics
from tests.helpers.kernel_traffic import ConnectionBytes

RECORD_BYTES = 10_000


def produce(producer: KafkaProducer, topic: str, key: str | None, rate: float, values: Counter[str]) -> None:
    """Write records with one of ten keys of this rack, or without a key, at a rate."""
    start, sent = time.monotonic(), 0
    while True:
        for number in range(sent, int((time.monotonic() - start) * rate)):
            producer.send(topic, os.urandom(RECORD_BYTES), key=None if key is None else f"{key}{number % 10}".encode())
            sent = number + 1
            values[topic] += RECORD_BYTES
        time.sleep(0.05)


def consume(consumer: KafkaConsumer, group: str, over: threading.Event, values: Counter[str]) -> None:
    while not over.is_set():
        values[group] += RECORD_BYTES * sum(map(len, consumer.poll(500).values()))
    consumer.close()


def start(
    rack: str, bootstrap: str, options: dict[str, Any], over: threading.Event, values: Counter[str]
) -> list[threading.Thread]:
    registry, metrics = CollectorRegistry(), ProducerMetrics(by_partition=True)
    registry.register(metrics)
    common: dict[str, Any] = {"bootstrap_servers": bootstrap}
    for topic, keyed, rate in options["produce"]:
        producer = RackAwareProducer(**common, client_rack=rack, linger_ms=100)
        metrics.add(producer)
        work = threading.Thread(
            target=produce, args=(producer, topic, rack if keyed else None, rate, values), daemon=True
        )
        work.start()
    reading: list[threading.Thread] = []
    for group, topic, near, aware in options["consume"]:
        config = {**common, "group_id": group, "client_id": f"{group}-{rack}", "auto_commit_interval_ms": 1000}
        config |= {
            "auto_offset_reset": "latest",
            "fetch_min_bytes": 200_000,
            "metadata_max_age_ms": 5000,
            "client_rack": rack if near else "",
        }
        made = RackAwareConsumer(topic, **{**config, "client_rack": rack}) if aware else KafkaConsumer(topic, **config)
        if not aware:
            # With the strategy and the rack of kafka-python, and without its defects: on a busy machine a member of it
            # can stop to read for good.
            attach(made)
        reading.append(threading.Thread(target=consume, args=(made, group, over, values), daemon=True))
        reading[-1].start()
    start_http_server(options["port"], registry=registry)
    return reading


def main() -> None:
    options = json.loads(sys.argv[1])
    over, values = threading.Event(), Counter[str]()
    reading = start(options["rack"], options["bootstrap"], options, over, values)
    meters = {name: ConnectionBytes(sent=name == "sent") for name in ("sent", "received")}
    print("started", flush=True)
    for _ in sys.stdin:
        print(json.dumps({**{name: meter.look() for name, meter in meters.items()}, "values": values}), flush=True)
    over.set()
    for thread in reading:
        # A member that leaves its group lets the others go on at once.
        thread.join(30)
    os._exit(0)


if __name__ == "__main__":
    main()
