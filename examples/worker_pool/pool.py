"""A pool of threads that handle records, behind one consumer with the interface of confluent-kafka.

A batch is committed after all of its records were handled, so after a crash some are handled again and none is lost.
While a batch is handled the group is not polled: keep it shorter than `max.poll.interval.ms`. Run one for each zone:

    RACKASSIGN_RACK=use1-az1 KAFKA_BOOTSTRAP=broker:9092 python -m examples.worker_pool.pool
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaError, KafkaException, Message

from rackassign.clients.confluent import RackAwareConsumer

WORKERS = 8
BATCH = 200
GONE = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}


def handle(message: Message) -> None:
    """Do what the pool is for, with one record; called by several threads."""
    print((message.value() or b"").decode(errors="replace"), flush=True)


def without_errors(messages: Sequence[Message]) -> list[Message]:
    """Return the records, and report the errors between them, such as a topic that does not exist.

    librdkafka tries again, so none of them is raised.
    """
    for message in messages:
        if message.error() is not None:
            print(f"{message.topic()}: {message.error()}", file=sys.stderr, flush=True)
    return [message for message in messages if message.error() is None]


def main() -> None:
    """Handle records until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    config = {
        "bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092"),
        "group.id": os.environ.get("GROUP", "worker-pool"),
        # The rack is that of RACKASSIGN_RACK; "client.rack": "auto" detects it.
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with RackAwareConsumer(config) as consumer, ThreadPoolExecutor(WORKERS) as pool:
        consumer.subscribe([os.environ.get("TOPIC", "orders")])
        while not ended.is_set():
            messages = without_errors(consumer.consume(BATCH, 0.5))
            # Raises what a worker raised: the process ends, and the batch is read again.
            list(pool.map(handle, messages))
            if messages:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    if error.args[0].code() not in GONE:
                        raise
                    # Others have the partitions by now, and handle these records again.


if __name__ == "__main__":
    main()
