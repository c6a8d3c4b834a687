"""Members with state in a simulated world, which a test plays by hand: it writes records, lets time pass, and looks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaError
from kafka.record.memory_records import MemoryRecordsBuilder

from rackassign.errors import RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.strategies.standby import StandbyOptions
from tests.simulation import aiokafka_clients, kafka_python, threads
from tests.simulation.cluster import NEWEST, Partition
from tests.simulation.member import GROUP, MemberOptions
from tests.simulation.stand_ins import installed
from tests.simulation.stateful_member import StatefulMember
from tests.simulation.stateful_scripts import committed_values
from tests.simulation.transactions import TransactionalCluster
from tests.simulation.watchers import Watchers
from tests.simulation.world import World

FIRST = TopicPartition("t", 0)
LOG = f"{GROUP}-t-changelog"


class StoppedError(BaseException):
    """As who cancels something raises it."""


EXPECTED = (RackassignError, KafkaError, ArithmeticError, OSError, ValueError, StoppedError)
"""What members raise: their own errors, those of brokers, and what functions of tests have raised."""


def count(_: Any, store: StateStore) -> None:
    store.put(b"n", b"%d" % (int(store.get(b"n") or 0) + 1))


class Played(StatefulMember):
    """A member with state that a test has configured; it commits with each poll unless told otherwise."""

    def __init__(self, given: Mapping[str, Any], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._given = given
        self.raised: list[BaseException] = []
        self.todo: list[Callable[[StatefulConsumer], object]] = []
        self.poll_ms = 500
        # Records that its polls have processed.
        self.done = 0

    def application(self) -> None:
        try:
            self.stateful = self._make()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.raised.append(error)
            return
        self.consumer = self.stateful.consumer
        while not self.stopping:
            try:
                while self.todo:
                    self.todo.pop(0)(self.stateful)
                self.done += self.stateful.poll(self.poll_ms)
            except (Exception, StoppedError) as error:  # noqa: BLE001 - the test looks at it
                self.raised.append(error)
            self.sleep(0.01)
        self.stateful.close()

    def _make(self) -> StatefulConsumer:
        options: dict[str, Any] = {
            "process": count,
            "commit_interval_ms": 0,
            "standbys": StandbyOptions(num_standby_replicas=0),
            # Otherwise each connection begins with a list of all requests.
            "api_version": NEWEST,
            "bootstrap_servers": "broker:9001",
            **self.client_options(),
        }
        return StatefulConsumer(*self.topics, state_dir=self.folder, **{**options, **self._given})

    def counted(self, partition: int = 0) -> int:
        return int(self.items(partition).get(b"n", 0))

    def items(self, partition: int = 0) -> dict[bytes, bytes]:
        return dict(self.stateful.store((min(self.topics), partition)).items())


class _Watchers(Watchers):
    """Owners alone are watched: what members with state commit is compared with their states."""

    def committed(self, *_: Any) -> None: ...


class Brokers(TransactionalCluster):
    """Brokers that refuse what a test has them refuse."""

    def __init__(self, *arguments: Any) -> None:
        # Errors of records by their topic; whether topics may be extended, and whether producers may begin.
        self.refused: dict[str, int] = {}
        self.extends = self.begins = True
        super().__init__(*arguments)

    def _on_InitProducerId(self, link: Any, request: Any, new: Any, reply: Any) -> None:  # noqa: N802
        if self.begins:
            super()._on_InitProducerId(link, request, new, reply)

    def _appended(self, partition: Partition, transactional_id: str | None, data: bytes) -> tuple[int, int, int]:
        error = self.refused.get(partition.topic)
        return super()._appended(partition, transactional_id, data) if error is None else (error, -1, -1)

    def _on_CreatePartitions(self, link: Any, request: Any, new: Any, reply: Any) -> None:  # noqa: N802
        if self.extends:
            super()._on_CreatePartitions(link, request, new, reply)
        else:
            reply(new(results=[new.CreatePartitionsTopicResult(each.name, 29, None) for each in request.topics]))


class Stage:
    """A cluster with three brokers, and members of one group."""

    def __init__(self, folder: Path, **topics: int) -> None:
        self.folder, self.world = folder, World(noise=False)
        self.watchers = _Watchers(self.world, once=False)
        self.members: list[Played] = []
        self.cluster = Brokers(self.world, "abc", self.watchers, topics or {"t": 2})

    @contextmanager
    def set(self) -> Iterator[Stage]:
        parts = (module.replacements(self.world) for module in (kafka_python, aiokafka_clients, threads))
        with installed(self.world, chain(*parts)):
            # Tests look at what members log, with tracebacks or not.
            logger = logging.getLogger("rackassign")
            logger.propagate, logger.handlers = True, []
            yield self
            raised = [error for member in self.members for error in member.raised]
            assert all(isinstance(error, EXPECTED) for error in raised), raised
            for member in self.members:
                if not member.dead:
                    member.kill()

    def start(self, place: str = "1", *topics: str, **given: Any) -> Played:
        """Start a member, and let it begin."""
        others = sum(not each.dead and not each.ended for each in self.watchers.members)
        member = self.launch(place, *topics, **given)
        # So long until the first one reads, and until another one owns something.
        self.run(5.0 if others else 1.5)
        return member

    def launch(self, place: str = "1", *topics: str, **given: Any) -> Played:
        name = f"m{place}#{len(self.watchers.members)}"
        folder, rack = self.folder / place, "abc"[len(self.watchers.members) % 3]
        member = Played(
            given, folder, self.world, name, self.cluster, self.watchers, MemberOptions(), rack, topics or ("t",)
        )
        self.watchers.members.append(member)
        self.members.append(member)
        member.start()
        return member

    def stop(self, member: Played) -> None:
        member.stopping = True
        self.run(1.0)
        assert member.ended

    def stop_after(self, member: Played, seconds: float = 2.0) -> None:
        self.run(seconds)
        self.stop(member)

    def run(self, seconds: float = 1.5) -> None:
        self.world.run(self.world.now + seconds)
        assert not self.world.problems, self.world.problems

    def log(self, topic: str, partition: int = 0) -> Partition:
        return self.cluster.topics[topic][partition]

    def feed(self, number: int = 1, partition: int = 0, topic: str = "t") -> None:
        self.cluster.produce(topic, partition, number)

    def write(
        self, topic: str, key: bytes | None, value: bytes | None = b"", *, at_ms: int = 0, n: int = 0, headers: Any = ()
    ) -> None:
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
        builder.append(timestamp=at_ms, key=key, value=value, headers=headers)
        builder.close()
        self.log(topic, n).append(bytes(builder.buffer()))

    def remake(self, topic: str, partitions: int = 2) -> None:
        """Delete a topic and make it again, with another ID: that of a topic is its place among all."""
        topics = self.cluster.topics
        for index in range(len(topics.get(topic, ()))):
            self.cluster.logs.pop((topic, index), None)
        kept = [(f"former-{n}" if name == topic else name, each) for n, (name, each) in enumerate(topics.items())]
        topics.clear()
        topics.update(kept)
        topics[topic] = []
        self.cluster.add_partitions(topic, partitions)

    def cut(self, topic: str, batches: int) -> None:
        """Let another leader go on with the first batches of a partition only, as unclean elections do."""
        partition = self.log(topic)
        del partition.batches[batches:]
        partition.leader = next(node for node in partition.replicas if node != partition.leader)
        partition.epoch += 1
        self.cluster.logs.pop((topic, 0), None)

    def values(self, topic: str) -> list[bytes]:
        return [value for each in self.cluster.topics[topic] for value in committed_values(self.cluster, each)]

    def committed(self) -> dict[tuple[str, int], int]:
        return {tp: found.offset for tp, found in self.cluster.groups[GROUP].offsets.items()}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path).set() as made:
        yield made
