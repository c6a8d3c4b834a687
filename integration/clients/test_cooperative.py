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
from rackassign.testing.harness import Owned, Traffic, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.rack_group import Ownership, RackGroup
from tests.helpers.kafka.threaded_consumer import ThreadedConsumer

pytestmark = [pytest.mark.brokers, pytest.mark.local]

ONE_RACK_EACH = [[1], [2], [3]] * 6
TWO_RACKS_EACH = [[1, 2], [2, 3], [3, 1]] * 3

MakeGroup = Callable[[Sequence[Sequence[int]]], RackGroup]


@pytest.fixture
def make_group(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> MakeGroup:
    return lambda replicas: RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=replicas), replicas)


class Mark(NamedTuple):
    """Where a member stands in its partitions, and how much it has processed."""

    positions: dict[TopicPartition, int]
    processed: int


def mark(member: ThreadedConsumer) -> Mark:
    def look(consumer: KafkaConsumer) -> Mark:
        positions = {TopicPartition(tp.topic, tp.partition): consumer.position(tp) for tp in consumer.assignment()}
        return Mark(positions, len(member.records))

    return member.do(look)


def beyond_committed(consumer: KafkaConsumer) -> bool:
    """Tell whether in each of its partitions it stands where a reset to what is committed would be seen."""
    return all(consumer.position(tp) > (consumer.committed(tp) or 0) for tp in consumer.assignment())


def check_two_phases(group: RackGroup, before: Ownership, since: int) -> None:
    """Nothing is given twice in a generation, nor before the one who has it has been told to give it up."""
    rounds: dict[int, dict[str, Owned]] = {}
    for name, member in group.recorded().items():
        for generation, owned in member.given:
            if generation > since:
                rounds.setdefault(generation, {})[name] = owned
    held = {tp: name for name in group.members for tp in before.get(name, ())}
    for _, given in sorted(rounds.items()):
        taken = [(tp, name) for name, owned in given.items() for tp in owned]
        assert len(dict(taken)) == len(taken)
        assert all(held.get(tp, name) == name for tp, name in taken)
        held = {tp: name for tp, name in held.items() if name not in given} | dict(taken)


def check_kept(member: ThreadedConsumer, before: Mark, kept: Owned) -> None:
    """What a member kept it has read on: no record twice, none left out."""
    after = mark(member)
    read = member.records[before.processed : after.processed]
    for tp in kept:
        offsets = [record.offset for record in read if record.tp == tp]
        assert offsets == list(range(before.positions[tp], after.positions[tp]))


@contextmanager
def change(group: RackGroup, traffic: Traffic, late: Callable[[], int]) -> Iterator[None]:
    """Hold what comes of a change against what is best, and what it does to members on the way against nothing."""
    before, generation, late_before = group.rest(), group.generation(), late()
    most = group.most_rounds(0)
    members = group.threaded()
    for member in members.values():
        member.commits = False
        wait_until(lambda member=member: member.do(beyond_committed), "something uncommitted")  # type: ignore[misc]
    marks = {name: mark(member) for name, member in members.items()}
    yield
    after = group.settle()
    traffic.wait_for_more()
    assert group.settle() == after
    assert group.generation() - generation <= most + late() - late_before
    check_two_phases(group, before, generation)
    group.check_best(before, after)
    for name in group.members.keys() & marks.keys():
        kept = before[name] & after[name]
        assert kept
        check_kept(members[name], marks[name], kept)
        members[name].commits = True


def leader_of(group: RackGroup) -> str:
    return next(name for name, member in group.threaded().items() if member.do(lambda c: c._coordinator._is_leader))


@pytest.mark.release
def test_a_group_lives_through_joins_leaves_and_a_kill(make_group: MakeGroup, late: Callable[[], int]) -> None:
    with make_group(ONE_RACK_EACH) as group:
        for name in ("a1", "a2", "b1", "b2", "c1"):
            group.start(name)
        group.settle()
        group.start_killable("c2")
        with group.traffic() as traffic:
            six = group.settle()
            assert group.local(six) == len(ONE_RACK_EACH)
            group.check_best(six, six)
            with change(group, traffic, late):
                group.start("a3")
            with change(group, traffic, late):
                group.end(next(name for name in ("b1", "b2") if name != leader_of(group)))
            with change(group, traffic, late):
                group.end(leader_of(group))
            with change(group, traffic, late):
                group.end("c2")
        written = traffic.written()
        wait_until(lambda: group.processed() >= written, "every record processed")


def protocols(group: RackGroup) -> set[tuple[str, RebalanceProtocol]]:
    """Return by what strategy each member goes, and whether it gives up everything for a rebalance."""

    def look(consumer: KafkaConsumer) -> tuple[str, RebalanceProtocol]:
        return consumer._coordinator._generation.protocol, consumer._coordinator._rebalance_protocol

    return {member.do(look) for member in group.threaded().values()}


@pytest.mark.long
def test_a_running_group_goes_from_the_default_strategies_to_cooperative_in_two_rolling_restarts(
    make_group: MakeGroup,
) -> None:
    def restart(client: type[KafkaConsumer], **config: Any) -> None:
        """Replace the members one by one; nothing may be without an owner once the group has settled."""
        for name in ("a", "b", "c"):
            group.end(name)
            group.settle()
            traffic.wait_for_more()
            group.start(name, client, **config)
            group.settle()
            traffic.wait_for_more()

    with make_group(TWO_RACKS_EACH) as group:
        for name in ("a", "b", "c"):
            group.start(name, KafkaConsumer)
        group.settle()
        assert protocols(group) == {("range", RebalanceProtocol.EAGER)}
        with group.traffic() as traffic:
            both: list[Any] = [RackAwareCooperativeStickyAssignor, RangePartitionAssignor]
            restart(RackAwareConsumer, partition_assignment_strategy=both)
            assert protocols(group) == {("cooperative-sticky", RebalanceProtocol.EAGER)}
            restart(RackAwareConsumer)
            assert protocols(group) == {("cooperative-sticky", RebalanceProtocol.COOPERATIVE)}
            owned = group.settle()
            assert group.local(owned) == len(TWO_RACKS_EACH)
            group.check_best(owned, owned)
        written = traffic.written()
        wait_until(lambda: group.processed() >= written, "every record processed")
