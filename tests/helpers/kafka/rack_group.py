"""A group of services that changes while records keep coming."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from rackassign import RackAwareConsumer, attach
from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import plan_sticky
from tests.helpers.java.group_member import JavaMember
from tests.helpers.kafka.assignment_recorder import Owned, given, settle
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.threaded_consumer import KillableConsumer, PartitionOffset, State, ThreadedConsumer
from tests.helpers.kafka.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_RECORDS = 100_000
"""Of a test that goes wrong; one that goes well is over long before."""

_QUIET_S: float = 4 * CONSUMER["heartbeat_interval_ms"] / 1000
"""Enough for some heartbeats, with which members learn of a rebalance, and for a refresh of the metadata."""


_JAVA = {
    "auto.offset.reset": CONSUMER["auto_offset_reset"],
    "enable.auto.commit": "false",
    "heartbeat.interval.ms": str(CONSUMER["heartbeat_interval_ms"]),
    "session.timeout.ms": str(CONSUMER["session_timeout_ms"]),
}

RACK_OF_BROKER = {1: "a", 2: "b", 3: "c"}

Ownership = Mapping[str, Owned]
"""What each member has, by its name."""

AnyMember = TypeVar("AnyMember", ThreadedConsumer, KillableConsumer, JavaMember)


def moved(before: Ownership, after: Ownership) -> int:
    """Return how many partitions left a member that is still there."""
    return sum(len(before.get(name, Owned()) - owned) for name, owned in after.items())


class GroupHarness:
    """Members by name, each in the rack that its name begins with.

    Args:
        bootstrap: Of the cluster.
        group: The group's name.
        topic: That all subscribe to.
        replicas: Of each of its partitions.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.replicas = replicas
        self.members: dict[str, ThreadedConsumer | KillableConsumer | JavaMember] = {}
        self._open: dict[str, ExitStack] = {}
        self._ever: list[ThreadedConsumer | KillableConsumer] = []

    def __enter__(self) -> Self:
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        return self

    def renew_admin(self) -> None:
        """Take a new admin client: one takes its first coordinator for the coordinator for ever, wherever it is."""
        self.admin.close()
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def __exit__(self, *_: object) -> None:
        with closing(self.admin), ExitStack() as all_of_them:
            for opened in self._open.values():
                all_of_them.push(opened)

    def start(
        self, name: str, client: type[KafkaConsumer] = RackAwareConsumer, *, patched: bool = True, **config: Any
    ) -> None:
        def make() -> KafkaConsumer:
            consumer = client(
                self.topic,
                bootstrap_servers=self.bootstrap,
                group_id=self.group,
                client_rack=name[0],
                **{**CONSUMER, **config},
            )
            # Any member gets the patches: without them one may be silent from its start on, by chance, and a join
            # that finishes between two polls is lost.
            return attach(consumer) if patched else consumer

        self._ever.append(self._enter(name, ThreadedConsumer(make, poll_ms=200 if patched else 1000)))

    def start_killable(self, name: str) -> None:
        self._ever.append(self._enter(name, KillableConsumer(self.bootstrap, self.group, self.topic, name[0])))

    def start_java(self, name: str, command: Sequence[str], assignor: str) -> None:
        config = {
            **_JAVA,
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.rack": name[0],
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}",
        }
        self._enter(name, JavaMember(command, [self.topic], config))

    def _enter(self, name: str, member: AnyMember) -> AnyMember:
        opened = self._open[name] = ExitStack()
        self.members[name] = opened.enter_context(member)
        return member

    def end(self, name: str) -> None:
        """Kill a `KillableConsumer`; close any other member."""
        del self.members[name]
        self._open.pop(name).close()

    def noted(self) -> dict[str, ThreadedConsumer | KillableConsumer]:
        """Return the members that record their assignments."""
        return {name: member for name, member in self.members.items() if not isinstance(member, JavaMember)}

    def services(self) -> dict[str, ThreadedConsumer]:
        return {name: member for name, member in self.members.items() if isinstance(member, ThreadedConsumer)}

    def settle(self) -> dict[str, Owned]:
        """Wait until everything is owned exactly once and all agree on it; return what each has, by name."""
        settled = settle(self.admin, self.group, list(self.members.values()), {self.topic: len(self.replicas)})
        return {name: settled[member.id] for name, member in self.members.items()}

    def generation(self) -> int:
        return max(member.state.generation for member in self.noted().values())

    def local(self, owned: Ownership) -> int:
        """Return how many partitions have a replica in their reader's rack."""
        near = [{RACK_OF_BROKER[broker] for broker in replicas} for replicas in self.replicas]
        return sum(name[0] in near[place.partition] for name, places in owned.items() for place in places)

    def check_best(self, before: Ownership, after: Ownership) -> None:
        """Hold balance, locality and the number of partitions that moved against the optimum."""
        numbers = {name: tuple(sorted(place.partition for place in owned)) for name, owned in before.items()}
        group = Group(
            Topology(
                tuple(Broker(broker, rack) for broker, rack in RACK_OF_BROKER.items()),
                {self.topic: tuple(Partition(tuple(replicas), replicas[0]) for replicas in self.replicas)},
            ),
            tuple(
                Member(member.id, frozenset({self.topic}), name[0], owned={self.topic: numbers.get(name, ())})
                for name, member in self.members.items()
            ),
        )
        best = plan_sticky(group)
        loads = [sum(map(len, owned.values())) for owned in best.target.values()]
        assert sorted(map(len, after.values())) == sorted(loads)
        assert self.local(after) == Locality.of(group, best).local
        assert moved(before, after) == best.moved

    def traffic(self) -> Traffic:
        return Traffic(self.bootstrap, self.topic, len(self.replicas))

    def processed(self) -> set[PartitionOffset]:
        """Return what all have processed, those that have left too."""
        for member in self.members.values():
            member.poll()
        return set[PartitionOffset]().union(*(member.processed.copy() for member in self._ever))


def at_rest(admin: KafkaAdminClient, group: str, services: Sequence[ThreadedConsumer]) -> list[Owned]:
    """Wait until each has what the coordinator gave it, and nobody means to join again; return what each has.

    Nothing is asked of what that is. A group that has come to rest stays as it is until something happens to it, so
    what nobody owns then, nobody gets.
    """
    seen: list[State] = []
    since = time.monotonic()

    def look() -> bool:
        nonlocal since
        for service in services:
            service.poll()
        states = [service.state for service in services]
        resting = all(state.resting for state in states) and len({state.generation for state in states}) == 1
        if not resting or states != seen or given(admin, group) != {state.id: state.owned for state in states}:
            seen[:] = states
            since = time.monotonic()
        return time.monotonic() - since >= _QUIET_S

    try:
        wait_until(look, f"{group} at rest")
    except AssertionError as error:
        raise AssertionError(f"{error}; members see {seen}; the coordinator gave {given(admin, group)}") from None
    return [state.owned for state in seen]


class Traffic:
    """Records that keep coming, to all partitions in turn, until the `with` block ends."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partition_count
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
        goal = len(self._sent) + 5 * self._partitions
        wait_until(lambda: len(self._sent) >= goal, "more records sent")

    def written(self) -> set[PartitionOffset]:
        """Return the places of all records, once the block has ended; raise what kept one from being written."""
        written = [future.get(timeout=PATIENCE_S) for future in self._sent]
        return {(record.partition, record.offset) for record in written}

    def _run(self) -> None:
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap, acks="all")) as producer:
            while len(self._sent) < MOST_RECORDS and not self._ended.wait(0.005):
                self._sent.append(producer.send(self._topic, b"x", partition=len(self._sent) % self._partitions))
