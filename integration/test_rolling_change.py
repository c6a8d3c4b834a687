"""A running group moved from kafka-python's default strategy to ours, member by member, while records come in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import CommitFailedError, RebalanceInProgressError

from rackassign import RackAwareConsumer, RackAwareRangeAssignor, attach
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic

from .fleet import Owned, settle
from .support import CONSUMER, PATIENCE_S, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

pytestmark = pytest.mark.brokers

RACKS = ("a", "b", "c")
REPLICAS = [[1, 2], [2, 3], [3, 1]] * 3
RACK_OF_BROKER = {1: "a", 2: "b", 3: "c"}
MOST_RECORDS = 100_000
"""Of a test that goes wrong; one that goes well is over long before."""

Place = tuple[int, int]
"""Partition and offset."""


class Service:
    """A consumer as a service runs it: a thread that polls, processes and then commits."""

    def __init__(self, make: Callable[[], KafkaConsumer]) -> None:
        self.processed: set[Place] = set()
        self._make = make
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._state: tuple[str, Owned] = ("", frozenset())
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a consumer that does not close"
        self.poll()

    @property
    def id(self) -> str:
        return self._state[0]

    def poll(self) -> None:
        """Raise what has ended it, if anything; to poll is its own affair."""
        if self._error is not None:
            raise self._error

    def assignment(self) -> Owned:
        return self._state[1]

    def _run(self) -> None:
        try:
            with closing(self._make()) as consumer:
                while not self._ended.is_set():
                    self._work(consumer)
        except BaseException as error:  # noqa: BLE001 - raised again by poll(), on the test's thread
            self._error = error

    def _work(self, consumer: KafkaConsumer) -> None:
        polled = consumer.poll(timeout_ms=200)
        owned = frozenset(TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment())
        self._state = (str(consumer.group_metadata().member_id), owned)
        for tp, records in polled.items():
            self.processed.update((tp.partition, record.offset) for record in records)
        if polled:
            try:
                consumer.commit()
            except (CommitFailedError, RebalanceInProgressError):
                # A rebalance came between: whoever owns the partitions next processes these records again.
                return


class Traffic:
    """Records that keep coming, to all partitions in turn, until the `with` block ends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._sent: list[Any] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a producer that does not close"

    def wait_for_more(self) -> None:
        goal = len(self._sent) + 10 * len(REPLICAS)
        wait_until(lambda: len(self._sent) >= goal, "more records sent")

    def written(self) -> set[Place]:
        """Return the places of all records, once the block has ended; raise what kept one from being written."""
        written = [future.get(timeout=PATIENCE_S) for future in self._sent]
        return {(record.partition, record.offset) for record in written}

    def _run(self) -> None:
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap, acks="all")) as producer:
            while len(self._sent) < MOST_RECORDS and not self._ended.wait(0.005):
                partition = len(self._sent) % len(REPLICAS)
                self._sent.append(producer.send(self._topic, b"x", partition=partition))


class Rollout:
    """A group with one service in each rack, replaced one at a time."""

    def __init__(self, bootstrap: str, group: str, topic: str, admin: KafkaAdminClient) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._admin = admin
        self._running: dict[str, tuple[ExitStack, Service]] = {}
        self._services: list[Service] = []

    def traffic(self) -> Traffic:
        return Traffic(self._bootstrap, self._topic)

    def start(self, rack: str, client: type[KafkaConsumer]) -> None:
        opened = ExitStack()
        # Also the old members get the remedies: without keep_finished_join one may be silent from its start on, by
        # chance, and the strategy has no part in that.
        service = Service(lambda: attach(self._consumer(rack, client)))
        self._services.append(service)
        self._running[rack] = opened, opened.enter_context(service)

    def _consumer(self, rack: str, client: type[KafkaConsumer]) -> KafkaConsumer:
        # The default of ours is cooperative, which is another way, and two restarts.
        ours = {"partition_assignment_strategy": [RackAwareRangeAssignor]} if client is RackAwareConsumer else {}
        return client(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            # Members are ordered by their ids, which begin with this, and range is greedy: in another order it may
            # leave the last one a partition of another rack.
            client_id=f"rack-{rack}",
            client_rack=rack,
            **ours,
            **CONSUMER,
        )

    def stop(self, rack: str) -> None:
        opened, _ = self._running.pop(rack)
        opened.close()

    def settle(self) -> dict[str, set[int]]:
        """Wait until everything is owned exactly once; return the partitions by rack."""
        services = {rack: service for rack, (_, service) in self._running.items()}
        settled = settle(self._admin, self._group, list(services.values()), {self._topic: len(REPLICAS)})
        return {rack: {place.partition for place in settled[service.id]} for rack, service in services.items()}

    def processed(self) -> set[Place]:
        for _, service in self._running.values():
            service.poll()
        return set[Place]().union(*(service.processed.copy() for service in self._services))

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for opened, _ in self._running.values():
                all_of_them.push(opened)


@pytest.fixture
def rollout(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[Rollout]:
    topic = make_topic(replicas=REPLICAS)
    admin = KafkaAdminClient(bootstrap_servers=rack_cluster.bootstrap)
    with closing(admin), closing(Rollout(rack_cluster.bootstrap, unique_name(), topic, admin)) as made:
        yield made


def local(owned: dict[str, set[int]]) -> int:
    near = [{RACK_OF_BROKER[broker] for broker in replicas} for replicas in REPLICAS]
    return sum(rack in near[partition] for rack, partitions in owned.items() for partition in partitions)


def test_a_running_group_is_moved_over_member_by_member_and_loses_nothing(rollout: Rollout) -> None:
    for rack in RACKS:
        rollout.start(rack, KafkaConsumer)
    assert local(rollout.settle()) == 6
    with rollout.traffic() as traffic:
        for rack in RACKS:
            rollout.stop(rack)
            rollout.settle()
            traffic.wait_for_more()
            rollout.start(rack, RackAwareConsumer)
            moved = rollout.settle()
            traffic.wait_for_more()
        assert local(moved) == 9

        rollout.stop("b")
        rollout.start("b", KafkaConsumer)
        rollout.settle()
        traffic.wait_for_more()
    written = traffic.written()
    wait_until(lambda: rollout.processed() >= written, "every record processed")
