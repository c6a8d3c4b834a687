"""Numbered records that keep coming, and which of them the brokers acknowledged."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from rackassign.model import TopicPartition

from .history import Acked, Journal, now

if TYPE_CHECKING:
    from typing_extensions import Self

RATE = 150.0
MOST_RECORDS = 100_000
_END_S = 60.0


class Traffic:
    """Records to all partitions in turn, also to those that are added, until the `with` block ends.

    Each carries its number in its partition. One that is not acknowledged may be there or not.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], journal: Journal) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._journal = journal
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2 * _END_S)
        assert not self._thread.is_alive(), "a producer that does not close"

    def _run(self) -> None:
        counts = Counter[TopicPartition]()
        while counts.total() < MOST_RECORDS and not self._ended.is_set():
            # One that has met a fatal error sends nothing more.
            with closing(self._producer()) as producer:
                try:
                    self._send(producer, counts)
                    producer.flush(timeout=_END_S)
                except KafkaError:
                    continue

    def _producer(self) -> Any:
        return KafkaProducer(bootstrap_servers=self._bootstrap, acks="all", metadata_max_age_ms=1000)

    def _send(self, producer: Any, counts: Counter[TopicPartition]) -> None:
        while counts.total() < MOST_RECORDS:
            for topic in self._topics:
                for partition in sorted(producer.partitions_for(topic)):
                    if self._ended.wait(1 / RATE):
                        return
                    place = TopicPartition(topic, partition)
                    number = counts[place]
                    counts[place] += 1
                    sent = producer.send(topic, str(number).encode("ascii"), partition=partition)
                    sent.add_callback(partial(self._acked, place, number))

    def _acked(self, place: TopicPartition, number: int, metadata: Any) -> None:
        self._journal.note(Acked(now(), place, metadata.offset, number))
