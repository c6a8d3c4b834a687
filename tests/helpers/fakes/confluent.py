"""A consumer on confluent-kafka with both of its clients played."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import create_autospec

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Offset

from rackassign.clients.confluent._commits import Commits
from rackassign.clients.confluent._config import ConsumerConfig
from rackassign.clients.confluent._delivery import StallDetector
from rackassign.clients.confluent._fetcher import PartitionFetcher
from rackassign.clients.confluent._group_member import GroupMember
from rackassign.clients.confluent._rebalance import Callbacks, RebalanceHandler
from rackassign.clients.kafka_python.internals.group_member import CommittedOffset, MemberAssignment, RevocationRequired
from rackassign.model import TopicPartition
from rackassign.racks import BrokerRackCache

GROUP = {"bootstrap.servers": "one:9092,two:9092", "group.id": "g"}
ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))


def message(place: TopicPartition, offset: int, error: KafkaError | None = None) -> Message[Any, Any]:
    """Return a message as librdkafka delivers it; early versions of confluent-kafka let nothing else make one."""
    methods = {"topic": place.topic, "partition": place.partition, "offset": offset, "error": error}
    made = create_autospec(Message, instance=True, spec_set=True)
    made.leader_epoch.return_value = None
    for name, value in methods.items():
        getattr(made, name).return_value = value
    return cast("Message[Any, Any]", made)


@dataclass
class Source:
    """librdkafka's consumer, as far as the reader needs it; like it, it refuses every call once it is closed."""

    reading: dict[TopicPartition, int] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    delivered: dict[TopicPartition, int] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    coming: list[list[Any] | BaseException] = field(default_factory=list)
    """What each call returns: messages, and functions that are called in it; or raises, with the messages it took."""
    asked: list[int] = field(default_factory=list)

    def consume(self, most: int, wait_s: float) -> list[Any]:
        self._maybe_fail("consume")
        self.asked.append(most)
        batch = self.coming.pop(0) if self.coming else []
        if not batch:
            time.sleep(wait_s)
        taken = []
        for each in batch.args[0] if isinstance(batch, BaseException) else batch:
            if callable(each):
                each()
                continue
            taken.append(each)
            if each.error() is None:
                self.delivered[TopicPartition(each.topic(), each.partition())] = each.offset() + 1
        if isinstance(batch, BaseException):
            raise batch
        assert len(taken) <= most
        return taken

    def poll(self, wait_s: float) -> Any:
        return next(iter(self.consume(1, wait_s)), None)

    def _maybe_fail(self, call: str) -> None:
        if self.closed:
            raise RuntimeError("Consumer closed")
        if call in self.failing:
            raise KafkaException(KafkaError(self.failing.pop(call), call))

    def incremental_assign(self, partitions: Sequence[Offset]) -> None:
        self._maybe_fail("incremental_assign")
        for each in partitions:
            place = TopicPartition(each.topic, each.partition)
            assert place not in self.reading
            self.reading[place] = each.offset

    def incremental_unassign(self, partitions: Sequence[Offset]) -> None:
        self._maybe_fail("incremental_unassign")
        for each in partitions:
            del self.reading[TopicPartition(each.topic, each.partition)]
            self.delivered.pop(TopicPartition(each.topic, each.partition), None)

    def assignment(self) -> list[Offset]:
        return [Offset(*place) for place in self.reading]

    def unassign(self) -> None:
        self._maybe_fail("unassign")
        self.reading.clear()
        self.delivered.clear()

    def position(self, partitions: Sequence[Offset]) -> list[Offset]:
        self._maybe_fail("position")
        return [
            Offset(each.topic, each.partition, self.delivered.get(TopicPartition(each.topic, each.partition), -1001))
            for each in partitions
        ]

    def close(self) -> None:
        self.closed = True

    def seek(self, partition: Offset) -> None:
        self._maybe_fail("seek")
        self.reading[TopicPartition(partition.topic, partition.partition)] = partition.offset

    def pause(self, partitions: Sequence[Offset]) -> None:
        self._maybe_fail("pause")
        self.paused |= {TopicPartition(each.topic, each.partition) for each in partitions}

    def resume(self, partitions: Sequence[Offset]) -> None:
        self._maybe_fail("resume")
        self.paused -= {TopicPartition(each.topic, each.partition) for each in partitions}


@dataclass
class Member:
    """kafka-python's consumer, as far as the others need it."""

    known: Mapping[TopicPartition, CommittedOffset] | None = field(default_factory=dict)
    coming: list[MemberAssignment | RevocationRequired] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)
    is_lost: bool = False
    end: int = 0
    polls: int = 0
    refusing: KafkaException | None = None
    given: MemberAssignment | None = None
    pending: list[Any] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    racks: BrokerRackCache = field(default_factory=BrokerRackCache)

    def subscribe(self, topics: Sequence[str]) -> None:
        self.log.append(("subscribe", list(topics)))

    def check_topics(self, topics: Sequence[str]) -> None:
        GroupMember.check_topics(topics)

    def needs_rejoin_for(self, _topics: Sequence[str]) -> bool:
        return False

    def leave(self) -> None:
        self.log.append("left")

    def close(self, _wait_s: float) -> None:
        self.log.append("closed")

    def poll(self, _wait_s: float) -> None:
        self.polls += 1
        if self.coming:
            match self.coming.pop(0):
                case MemberAssignment() as given:
                    self.given = given
                case RevocationRequired() as due:
                    raise due

    def take_new_assignment(self) -> MemberAssignment | None:
        given, self.given = self.given, None
        return given

    def acknowledge_revocation(self, partitions: Any) -> None:
        self.log.append(("given up", frozenset(partitions)))

    def lost(self) -> bool:
        return self.is_lost

    def rebalance_pending(self) -> bool:
        return bool(self.coming)

    def committed(self, _places: Any, _timeout_ms: float) -> Mapping[TopicPartition, CommittedOffset] | None:
        return self.known

    def end_offsets(self, places: Any, _wait_s: float) -> Mapping[TopicPartition, int]:
        self.log.append(("ends", set(places)))
        return dict.fromkeys(places, self.end)

    def commit(self, offsets: Any, _wait_s: float) -> None:
        if self.refusing is not None:
            raise self.refusing
        self.log.append(("commit", {place: offset for place, (offset, _, _) in offsets.items()}))

    def run_commit_callbacks(self) -> None:
        for done, error in self.answers:
            done(error)
        self.answers = []

    def commit_async(self, offsets: Any, done: Any) -> None:
        self.pending.append(done)
        self.log.append(("later", {place: offset for place, (offset, _, _) in offsets.items()}))


class ConsumerHarness:
    """All of it together, but for what is played."""

    def __init__(self, **given: Any) -> None:
        self.sources: list[Source] = []
        self.member = Member()
        dotted = {name if name == "on_commit" else name.replace("_", "."): value for name, value in given.items()}
        properties = ConsumerConfig.of({**GROUP, "auto.offset.reset": "earliest", **dotted})
        self.reader = PartitionFetcher(self.make, properties.start, Source)  # type: ignore[arg-type]
        self.commits = Commits(self.member, self.reader, properties)  # type: ignore[arg-type]
        self.now = 0.0
        self.stalls = StallDetector(properties.queue, lambda: self.now)
        self.rebalances = RebalanceHandler(self, self.member, self.reader, self.commits, self.stalls)  # type: ignore[arg-type]
        self.rebalances.callbacks = Callbacks(self.recorder("assign"), self.recorder("revoke"), self.recorder("lost"))

    def make(self) -> Any:
        self.sources.append(Source())
        return self.source

    @property
    def source(self) -> Source:
        """The newest."""
        return self.sources[-1]

    def recorder(self, what: str) -> Any:
        def callback(consumer: object, partitions: list[Offset]) -> None:
            assert consumer is self
            self.member.log.append((what, {each.partition for each in partitions}))

        return callback

    def give(self, *owned: TopicPartition, member_id: str = "m", generation: int = 1) -> list[Any]:
        return self.play(MemberAssignment(generation, member_id, frozenset(owned)))

    def play(self, *coming: MemberAssignment | RevocationRequired) -> list[Any]:
        """Serve until all has come; return what was told and committed."""
        self.member.coming += coming
        before = len(self.member.log)
        self.rebalances.serve(0)
        while self.member.coming:
            self.rebalances.serve(0)
        return self.member.log[before:]
