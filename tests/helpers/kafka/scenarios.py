"""What leaves partitions unowned, unread or moved in vain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from rackassign import RackAwareConsumer, RackChangePolicy
from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, Owned, settle, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.rack_group import at_rest
from tests.helpers.kafka.threaded_consumer import ThreadedConsumer
from tests.helpers.machine_speed import scaled_ms, scaled_s


@dataclass(frozen=True)
class Kind:
    """A way to be a cooperative member."""

    client: Callable[..., KafkaConsumer]
    strategy: Callable[[], Any] | None = None
    poll_ms: int = field(default_factory=lambda: scaled_ms(1000))
    """Long without our patches: a join that finishes between two polls is lost, which is another defect, and on a busy
    machine a join takes long."""


OURS = Kind(RackAwareConsumer, poll_ms=100)

HOST = Kind(KafkaConsumer, CooperativeStickyAssignor)


class Outcome(NamedTuple):
    """Where a group is at rest after something happened to it."""

    unowned: int
    rebalances: int


class ScenarioGroup:
    """A group of a test, and the admin client that watches it."""

    def __init__(self, bootstrap: str, group: str, make_topic: MakeTopic) -> None:
        self._bootstrap = bootstrap
        self.group = group
        self.make_topic = make_topic
        self._services: list[ThreadedConsumer] = []
        self._opened = ExitStack()
        self.admin = self._opened.enter_context(closing(KafkaAdminClient(bootstrap_servers=bootstrap)))

    def start(self, kind: Kind, *topics: str) -> ThreadedConsumer:
        def make() -> KafkaConsumer:
            strategy = {"partition_assignment_strategy": [kind.strategy()]} if kind.strategy else {}
            return kind.client(
                *topics,
                bootstrap_servers=self._bootstrap,
                group_id=self.group,
                client_rack="a",
                **CONSUMER,
                **strategy,
            )

        service = ThreadedConsumer(make, poll_ms=kind.poll_ms)
        self._services.append(service)
        return self._opened.enter_context(service)

    def lead(self, kind: Kind, *topics: str) -> ThreadedConsumer:
        """Start the first member and wait until the group is its own."""
        leader = self.start(kind, *topics)
        wait_until(lambda: leader.state.generation > 0, "a first member")
        return leader

    def settle(self, topics: Mapping[str, int], *services: ThreadedConsumer) -> list[Owned]:
        """Wait until all of the topics, given with their numbers of partitions, are owned; return what each has."""
        return settle(self.admin, self.group, services, topics)

    def rest(self, *services: ThreadedConsumer) -> list[Owned]:
        return at_rest(self.admin, self.group, services)

    def close(self) -> None:
        for service in self._services:
            service.stop()
        self._opened.close()


def numbers(owned: Owned, topic: str) -> set[int]:
    return {place.partition for place in owned if place.topic == topic}


def unsubscribed(stage: ScenarioGroup, staying: Kind, leaving: Kind) -> Outcome:
    """A member that does not lead subscribes to fewer topics than before.

    It had two partitions that should go to the other member.
    """
    dropped, kept, others = stage.make_topic(2), stage.make_topic(1), stage.make_topic(3)
    all_three, two = (dropped, kept, others), (dropped, kept)
    stayer = stage.lead(staying, *all_three)
    leaver = stage.start(leaving, *two)
    owned = stage.settle({dropped: 2, kept: 1, others: 3}, stayer, leaver)
    assert [numbers(each, dropped) for each in owned] == [set(), {0, 1}]
    assert stage.rest(stayer, leaver) == owned
    before = leaver.state.generation
    leaver.do(lambda consumer: consumer.subscribe([kept]))
    wait_until(lambda: not numbers(leaver.assignment(), dropped), "a topic given up")
    owned = stage.rest(stayer, leaver)
    assert not numbers(owned[1], dropped)
    return Outcome(2 - len(numbers(owned[0], dropped)), leaver.state.generation - before)


class MalformedMetadataAssignor(RangePartitionAssignor):  # type: ignore[misc] # kafka-python is untyped
    """Sends whatever bytes it is given."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def metadata(self, topics: object) -> bytes:
        del topics
        return self._data


_VALID_SUBSCRIPTION = encode_subscription(Subscription(("t",), b"", {}, 1, "rack"))

MALFORMED_SUBSCRIPTIONS = {
    "rack cut off": _VALID_SUBSCRIPTION[:-2],
    "no bytes at all": b"",
    "topic not UTF-8": _VALID_SUBSCRIPTION.replace(b"\0\1t", b"\0\1\xff"),
    "illegal topic name": encode_subscription(Subscription(("bad topic/!",))),
}

LEADER, FOLLOWER = 2, 1
"""In rack b, and in the reader's rack a."""

BATCHES = 60


def fill(cluster: Cluster, topic: str, batches: int) -> None:
    """Write batches of one record each."""
    with closing(KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0)) as producer:
        for _ in range(batches):
            producer.send(topic, bytes(1000), partition=0).get(TIMEOUT_S)


def read(consumer: KafkaConsumer, count: int) -> None:
    seen = 0

    def all_read() -> bool:
        nonlocal seen
        seen += sum(map(len, consumer.poll(timeout_ms=100).values()))
        return seen >= count

    wait_until(all_read, f"{count} records")


SOON = RackChangePolicy(min_change_duration_s=scaled_s(0.5), min_interval_s=scaled_s(2.0))
"""Much less than a broker takes to start, so that no change goes unnoticed for its shortness."""

LASTING = RackChangePolicy(min_change_duration_s=scaled_s(6.0), min_interval_s=scaled_s(120.0))
"""For tests that count what a reassignment triggers: it must be over before the monitor acts. On a busy machine brokers
take more than a second from one partition to the next, and what is seen for as long as `SOON` is one half of it."""

WATCHER = "rackassign.clients.kafka_python.watcher"
