"""A cooperative group on three racks through its life, and the way to it from kafka-python's default strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.range import RangePartitionAssignor

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor
from rackassign.model import TopicPartition
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.assignment_recorder import Owned
from tests.helpers.kafka.group_harness import GroupHarness, Ownership, Traffic
from tests.helpers.kafka.threaded_consumer import ThreadedConsumer
from tests.helpers.kafka.waiting import wait_until

pytestmark = pytest.mark.brokers

ONE_RACK_EACH = [[1], [2], [3]] * 6
TWO_RACKS_EACH = [[1, 2], [2, 3], [3, 1]] * 3

MakeTeam = Callable[[Sequence[Sequence[int]]], GroupHarness]


@pytest.fixture
def make_team(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> MakeTeam:
    return lambda replicas: GroupHarness(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas)


class Mark(NamedTuple):
    """Where a member stands in its partitions, and how much it has processed."""

    positions: dict[TopicPartition, int]
    processed: int


def mark(service: ThreadedConsumer) -> Mark:
    def look(consumer: KafkaConsumer) -> Mark:
        positions = {TopicPartition(tp.topic, tp.partition): consumer.position(tp) for tp in consumer.assignment()}
        return Mark(positions, len(service.processed))

    return service.do(look)


def beyond_committed(consumer: KafkaConsumer) -> bool:
    """Tell whether in each of its partitions it stands where a reset to what is committed would be seen."""
    return all(consumer.position(tp) > (consumer.committed(tp) or 0) for tp in consumer.assignment())


def check_two_phases(team: GroupHarness, before: Ownership, since: int) -> None:
    """Nothing is given twice in a generation, nor before the one who has it has been told to give it up."""
    rounds: dict[int, dict[str, Owned]] = {}
    for name, member in team.noted().items():
        for generation, owned in member.given:
            if generation > since:
                rounds.setdefault(generation, {})[name] = owned
    held = {place: name for name in team.members for place in before.get(name, ())}
    for _, given in sorted(rounds.items()):
        taken = [(place, name) for name, owned in given.items() for place in owned]
        assert len(dict(taken)) == len(taken)
        assert all(held.get(place, name) == name for place, name in taken)
        held = {place: name for place, name in held.items() if name not in given} | dict(taken)


def check_kept(service: ThreadedConsumer, before: Mark, kept: Owned) -> None:
    """What a member kept it has read on: no record twice, none left out."""
    after = mark(service)
    read = service.processed[before.processed : after.processed]
    for place in kept:
        offsets = [offset for partition, offset in read if partition == place.partition]
        assert offsets == list(range(before.positions[place], after.positions[place]))


@contextmanager
def change(team: GroupHarness, traffic: Traffic) -> Iterator[None]:
    """Hold what comes of a change against what is best, and what it does to members on the way against nothing."""
    before, generation = team.settle(), team.generation()
    services = team.services()
    for service in services.values():
        service.commits = False
        wait_until(lambda service=service: service.do(beyond_committed), "something uncommitted")  # type: ignore[misc]
    marks = {name: mark(service) for name, service in services.items()}
    yield
    after = team.settle()
    traffic.wait_for_more()
    assert team.settle() == after
    assert team.generation() - generation <= 2
    check_two_phases(team, before, generation)
    team.check_best(before, after)
    for name in team.members.keys() & marks.keys():
        kept = before[name] & after[name]
        assert kept
        check_kept(services[name], marks[name], kept)
        services[name].commits = True


def leader_of(team: GroupHarness) -> str:
    return next(name for name, service in team.services().items() if service.do(lambda c: c._coordinator._is_leader))


def test_a_group_lives_through_joins_leaves_and_a_kill(make_team: MakeTeam) -> None:
    with make_team(ONE_RACK_EACH) as team:
        for name in ("a1", "a2", "b1", "b2", "c1"):
            team.start(name)
        team.settle()
        team.start_killable("c2")
        with team.traffic() as traffic:
            six = team.settle()
            assert team.local(six) == len(ONE_RACK_EACH)
            team.check_best(six, six)
            with change(team, traffic):
                team.start("a3")
            with change(team, traffic):
                team.end(next(name for name in ("b1", "b2") if name != leader_of(team)))
            with change(team, traffic):
                team.end(leader_of(team))
            with change(team, traffic):
                team.end("c2")
        written = traffic.written()
        wait_until(lambda: team.processed() >= written, "every record processed")


def protocols(team: GroupHarness) -> set[tuple[str, RebalanceProtocol]]:
    """Return by what strategy each member goes, and whether it gives up everything for a rebalance."""

    def look(consumer: KafkaConsumer) -> tuple[str, RebalanceProtocol]:
        return consumer._coordinator._generation.protocol, consumer._coordinator._rebalance_protocol

    return {service.do(look) for service in team.services().values()}


def test_a_running_group_goes_from_the_default_strategies_to_cooperative_in_two_rolling_restarts(
    make_team: MakeTeam,
) -> None:
    def restart(client: type[KafkaConsumer], **config: Any) -> None:
        """Replace the members one by one; nothing may be without an owner once the group has settled."""
        for name in ("a", "b", "c"):
            team.end(name)
            team.settle()
            traffic.wait_for_more()
            team.start(name, client, **config)
            team.settle()
            traffic.wait_for_more()

    with make_team(TWO_RACKS_EACH) as team:
        for name in ("a", "b", "c"):
            team.start(name, KafkaConsumer)
        team.settle()
        assert protocols(team) == {("range", RebalanceProtocol.EAGER)}
        with team.traffic() as traffic:
            both: list[Any] = [RackAwareCooperativeStickyAssignor, RangePartitionAssignor]
            restart(RackAwareConsumer, partition_assignment_strategy=both)
            assert protocols(team) == {("cooperative-sticky", RebalanceProtocol.EAGER)}
            restart(RackAwareConsumer)
            assert protocols(team) == {("cooperative-sticky", RebalanceProtocol.COOPERATIVE)}
            owned = team.settle()
            assert team.local(owned) == len(TWO_RACKS_EACH)
            team.check_best(owned, owned)
        written = traffic.written()
        wait_until(lambda: team.processed() >= written, "every record processed")
