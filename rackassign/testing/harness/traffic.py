"""Numbered records that keep coming, and those of them that the brokers acknowledged."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from rackassign.model import TopicPartition
from rackassign.testing.harness.members import TIMEOUT_S, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

Acknowledged = Callable[[TopicPartition, int, int], None]
"""Called with a record's partition, its number and its offset, on the producer's thread."""


class Traffic:
    """Records to all partitions in turn, also to those that are added, until the `with` block ends.

    The value of a record is its number in its partition, in decimal digits.

    Args:
        client_config: Connection arguments of a kafka-python client.
        topics: Topics to write to.
        rate: Records per second.
        most_records: Number of records after which it stops, for a test that does not end.
        tolerant: Whether a failed producer is replaced by a new one. A record that is not acknowledged then may be in
            the topic or not. Otherwise `written` raises the error.
        on_acknowledged: Called for each acknowledged record.
    """

    def __init__(
        self,
        client_config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        rate: float = 200.0,
        most_records: int = 100_000,
        tolerant: bool = False,
        on_acknowledged: Acknowledged | None = None,
    ) -> None:
        self._client_config = client_config
        self._topics = topics
        self._interval_s = 1 / rate
        self._most = most_records
        self._tolerant = tolerant
        self._on_acknowledged = on_acknowledged
        self._counts = Counter[TopicPartition]()
        self._listed: set[TopicPartition] = set()
        self._written: set[tuple[TopicPartition, int]] = set()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"a producer did not close in {TIMEOUT_S:g} s")

    def wait_for_more(self, per_partition: int = 5) -> None:
        """Wait until so many more records have been acknowledged for each partition that is written to.

        Args:
            per_partition: Number of records for each partition; the sum over all partitions counts.
        """

        def begun() -> bool:
            self._raise()
            return bool(self._listed)

        # Before that the number of partitions is unknown.
        wait_until(begun, "partitions to write to")
        goal = len(self._written) + per_partition * len(self._listed)

        def enough() -> bool:
            self._raise()
            return len(self._written) >= goal

        wait_until(enough, "more acknowledged records")

    def written(self) -> set[tuple[TopicPartition, int]]:
        """Return the partition and the offset of all acknowledged records, once the block has ended."""
        self._raise()
        return set(self._written)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while self._counts.total() < self._most and not self._ended.is_set():
                # A producer that met a fatal error sends nothing more.
                with closing(KafkaProducer(**self._client_config, acks="all", metadata_max_age_ms=1000)) as producer:
                    try:
                        self._send(producer)
                        producer.flush(timeout=TIMEOUT_S)
                    except KafkaError:
                        if not self._tolerant:
                            raise
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            self._error = error

    def _send(self, producer: KafkaProducer) -> None:
        while self._counts.total() < self._most:
            tps = [TopicPartition(topic, p) for topic in self._topics for p in sorted(producer.partitions_for(topic))]
            self._listed = {*tps}
            for tp in tps:
                if self._ended.wait(self._interval_s):
                    return
                number = self._counts[tp]
                self._counts[tp] += 1
                sent = producer.send(tp.topic, str(number).encode("ascii"), partition=tp.partition)
                sent.add_callback(partial(self._acknowledge, tp, number))
                if not self._tolerant:
                    sent.add_errback(self._fail)

    def _acknowledge(self, tp: TopicPartition, number: int, metadata: Any) -> None:  # noqa: ANN401 - of kafka-python
        self._written.add((tp, metadata.offset))
        if self._on_acknowledged is not None:
            self._on_acknowledged(tp, number, metadata.offset)

    def _fail(self, error: BaseException) -> None:
        self._error = error
