"""Consumers on confluent-kafka in real groups, and what their tests share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Offset
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.clients.confluent import RackAwareConsumer
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S
from tests.helpers.kafka.consumers import CONSUMER

PARTITIONS = 6
RACKS = ("a", "b", "c")
TWO_EACH = [[1, 2], [2, 3], [3, 1]] * 2
"""Replicas, of which each rack has four."""

OUT = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
"""What a commit is refused with by those who are not in the group any more."""

TopicPartitions = frozenset[TopicPartition]


def to_tps(partitions: Sequence[Any]) -> TopicPartitions:
    return frozenset(TopicPartition(each.topic, each.partition) for each in partitions)


class RecordingConsumer:
    """A consumer that writes down in one list what it is told and what it is given."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str], rack: str = "a", **more: Any) -> None:
        assignors = more.pop("assignors", None)
        callbacks = {"on_commit", "stats_cb"}
        dotted = {name if name in callbacks else name.replace("_", "."): value for name, value in more.items()}
        self.consumer = RackAwareConsumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": CONSUMER["heartbeat_interval_ms"],
                "session.timeout.ms": CONSUMER["session_timeout_ms"],
                "topic.metadata.refresh.interval.ms": 1000,
                "statistics.interval.ms": 200,
                **dotted,
            },
            assignors=assignors,
        )
        self.journal: list[tuple[str, Any]] = []
        self.consumer.subscribe(topics, self.on_assign, self.on_revoke, self.on_lost)

    def on_assign(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
        assert consumer is self.consumer
        self.journal.append(("assign", to_tps(partitions)))

    def on_revoke(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
        # What is revoked is still here, and may be committed.
        assert to_tps(partitions) <= to_tps(consumer.assignment())
        self.journal.append(("revoke", to_tps(partitions)))

    def on_lost(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
        assert not to_tps(partitions) & to_tps(consumer.assignment())
        self.journal.append(("lost", to_tps(partitions)))

    def take(self, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        assert message.error() is None, message.error()
        assert topic is not None
        assert partition is not None
        self.journal.append(("record", (TopicPartition(topic, partition), message.offset())))

    def consume(self, timeout: float = 0.05) -> int:
        """Consume once; return how many records there were so far."""
        for message in self.consumer.consume(1000, timeout):
            self.take(message)
        return len(self.recorded("record"))

    def poll(self, timeout: float = 0.05) -> int:
        """Poll once; return how many records there were so far."""
        message = self.consumer.poll(timeout)
        if message is not None:
            self.take(message)
        return len(self.recorded("record"))

    def owned(self) -> TopicPartitions:
        return to_tps(self.consumer.assignment())

    def recorded(self, what: str) -> list[Any]:
        return [thing for kind, thing in self.journal if kind == what]

    def read(self) -> Counter[tuple[TopicPartition, int]]:
        return Counter(self.recorded("record"))

    def check(self) -> None:
        """Fail if anything came of a partition that was not there, or not in the order of its offsets."""
        tenures: dict[TopicPartition, int | None] = {}
        for kind, thing in self.journal:
            if kind == "assign":
                assert not thing & set(tenures), f"assigned twice: {thing}"
                tenures |= dict.fromkeys(thing)
            elif kind in {"revoke", "lost"}:
                assert thing <= set(tenures), f"{kind}: {thing} of {tenures}"
                for place in thing:
                    del tenures[place]
            elif kind == "record":
                place, offset = thing
                assert place in tenures, f"{place} at {offset} without having it"
                assert tenures[place] in {None, offset}, f"{place} at {offset}, not {tenures[place]}"
                tenures[place] = offset + 1


class CommittingConsumer(RecordingConsumer):
    """Commits what it has processed, while it is being revoked too."""

    def on_revoke(self, consumer: RackAwareConsumer, partitions: list[Offset]) -> None:
        super().on_revoke(consumer, partitions)
        if any(place in to_tps(partitions) for place, _ in self.recorded("record")):
            try:
                ours = to_tps(consumer.commit(asynchronous=False) or [])
            except KafkaException as error:
                # The client commits from time to time by itself, and may just have.
                if error.args[0].code() != KafkaError._NO_OFFSET:
                    raise
            else:
                assert to_tps(partitions) & ours


@contextmanager
def services(*makers: Callable[[], RecordingConsumer]) -> Iterator[list[RecordingConsumer]]:
    with ExitStack() as opened:
        made = []
        for make in makers:
            service = make()
            opened.callback(service.consumer.close)
            made.append(service)
        yield made


def sharing(members: Sequence[RecordingConsumer], topic: str, partitions: int = PARTITIONS) -> Callable[[], bool]:
    """Let each consume a little at every look; true once all have as many, and all of the topic."""

    def look() -> bool:
        for member in members:
            member.consume()
        owned = [member.owned() for member in members]
        whole = sorted(place for each in owned for place in each)
        return whole == all_of(topic, partitions) and len({*map(len, owned)}) == 1

    return look


def all_of(topic: str, partitions: int = PARTITIONS) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(partitions)]


def fill(cluster: Cluster, topic: str, each: int, partitions: int = PARTITIONS) -> None:
    """Add so many records to each partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for number in range(each * partitions):
        producer.produce(topic, b"x" * 100, partition=number % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def committed(cluster: Cluster, group: str, topic: str, partitions: int = PARTITIONS) -> list[int]:
    with closing(KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=group)) as asking:
        return [asking.committed(KafkaPythonPartition(topic, p)) or 0 for p in range(partitions)]
