"""As much of Kafka, in memory, as a member with state needs: topics that can be cut, deleted and made anew."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)

from rackassign.stateful import _active_tasks as active_tasks
from rackassign.stateful import _changelog_client as changelog
from rackassign.stateful import _changelog_topics as changelog_topics
from rackassign.stateful import _output as output
from rackassign.stateful import _stateful_consumer as consumer

Headers = Sequence[tuple[str, bytes]]


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
    transaction: Any = None
    """The transaction it belongs to (`fakes.transactions`)."""


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
class Kafka:
    """The cluster, and what its clients are told to do."""

    topics: dict[str, Topic] = field(default_factory=dict)
    committed: dict[KafkaPythonPartition, int] = field(default_factory=dict)
    open: set[Client] = field(default_factory=set)
    before_send: Callable[[str, bytes, Headers], None] | None = None
    refuse: list[str] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    generation: int = -1
    rebalancing: bool = False
    late: bool = False
    """Whether records are written and not acknowledged yet."""
    brokers: int = 2
    min_isr: str = "1"
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
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
        patch.setattr(changelog, "KafkaConsumer", lambda **config: Consumer(self, self._told("reader", config)))
        patch.setattr(changelog, "install", lambda *_: None)
        patch.setattr(changelog, "KafkaProducer", lambda **config: Producer(self, self._told("producer", config)))
        for module in (changelog_topics, output):
            patch.setattr(module, "KafkaAdminClient", lambda **config: Admin(self, self._told("admin", config)))
        patch.setattr(changelog_topics, "topic_configs", self._topic_configs)
        patch.setattr(active_tasks, "membership_of", Membership)
        patch.setattr(consumer, "RackAwareConsumer", lambda **config: Member(self, self._told("consumer", config)))
        patch.setattr(changelog, "_GROW_S", 0.0)
        patch.setattr(active_tasks, "_AGAIN_S", 0.0)
        # Ends are looked at with each poll.
        patch.setattr(consumer, "_ENDS_S", 0.0)
        return self

    def _told(self, client: str, config: dict[str, Any]) -> dict[str, Any]:
        """Keep what a client is configured with."""
        self.settings[client] = config
        return config

    def _topic_configs(self, _: Admin, names: Iterable[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        return {name: {key: self.topics[name].configs[key] for key in keys} for name in names}


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


@dataclass
class Answer:
    """What becomes of a commit."""

    is_done: bool = True
    exception: KafkaError | None = None

    def failed(self) -> bool:
        return self.exception is not None


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

    def commit_async(self, offsets: Mapping[KafkaPythonPartition, Any], callback: object) -> Answer:
        assert callable(callback)
        answer = Answer(is_done=not self.kafka.rebalancing)
        try:
            if not self.kafka.rebalancing:
                self.commit(offsets)
        except KafkaError as error:
            answer.exception = error
        return answer

    def commit(self, offsets: Mapping[KafkaPythonPartition, Any], timeout_ms: float = 0) -> None:
        assert timeout_ms < 5000
        self.answers("commit")
        self.kafka.committed.update({host: told.offset for host, told in offsets.items()})


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

    @property
    def is_done(self) -> bool:
        return not self._kafka.late

    def get(self, timeout_s: float) -> Sent:
        assert 0 <= timeout_s <= 60
        if "answer" in self._kafka.refuse:
            self._kafka.refuse.remove("answer")
            raise KafkaError("answer is refused")
        return self


class Producer(Client):
    def send(self, name: str, *, value: bytes | None, key: bytes, headers: Headers, partition: int) -> Sent:
        if self.kafka.before_send is not None:
            self.kafka.before_send(name, key, headers)
        return Sent(self.kafka, self.kafka.append(name, partition, key, value, headers))

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
