"""Read records and write results, each exactly once, with confluent-kafka.

Results and offsets are committed in one transaction (KIP-447). A member that dies leaves an open one, which its
successor aborts; so each member has a transactional ID of its own that stays the same when it is started again. Run it
once for each zone, and read the results with `isolation.level=read_committed`, the default of confluent-kafka:

    python -m examples.exactly_once.confluent 127.0.0.1:PORT orders results --member a-1 --zone a
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
import threading
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, KafkaException, Message, Producer, TopicPartition

from rackassign.clients.confluent import RackAwareConsumer

BATCH = 500
TRANSACTION_MS = 15_000
HANG_S = 2 * TRANSACTION_MS / 1000
WAIT_S = 0.5


def transform(value: bytes) -> bytes:
    """Return the result for one record."""
    return value.upper()


def without_errors(messages: Sequence[Message]) -> list[Message]:
    """Return the records, and report the errors between them, such as a topic that does not exist.

    librdkafka tries again, so none of them is raised.
    """
    for message in messages:
        if message.error() is not None:
            print(f"{message.topic()}: {message.error()}", file=sys.stderr, flush=True)
    return [message for message in messages if message.error() is None]


def process(consumer: RackAwareConsumer, producer: Producer, target: str, messages: Sequence[Message]) -> None:
    """Write the results of some records, with the offsets after them; or neither."""
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(target, transform(message.value() or b""), message.key())
        # The offsets after these records, and the generation in which this member has their partitions.
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [offset for offset in offsets if offset.offset >= 0], consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
    except KafkaException as error:
        # "Retriable" is a call that was not answered in time. Only the same call could follow, so the program ends, and
        # is started again.
        if error.args[0].fatal() or error.args[0].retriable():
            raise
        producer.abort_transaction()
        rewind(consumer)


def rewind(consumer: RackAwareConsumer) -> None:
    """Continue after the last committed records; other members may have processed these meanwhile."""
    for committed in consumer.committed(consumer.assignment()):
        if committed.error is not None:
            raise KafkaException(committed.error)
        offset = committed.offset if committed.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(TopicPartition(committed.topic, committed.partition, offset))


def main(arguments: Sequence[str] | None = None) -> None:
    """Process records until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="addresses of brokers")
    parser.add_argument("source", help="topic with the records")
    parser.add_argument("target", help="topic for the results")
    parser.add_argument("--group", default="exactly-once")
    parser.add_argument("--member", required=True, help="name of this member, the same when it is started again")
    parser.add_argument("--zone", help="where this member runs")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000, help="time until others take over")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    producer = Producer(
        {
            "bootstrap.servers": given.bootstrap,
            "transactional.id": f"{given.group}-{given.member}",
            # Others wait this long for the partitions of a member that hangs in a transaction.
            "transaction.timeout.ms": TRANSACTION_MS,
        }
    )
    producer.init_transactions()
    consumer = RackAwareConsumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "client.rack": given.zone,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": given.session_timeout_ms,
        }
    )
    with consumer:
        consumer.subscribe([given.source])
        while not ended.is_set():
            messages = without_errors(consumer.consume(BATCH, WAIT_S))
            if messages:
                # librdkafka was seen to stay in one call for minutes after a broker was killed, and the group waits for
                # a member that does not poll. So the program shows where it is and ends, to be started again.
                faulthandler.dump_traceback_later(HANG_S, exit=True)
                process(consumer, producer, given.target, messages)
                faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
