"""Transactions of the Kafka in memory: what is open, who may commit it, and what readers of committed records see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    CommitFailedError,
    InvalidTransactionTimeoutError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    UnknownError,
)

from rackassign.stateful import _transactions as producer
from tests.helpers.fakes.kafka import Client, Headers, Kafka, Sent


@dataclass(eq=False)
class Transaction:
    """What one producer has written between two ends."""

    state: Literal["open", "committed", "aborted"] = "open"
    written: list[KafkaPythonPartition] = field(default_factory=list)
    offsets: dict[KafkaPythonPartition, int] = field(default_factory=dict)


@dataclass
class Coordinator:
    """The open transaction and the epoch of each transactional ID."""

    kafka: Kafka
    epochs: dict[str, int] = field(default_factory=dict)
    open: dict[str, Transaction] = field(default_factory=dict)
    longest_ms: int = 900_000
    largest: int = 1 << 30
    """Bytes of a value that brokers take."""
    refused: KafkaError | None = None
    """Error of brokers for a record without a key, as of a compacted topic."""
    committed: int = 0
    """Number of committed transactions."""

    def installed(self, patch: pytest.MonkeyPatch) -> Coordinator:
        patch.setattr(producer, "KafkaProducer", lambda **config: TransactionalProducer(self, config))
        patch.setattr(producer, "_RETRY_S", 0.0)
        return self

    def end(self, name: str, state: Literal["committed", "aborted"]) -> None:
        """End what is open: a marker in each partition, and the offsets if it is committed."""
        transaction = self.open.pop(name, None)
        if transaction is None:
            return
        transaction.state = state
        for host in sorted(set(transaction.written)):
            self.kafka.append(host.topic, host.partition, None, None)
            self.kafka.topics[host.topic].logs[host.partition][-1].marker = True
        if state == "committed":
            self.committed += 1
            self.kafka.committed.update(transaction.offsets)


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a record that brokers refuse."""

    error: KafkaError

    def get(self, timeout_s: float) -> Sent:
        assert timeout_s >= 0
        raise self.error


class TransactionalProducer(Client):
    """A producer of one transactional ID."""

    def __init__(self, coordinator: Coordinator, config: Mapping[str, Any]) -> None:
        super().__init__(coordinator.kafka, config)
        self._coordinator = coordinator
        self._id: str = config["transactional_id"]
        self._timeout_ms: int = config["transaction_timeout_ms"]
        self._epoch = -1
        self._failed: KafkaError | None = None

    def init_transactions(self) -> None:
        self.answers("init")
        if self._timeout_ms > self._coordinator.longest_ms:
            # As kafka-python 3.0.12 raises it.
            name = InvalidTransactionTimeoutError.__name__
            raise KafkaError(f"Unexpected error in InitProducerIdResponse: [Error 50] {name}")
        self._coordinator.end(self._id, "aborted")
        self._epoch = self._coordinator.epochs.get(self._id, -1) + 1
        self._coordinator.epochs[self._id] = self._epoch

    def _check(self) -> None:
        if self._epoch != self._coordinator.epochs[self._id]:
            raise ProducerFencedError

    def begin_transaction(self) -> None:
        self._check()
        assert self._id not in self._coordinator.open
        self._coordinator.open[self._id] = Transaction()

    def send(
        self,
        name: str,
        *,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Sent | Refused:
        self._check()
        if self._failed is not None:
            # As kafka-python 3.0.12 raises it.
            reason = "Cannot perform send because at least one previous transactional request has failed with errors."
            raise KafkaError(reason, self._failed)
        refusal = self._refusal(key, value)
        if refusal is not None:
            # Brokers answer later than this returns.
            self._failed = refusal
            return Refused(refusal)
        host = KafkaPythonPartition(name, 0 if partition is None else partition)
        offset = self.kafka.append(name, host.partition, key, value, headers, timestamp_ms or -1)
        transaction = self._coordinator.open[self._id]
        transaction.written.append(host)
        self.kafka.topics[name].logs[host.partition][-1].transaction = transaction
        return Sent(self.kafka, offset)

    def _refusal(self, key: bytes | None, value: bytes | None) -> KafkaError | None:
        if len(value or b"") > self._coordinator.largest:
            return MessageSizeTooLargeError()
        return self._coordinator.refused if key is None else None

    def flush(self, timeout_s: float) -> None:
        """Raise what kafka-python 3.0.12 raises if it splits a batch that is too large for its topic."""
        assert timeout_s > 0
        raise UnknownError("Future not done")

    def send_offsets_to_transaction(self, offsets: Mapping[KafkaPythonPartition, Any], membership: Any) -> None:
        self._check()
        self.answers("transaction offsets")
        assert offsets, "nothing tells the coordinator of the group whose transaction it is"
        if membership.generation_id != self.kafka.generation:
            raise CommitFailedError("IllegalGenerationError")
        self._coordinator.open[self._id].offsets.update({host: told.offset for host, told in offsets.items()})

    def commit_transaction(self) -> None:
        self._check()
        self.answers("transaction end")
        self._coordinator.end(self._id, "committed")
        if "transaction answer" in self.kafka.refuse:
            self.kafka.refuse.remove("transaction answer")
            raise KafkaError("the answer is lost")

    def partitions_for(self, name: str) -> set[int]:
        return set(range(len(self.kafka.topics[name].logs)))


def committed_values(kafka: Kafka, name: str) -> list[bytes | None]:
    """Return what readers of committed records find in a topic."""
    found: Sequence[Any] = [
        record for log in kafka.topics[name].logs for record in log if kafka.is_visible(record, committed=True)
    ]
    return [record.value for record in found]
