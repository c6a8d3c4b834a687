"""Read records and write results, each exactly once, with kafka-python.

Results and offsets are committed in one transaction (KIP-447). A member that dies leaves an open one, which its
successor aborts; so each member has a transactional ID of its own that stays the same when it is started again. Run it
once for each zone, and read the results with `isolation_level="read_committed"`:

    python -m examples.exactly_once.kafka_python 127.0.0.1:PORT orders results --member a-1 --zone a
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from kafka import KafkaProducer, OffsetAndMetadata
from kafka.errors import KafkaError, KafkaTimeoutError

from rackassign import RackAwareConsumer

BATCH = 500
TRANSACTION_MS = 15_000
WAIT_MS = 500
HANG_S = 20
"""Longer than the timeout of a transaction, after which the broker has aborted it."""

log = logging.getLogger(__name__)


def transform(value: bytes) -> bytes:
    """Return the result for one record."""
    return value.upper()


@contextmanager
def limited() -> Iterator[None]:
    """Raise `KafkaTimeoutError` in the block if it takes too long.

    kafka-python 3.0 waits for the end of a transaction without a limit, and was seen to wait forever after a broker was
    killed. A handler of a signal can raise an error in the middle of that.
    """

    def give_up(*_: object) -> None:
        raise KafkaTimeoutError(f"the producer does not respond for {HANG_S} s")

    signal.signal(signal.SIGALRM, give_up)
    # Again each second, in case the first error is lost in a finalizer.
    signal.setitimer(signal.ITIMER_REAL, HANG_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def process(
    consumer: RackAwareConsumer, producer: KafkaProducer, target: str, batches: Mapping[Any, Sequence[Any]]
) -> None:
    """Write the results of some records, with the offsets after them.

    Raises:
        KafkaError: Something failed; the transaction is open or aborted.
    """
    # Before anything else, since it has to be the membership with which the records were read.
    membership = consumer.group_metadata()
    offsets = {tp: OffsetAndMetadata(batch[-1].offset + 1, "", -1) for tp, batch in batches.items()}
    with limited():
        producer.begin_transaction()
        written = [
            producer.send(target, transform(record.value or b""), record.key)
            for batch in batches.values()
            for record in batch
        ]
        for result in written:
            # kafka-python would commit a transaction of which a record was not written in time. Its `flush` raises
            # "Future not done" if records are sent again in smaller batches, since the topic takes no larger ones.
            result.get(HANG_S)
        producer.send_offsets_to_transaction(offsets, membership)
        producer.commit_transaction()


def rewind(consumer: RackAwareConsumer) -> None:
    """Continue after the last committed records; other members may have processed these meanwhile."""
    for tp in consumer.assignment():
        committed = consumer.committed(tp)
        if committed is None:
            consumer.seek_to_beginning(tp)
        else:
            consumer.seek(tp, committed)


def transactional_producer(bootstrap: str, transactional_id: str) -> KafkaProducer:
    """Return a producer that has aborted what an earlier one of this ID has left open."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        # Others wait this long for the partitions of a member that hangs in a transaction.
        transaction_timeout_ms=TRANSACTION_MS,
    )
    try:
        producer.init_transactions()
    except KafkaError:
        drop(producer)
        raise
    return producer


def drop(producer: KafkaProducer) -> None:
    """Close a producer without a wait for what it has under way, which its successor aborts.

    `close` flushes first, so if records are under way it raises and closes nothing. The thread of such a producer ends
    with the process.
    """
    with suppress(KafkaTimeoutError):
        producer.close(timeout=0)


def process_until_failure(consumer: RackAwareConsumer, given: argparse.Namespace, ended: threading.Event) -> None:
    """Process records with one producer.

    Raises:
        KafkaError: Something failed. `abort_transaction` is no way to go on: kafka-python 3.0 sends the offsets of an
            aborted transaction again with those of the next.
    """
    producer = transactional_producer(given.bootstrap, f"{given.group}-{given.member}")
    try:
        rewind(consumer)
        while not ended.is_set():
            batches = consumer.poll(timeout_ms=WAIT_MS)
            if batches:
                process(consumer, producer, given.target, batches)
    finally:
        drop(producer)


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
    consumer = RackAwareConsumer(
        given.source,
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        client_rack=given.zone,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=BATCH,
        session_timeout_ms=given.session_timeout_ms,
        heartbeat_interval_ms=given.session_timeout_ms // 3,
        # It also makes a member wait for the open transaction of a former owner before it reads committed offsets.
        isolation_level="read_committed",
    )
    with closing(consumer):
        while not ended.is_set():
            try:
                process_until_failure(consumer, given, ended)
            except KafkaError as error:  # noqa: PERF203 - a failure is rare
                log.warning("member %s begins again after its last commit: %r", given.member, error)
                time.sleep(1.0)


if __name__ == "__main__":
    main()
