"""As much of Kafka, in memory, as a member with state needs: topics that can be cut, deleted and made anew.

And transactions: what is open, who may commit it, and what readers of committed records see.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    CommitFailedError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTransactionTimeoutError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownError,
)

from rackassign.stateful import _active_task as active_task
from rackassign.stateful import _active_tasks as active_tasks
from rackassign.stateful import _changelog_client as changelog
from rackassign.stateful import _changelog_topics as changelog_topics
from rackassign.stateful import _output as output
from rackassign.stateful import _stateful_consumer as consumer
from rackassign.stateful import _transactions as transactions

Headers = Sequence[tuple[str, bytes]]


@dataclass(eq=False)
class Transaction:
    """What one producer has written between two ends."""

    state: Literal["open", "committed", "aborted"] = "open"
    written: list[KafkaPythonPartition] = field(default_factory=list)
    offsets: dict[KafkaPythonPartition, int] = field(default_factory=dict)


@dataclass
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    topic: str = "t"
    partition: int = 0
    timestamp: int = -1
    marker: bool = False
    """Whether it is the end of a transaction."""
    transaction: Transaction | None = None
    """The transaction it belongs to."""


@dataclass
class Topic:
    """A topic; its id is that of no other."""

    logs: list[list[Record]]
    id: str
    configs: dict[str, str]

    def described(self, name: str) -> dict[str, Any]:
        partitions = [{"replica_nodes": [1, 2]} for _ in self.logs]
        return {"name": name, "error_code": 0, "topic_id": self.id, "partitions": partitions}


@dataclass
class Coordinator:
    """The open transaction and the epoch of each transactional ID."""

    epochs: dict[str, int] = field(default_factory=dict)
    open: dict[str, Transaction] = field(default_factory=dict)
    longest_ms: int = 900_000
    largest: int = 1 << 30
    """Bytes of a value that brokers take."""
    refused: KafkaError | None = None
    """Error of brokers for a record without a key, as of a compacted topic."""
    committed: int = 0
    """Number of committed transactions."""


@dataclass
class Kafka:
    """The cluster, and what its clients are told to do."""

    topics: dict[str, Topic] = field(default_factory=dict)
    committed: dict[KafkaPythonPartition, int] = field(default_factory=dict)
    open: set[Client] = field(default_factory=set)
    before_send: Callable[[str, bytes | None], None] | None = None
    refuse: list[str] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    generation: int = -1
    brokers: int = 2
    min_isr: str = "1"
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    coordinator: Coordinator = field(default_factory=Coordinator)
    _ids: Any = field(default_factory=itertools.count)

    def make(self, name: str, partitions: int = 2, configs: Mapping[str, str] | None = None) -> None:
        known = {
            "cleanup.policy": "compact",
            "delete.retention.ms": "86400000",
            "min.compaction.lag.ms": "3600000",
            "unclean.leader.election.enable": "false",
            "max.message.bytes": "1048588",
        }
        self.topics[name] = Topic([[] for _ in range(partitions)], f"{next(self._ids):x}", {**known, **(configs or {})})

    def append(
        self,
        name: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int = -1,
    ) -> int:
        log = self.topics[name].logs[partition]
        log.append(Record(log[-1].offset + 1 if log else 0, key, value, headers, name, partition, timestamp))
        return log[-1].offset

    def feed(self, partition: int, records: int) -> None:
        for _ in range(records):
            self.append("t", partition, None, b"x")

    def end(self, host: KafkaPythonPartition) -> int:
        log = self.topics[host.topic].logs[host.partition]
        return log[-1].offset + 1 if log else 0

    def end_transaction(self, name: str, state: Literal["committed", "aborted"]) -> None:
        """End what is open: a marker in each partition, and the offsets if it is committed."""
        transaction = self.coordinator.open.pop(name, None)
        if transaction is None:
            return
        transaction.state = state
        for host in sorted(set(transaction.written)):
            self.append(host.topic, host.partition, None, None)
            self.topics[host.topic].logs[host.partition][-1].marker = True
        if state == "committed":
            self.coordinator.committed += 1
            self.committed.update(transaction.offsets)

    def commit_records(self, name: str, partition: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Write records, and what stands for the end of their transaction."""
        for key, value in changes.items():
            self.append(name, partition, key, value)
        self.append(name, partition, None, None)
        self.topics[name].logs[partition][-1].marker = True

    def stable_end(self, host: KafkaPythonPartition) -> int:
        """Return where the first open transaction of a partition begins, or its end."""
        log = self.topics[host.topic].logs[host.partition]
        opened = (each.offset for each in log if each.transaction is not None and each.transaction.state == "open")
        return min(opened, default=self.end(host))

    @staticmethod
    def is_visible(record: Record, *, committed: bool) -> bool:
        """Return whether readers get a record: markers never, and only some what is not committed."""
        if record.marker:
            return False
        return not committed or record.transaction is None or record.transaction.state == "committed"

    def installed(self, patch: pytest.MonkeyPatch) -> Kafka:
        patch.setattr(changelog, "KafkaConsumer", lambda **config: Consumer(self, self._told(_reader(config), config)))
        patch.setattr(changelog, "install", lambda *_: None)
        patch.setattr(transactions, "KafkaProducer", lambda **config: Producer(self, self._told("producer", config)))
        patch.setattr(transactions, "_RETRY_S", 0.0)
        for module in (changelog_topics, output):
            patch.setattr(module, "KafkaAdminClient", lambda **config: Admin(self, self._told("admin", config)))
        patch.setattr(changelog_topics, "topic_configs", self._topic_configs)
        patch.setattr(active_tasks, "membership_of", Membership)
        patch.setattr(consumer, "RackAwareConsumer", lambda **config: Member(self, self._told("consumer", config)))
        patch.setattr(changelog, "_GROW_S", 0.0)
        patch.setattr(active_tasks, "_AGAIN_S", 0.0)
        patch.setattr(active_tasks, "_ASK_AGAIN_S", 0.0)
        patch.setattr(active_task, "_SHORTER_S", 0.0)
        # Ends are looked at with each poll.
        patch.setattr(consumer, "_ENDS_S", 0.0)
        return self

    def _told(self, client: str, config: dict[str, Any]) -> dict[str, Any]:
        """Keep what a client is configured with."""
        self.settings[client] = config
        return config

    def _topic_configs(self, _: Admin, names: Iterable[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        return {name: {key: self.topics[name].configs[key] for key in keys} for name in names}


def _reader(config: Mapping[str, Any]) -> str:
    return "reader" if config["isolation_level"] == "read_committed" else "ends"


class Client:
    def __init__(self, kafka: Kafka, config: Mapping[str, Any]) -> None:
        del config
        self.kafka = kafka
        kafka.open.add(self)

    def close(self, *_: object) -> None:
        self.kafka.open.discard(self)

    def answers(self, call: str) -> None:
        """Raise if the test has it so, once."""
        if call in self.kafka.refuse:
            self.kafka.refuse.remove(call)
            raise KafkaError(f"{call} is refused")


class Consumer(Client):
    """One that is told what to read."""

    def __init__(self, kafka: Kafka, config: Mapping[str, Any]) -> None:
        super().__init__(kafka, config)
        self._at_once = config.get("max_poll_records", 500)
        self._from_the_start = config.get("auto_offset_reset") == "earliest"
        self._committed_only = config.get("isolation_level") == "read_committed"
        self.at: dict[KafkaPythonPartition, int] = {}
        self.paused: set[KafkaPythonPartition] = set()

    def assignment(self) -> set[KafkaPythonPartition]:
        return set(self.at)

    def assign(self, hosts: Iterable[KafkaPythonPartition]) -> None:
        self.at = {host: self.at.get(host, 0) for host in hosts}

    def seek(self, host: KafkaPythonPartition, offset: int) -> None:
        assert host in self.at
        self.at[host] = offset

    def seek_to_beginning(self, *hosts: KafkaPythonPartition) -> None:
        self.at.update(dict.fromkeys(hosts, 0))

    def position(self, host: KafkaPythonPartition, timeout_ms: float | None = None) -> int:
        del timeout_ms
        return self.at[host]

    def pause(self, *hosts: KafkaPythonPartition) -> None:
        self.paused |= set(hosts)

    def resume(self, *hosts: KafkaPythonPartition) -> None:
        self.paused -= set(hosts)

    def partitions_for_topic(self, name: str) -> set[int] | None:
        return set(range(len(self.kafka.topics[name].logs))) if name in self.kafka.topics else None

    def topics(self) -> set[str]:
        return set(self.kafka.topics)

    def beginning_offsets(
        self, hosts: Iterable[KafkaPythonPartition], timeout_ms: float | None = None
    ) -> dict[KafkaPythonPartition, int]:
        del timeout_ms
        self.answers("offsets")
        return {host: self._begin(host) for host in hosts}

    def _begin(self, host: KafkaPythonPartition) -> int:
        log = self.kafka.topics[host.topic].logs[host.partition]
        return log[0].offset if log else 0

    def end_offsets(
        self, hosts: Iterable[KafkaPythonPartition], timeout_ms: float | None = None
    ) -> dict[KafkaPythonPartition, int]:
        del timeout_ms
        return {host: self._end(host) for host in hosts}

    def _end(self, host: KafkaPythonPartition) -> int:
        return self.kafka.stable_end(host) if self._committed_only else self.kafka.end(host)

    def poll(self, timeout_ms: int = 0) -> dict[KafkaPythonPartition, list[Record]]:
        del timeout_ms
        found = {}
        for host in self.at.keys() - self.paused:
            end = self.kafka.end(host)
            if not self._begin(host) <= self.at[host] <= end:
                # What brokers call out of range: the client puts its position back, and fetches from there later.
                self.at[host] = self._begin(host) if self._from_the_start else end
                continue
            log = self.kafka.topics[host.topic].logs[host.partition]
            # Each look at it reads the whole log.
            stable = self._end(host)
            read = [record for record in log if self.at[host] <= record.offset < stable][: self._at_once]
            records = [record for record in read if self.kafka.is_visible(record, committed=self._committed_only)]
            if read:
                self.at[host] = read[-1].offset + 1
            if records:
                found[host] = records
        return found


class Member(Consumer):
    """One whose group is the test, and whose name is given once."""

    generation_id = -1

    def __init__(self, kafka: Kafka, config: Mapping[str, Any]) -> None:
        super().__init__(kafka, config)
        self.member_id = f"member-{next(kafka._ids)}"

    def group_metadata(self) -> Member:
        return self

    def give(self, *partitions: int) -> None:
        hosts = [KafkaPythonPartition(topic, partition) for topic in sorted(self._names) for partition in partitions]
        self.at = {host: self.at.get(host, self.kafka.committed.get(host, 0)) for host in hosts}
        self.paused &= set(hosts)

    def subscribe(self, names: Sequence[str]) -> None:
        self._names = set(names)

    def subscription(self) -> set[str]:
        return self._names

    def committed(self, host: KafkaPythonPartition, timeout_ms: float) -> int | None:
        assert timeout_ms < 5000
        self.answers("committed")
        return self.kafka.committed.get(host)


class Membership:
    """What the coordinator, which is the test, knows of a member; a generation is over when another one begins."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def session_timeout_s(self) -> float:
        return 45.0

    def generation(self) -> int:
        return self._member.generation_id

    def confirm(self, _: float) -> bool:
        return self._member.generation_id == self._member.kafka.generation


class Sent:
    def __init__(self, kafka: Kafka, offset: int) -> None:
        self._kafka = kafka
        self.offset = offset

    def get(self, timeout_s: float) -> Sent:
        assert 0 <= timeout_s <= 60
        if "answer" in self._kafka.refuse:
            self._kafka.refuse.remove("answer")
            raise KafkaError("answer is refused")
        return self


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a record that brokers refuse."""

    error: KafkaError

    def get(self, timeout_s: float) -> Sent:
        assert timeout_s >= 0
        raise self.error


class Producer(Client):
    """A producer of one transactional ID."""

    def __init__(self, kafka: Kafka, config: Mapping[str, Any]) -> None:
        super().__init__(kafka, config)
        self._coordinator = kafka.coordinator
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
        self.kafka.end_transaction(self._id, "aborted")
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
        if self.kafka.before_send is not None:
            self.kafka.before_send(name, key)
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
        self.kafka.end_transaction(self._id, "committed")
        if "transaction answer" in self.kafka.refuse:
            self.kafka.refuse.remove("transaction answer")
            raise KafkaError("the answer is lost")

    def partitions_for(self, name: str) -> set[int]:
        return set(range(len(self.kafka.topics[name].logs)))


class Admin(Client):
    def describe_topics(self, names: Iterable[str]) -> list[dict[str, Any]]:
        self.answers("describe_topics")
        there, allowed = self.kafka.topics, sorted({"READ", "WRITE", "DESCRIBE"} - self.kafka.denied)
        return [
            {**there[name].described(name), "authorized_operations": allowed}
            if name in there
            else {"name": name, "error_code": 3}
            for name in names
        ]

    def create_topics(
        self, wanted: Mapping[str, Mapping[str, Any]], *, validate_only: bool = False, raise_errors: bool = True
    ) -> dict[str, Any]:
        if validate_only:
            assert not raise_errors
            return {"topics": [{"error_code": 0, "configs": {"min.insync.replicas": {"value": self.kafka.min_isr}}}]}
        for name, told in wanted.items():
            if told["replication_factor"] > self.kafka.brokers:
                self.kafka.brokers += "a broker returns" in self.kafka.refuse
                raise InvalidReplicationFactorError
            if name in self.kafka.topics:
                raise TopicAlreadyExistsError
            self.kafka.make(name, told["num_partitions"], told["configs"])
        return {}

    def create_partitions(self, wanted: Mapping[str, int]) -> None:
        if "ALTER" in self.kafka.denied:
            raise TopicAuthorizationFailedError
        for name, size in wanted.items():
            logs = self.kafka.topics[name].logs
            if len(logs) >= size:
                raise InvalidPartitionsError
            logs += [[] for _ in range(size - len(logs))]


def committed_values(kafka: Kafka, name: str) -> list[bytes | None]:
    """Return what readers of committed records find in a topic."""
    found: Sequence[Any] = [
        record for log in kafka.topics[name].logs for record in log if kafka.is_visible(record, committed=True)
    ]
    return [record.value for record in found]
