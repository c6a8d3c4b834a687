"""A group with members in several racks that changes while records keep coming."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer

from rackassign import RackAwareConsumer, attach
from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, TopicPartition, Topology
from rackassign.strategies import plan_sticky
from rackassign.testing.harness import GroupHarness, Owned, Traffic, assigned, wait_until
from tests.helpers.java.group_member import JavaMember
from tests.helpers.kafka.assignment_recorder import State
from tests.helpers.kafka.consumers import CONSUMER, PROPERTIES
from tests.helpers.kafka.threaded_consumer import KillableConsumer, ThreadedConsumer
from tests.helpers.machine_speed import scaled_s

_QUIET_S: float = scaled_s(2 * CONSUMER["metadata_max_age_ms"] / 1000)
"""Enough for some heartbeats, with which members learn of a rebalance, and for a refresh of the metadata."""

_QUIET_POLLS = 3
"""Of each member of this process. A member that is not scheduled for seconds looks at rest: the first of these polls
may have begun before that, and the last takes up what has been received by then."""

_UNKNOWN = -2
"""In place of the generation of a member of Java; -1 is that of a member that has not joined."""

RACK_OF_BROKER = {1: "a", 2: "b", 3: "c"}

Ownership = Mapping[str, Owned]
"""What each member has, by its name."""

AnyMember = ThreadedConsumer | KillableConsumer | JavaMember


def moved(before: Ownership, after: Ownership) -> int:
    """Return how many partitions left a member that is still there."""
    return sum(len(before.get(name, Owned()) - owned) for name, owned in after.items())


class RackGroup(GroupHarness[AnyMember]):
    """Members by name, each in the rack that its name begins with."""

    def __init__(self, bootstrap: str, group: str, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        super().__init__({"bootstrap_servers": bootstrap}, group, {topic: len(replicas)})
        self.bootstrap = bootstrap
        self.topic = topic
        self.replicas = replicas
        self._ever: list[ThreadedConsumer | KillableConsumer] = []

    def start(
        self,
        name: str,
        client: Callable[..., KafkaConsumer] = RackAwareConsumer,
        *,
        patched: bool = True,
        **config: Any,
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

        self._add_recorded(name, ThreadedConsumer(make, poll_ms=200))

    def start_killable(self, name: str) -> None:
        self._add_recorded(name, KillableConsumer(self.bootstrap, self.group, self.topic, name[0]))

    def start_java(self, name: str, command: Sequence[str], assignor: str) -> None:
        config = {
            **PROPERTIES,
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.rack": name[0],
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}",
        }
        self.add(name, JavaMember(command, [self.topic], config))

    def _add_recorded(self, name: str, member: ThreadedConsumer | KillableConsumer) -> None:
        self.add(name, member)
        self._ever.append(member)

    def recorded(self) -> dict[str, ThreadedConsumer | KillableConsumer]:
        """Return the members that record their assignments."""
        return {name: member for name, member in self.members.items() if not isinstance(member, JavaMember)}

    def threaded(self) -> dict[str, ThreadedConsumer]:
        return {name: member for name, member in self.members.items() if isinstance(member, ThreadedConsumer)}

    def generation(self) -> int:
        return max(member.state.generation for member in self.recorded().values())

    def local(self, owned: Ownership) -> int:
        """Return how many partitions have a replica in their reader's rack."""
        near = [{RACK_OF_BROKER[broker] for broker in replicas} for replicas in self.replicas]
        return sum(name[0] in near[tp.partition] for name, tps in owned.items() for tp in tps)

    def check_best(self, before: Ownership, after: Ownership) -> None:
        """Hold balance, locality and the number of partitions that moved against the optimum."""
        numbers = {name: tuple(sorted(tp.partition for tp in owned)) for name, owned in before.items()}
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

    def rest(self) -> dict[str, Owned]:
        """Wait until the group is at rest, and return which partitions each member has."""
        owned = at_rest(self.admin, self.group, list(self.members.values()))
        assert sorted(tp for tps in owned for tp in tps) == [
            TopicPartition(self.topic, p) for p in range(len(self.replicas))
        ]
        return dict(zip(self.members, owned, strict=True))

    def most_rounds(self, late: int) -> int:
        """Return how many rebalances a change may take: two, and one for each time that a member was late.

        Members in other processes do not tell whether they were late, and one more is allowed for all of them.
        """
        return 2 + late + (len(self.threaded()) < len(self.members))

    def traffic(self) -> Traffic:
        return Traffic(self.client_config, [self.topic])

    def processed(self) -> set[tuple[TopicPartition, int]]:
        """Return what all have processed, those that have left too."""
        for member in self.members.values():
            member.poll()
        return {(record.tp, record.offset) for member in self._ever for record in member.records.copy()}


def at_rest(admin: KafkaAdminClient, group: str, members: Sequence[AnyMember]) -> list[Owned]:
    """Wait until each has what the coordinator gave it, and nobody means to join again; return what each has.

    Nothing is asked of what that is. A group that has come to rest stays as it is until something happens to it, so
    what nobody owns then, nobody gets.
    """
    seen: list[State] = []
    since = time.monotonic()
    polls = _polls(members)

    def look() -> bool:
        nonlocal since
        for member in members:
            member.poll()
        states = [_state(member) for member in members]
        generations = {state.generation for state in states} - {_UNKNOWN}
        resting = all(state.resting for state in states) and len(generations) <= 1
        if not resting or states != seen or assigned(admin, group) != {state.id: state.owned for state in states}:
            seen[:] = states
            since = time.monotonic()
            polls[:] = _polls(members)
        polled = all(now - then >= _QUIET_POLLS for then, now in zip(polls, _polls(members), strict=True))
        return polled and time.monotonic() - since >= _QUIET_S

    try:
        wait_until(look, f"{group} at rest")
    except TimeoutError as error:
        raise TimeoutError(f"{error}; members see {seen}; the coordinator gave {assigned(admin, group)}") from None
    return [state.owned for state in seen]


def _state(member: AnyMember) -> State:
    if isinstance(member, JavaMember):
        return State(member.id, _UNKNOWN, bool(member.id), member.assignment())
    return member.state


def _polls(members: Sequence[AnyMember]) -> list[int]:
    return [member.polls for member in members if isinstance(member, ThreadedConsumer)]
