"""Our sticky assignors in one group with those of other clients, under the names they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from rackassign import RackAwareStickyAssignor
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.java.group_member import java_command
from tests.helpers.kafka.rack_group import RackGroup, moved

pytestmark = [pytest.mark.brokers, pytest.mark.local]

ONE_RACK_EACH = [[1], [2], [3]] * 2
EVERYWHERE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 4

Name = Callable[[], str]


@pytest.fixture
def mixed(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> Iterator[RackGroup]:
    with RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=ONE_RACK_EACH), ONE_RACK_EACH) as group:
        yield group


@pytest.fixture
def eager(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Name) -> Iterator[RackGroup]:
    with RackGroup(rack_cluster.bootstrap, unique_name(), make_topic(replicas=EVERYWHERE), EVERYWHERE) as group:
        yield group


Step = Callable[[RackGroup, Callable[[], None]], None]


@pytest.fixture
def step(late: Callable[[], int]) -> Step:
    """Let a member come or go: in as few rebalances as may be, and what comes of them is the best there is."""

    def step(group: RackGroup, change: Callable[[], None]) -> None:
        before, generation, late_before, most = group.rest(), group.generation(), late(), group.most_rounds(0)
        change()
        after = group.settle()
        assert group.generation() - generation <= max(most, group.most_rounds(0)) + late() - late_before
        group.check_best(before, after)

    return step


@pytest.mark.long
@pytest.mark.java
def test_ours_leads_a_java_member_home(mixed: RackGroup, step: Step) -> None:
    command = java_command()
    mixed.start("a")
    mixed.settle()
    step(mixed, lambda: mixed.start("b"))
    step(mixed, lambda: mixed.start_java("c", command, "CooperativeStickyAssignor"))
    assert mixed.local(mixed.settle()) == len(ONE_RACK_EACH)


@pytest.mark.long
@pytest.mark.java
def test_ours_follows_a_java_leader_and_leads_when_that_is_gone(
    mixed: RackGroup, step: Step, late: Callable[[], int]
) -> None:
    command = java_command()
    mixed.start_java("c", command, "CooperativeStickyAssignor")
    mixed.settle()
    mixed.start("a")
    mixed.rest()
    generation, late_before = mixed.generation(), late()
    mixed.start("b")
    mixed.settle()
    # Java's leader may take one more than ours.
    assert mixed.generation() - generation <= 1 + mixed.most_rounds(late() - late_before)

    step(mixed, lambda: mixed.end("c"))
    step(mixed, lambda: mixed.start_java("c", command, "CooperativeStickyAssignor"))
    assert mixed.local(mixed.settle()) == len(ONE_RACK_EACH)


def ours(group: RackGroup, name: str) -> None:
    group.start(name, partition_assignment_strategy=[RackAwareStickyAssignor])


def java(group: RackGroup, name: str) -> None:
    group.start_java(name, java_command(), "StickyAssignor")


def kafka_python(group: RackGroup, name: str) -> None:
    group.start(name, KafkaConsumer, partition_assignment_strategy=[StickyPartitionAssignor])


@pytest.mark.long
@pytest.mark.parametrize(
    ("leader", "follower"),
    [
        pytest.param(ours, kafka_python, id="ours leads kafka-python's"),
        # Not the other way round: kafka-python's reads nothing but its own user data, so ours is new to it each time.
        pytest.param(ours, java, id="ours leads Java's", marks=pytest.mark.java),
        pytest.param(java, ours, id="Java's leads ours", marks=[pytest.mark.java, pytest.mark.long]),
    ],
)
def test_an_eager_group_of_two_clients_moves_no_more_than_a_joiner_needs(
    eager: RackGroup, leader: Callable[[RackGroup, str], None], follower: Callable[[RackGroup, str], None]
) -> None:
    leader(eager, "a")
    eager.settle()
    follower(eager, "b")
    two = eager.settle()
    ours(eager, "c")
    three = eager.settle()
    eager.end("c")
    again = eager.settle()
    assert [sorted(map(len, owned.values())) for owned in (two, three, again)] == [[6, 6], [4, 4, 4], [6, 6]]
    assert moved(two, three) == 4
    assert moved(three, again) == 0


def test_kafka_pythons_eager_leader_serves_ours(eager: RackGroup) -> None:
    kafka_python(eager, "a")
    eager.settle()
    ours(eager, "b")
    ours(eager, "c")
    assert sorted(map(len, eager.settle().values())) == [4, 4, 4]
