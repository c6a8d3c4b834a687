"""What leaves partitions to nobody under kafka-python's own cooperative assignor, and does not under ours.

Each scenario is played with both, and in each the partitions are so laid out that nothing has to move: a member that
really gives something up joins again, and with its next claims the group would heal by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from rackassign import RackAwareConsumer, RackAwareCooperativeStickyAssignor, attach
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.assignment_recorder import Owned, settle
from tests.helpers.kafka.group_harness import at_rest
from tests.helpers.kafka.support import CONSUMER, wait_until
from tests.helpers.kafka.threaded_consumer import Service

pytestmark = [pytest.mark.brokers, pytest.mark.local]


@dataclass(frozen=True)
class Kind:
    """A way to be a cooperative member."""

    client: Callable[..., KafkaConsumer]
    strategy: Callable[[], Any] | None = None
    poll_ms: int = 1000
    """Long without our patches: a join that finishes between two polls is lost, which is another defect."""


OURS = Kind(RackAwareConsumer, poll_ms=100)
PLAIN = Kind(KafkaConsumer, lambda: RackAwareCooperativeStickyAssignor(rack="a"))
HOST = Kind(KafkaConsumer, CooperativeStickyAssignor)
MENDED = Kind(
    lambda *topics, **config: attach(KafkaConsumer(*topics, **config)), CooperativeStickyAssignor, poll_ms=100
)


class Stubborn(CooperativeStickyAssignor):  # type: ignore[misc] # kafka-python is untyped
    """Claims for ever what it had once. The host's own learns better with its next assignment, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self._ever: set[Any] = set()

    def on_assignment(self, assignment: Any, generation: int) -> None:
        super().on_assignment(assignment, generation)
        self._ever.update(assignment.partitions())
        self.member_assignment = sorted(self._ever)


STUBBORN = Kind(KafkaConsumer, Stubborn)

SOME = 5
"""Rebalances where claims are put right in a second round, and a member without our patches may lose one on top."""

OUR_WAYS = [
    # Here all that is claimed is true, and nothing is waited for in vain.
    pytest.param(OURS, OURS, 1, id="ours"),
    pytest.param(PLAIN, PLAIN, SOME, id="ours without attach"),
    pytest.param(OURS, HOST, SOME, id="ours leading the host's"),
    pytest.param(MENDED, MENDED, SOME, id="the host's, attached"),
]
"""Leader, the other members, and how many rebalances it may take."""

ATTEMPTS = 3
"""Of the host. A refresh of the metadata at the right moment makes its leader join once more, and that heals."""


class Outcome(NamedTuple):
    """Where a group is at rest after something happened to it."""

    unowned: int
    rebalances: int


class Stage:
    """A group of a test, and the admin client that watches it."""

    def __init__(self, bootstrap: str, group: str, make_topic: MakeTopic) -> None:
        self._bootstrap = bootstrap
        self.group = group
        self.make_topic = make_topic
        self._services: list[Service] = []
        self._opened = ExitStack()
        self.admin = self._opened.enter_context(closing(KafkaAdminClient(bootstrap_servers=bootstrap)))

    def start(self, kind: Kind, *topics: str, poll_ms: int | None = None, work_s: float = 0.0) -> Service:
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

        service = Service(make, poll_ms=kind.poll_ms if poll_ms is None else poll_ms, work_s=work_s)
        self._services.append(service)
        return self._opened.enter_context(service)

    def lead(self, kind: Kind, *topics: str) -> Service:
        """Start the first member and wait until the group is its own."""
        leader = self.start(kind, *topics)
        wait_until(lambda: leader.state.generation > 0, "a first member")
        return leader

    def settle(self, topics: Mapping[str, int], *services: Service) -> list[Owned]:
        """Wait until all of the topics, given with their numbers of partitions, are owned; return what each has."""
        settled = settle(self.admin, self.group, services, topics)
        return [settled[service.id] for service in services]

    def rest(self, *services: Service) -> list[Owned]:
        return at_rest(self.admin, self.group, services)

    def joined(self) -> int:
        return len(self.admin.describe_groups([self.group])[self.group]["members"])

    def close(self) -> None:
        for service in self._services:
            service.stop()
        self._opened.close()


def numbers(owned: Owned, topic: str) -> set[int]:
    return {place.partition for place in owned if place.topic == topic}


def expelled_beside_a_joiner(stage: Stage, lead: Kind, other: Kind) -> Outcome:
    """A member loses its membership and comes back in the very generation in which another one joins.

    It had four partitions.
    """
    topic, full = stage.make_topic(4), stage.make_topic(4)
    # It leads, has a topic for itself that fills it, and holds the door for the two others.
    leader = stage.lead(lead, topic, full)
    expelled = stage.start(other, topic)
    owned = stage.settle({topic: 4, full: 4}, leader, expelled)
    assert [numbers(each, topic) for each in owned] == [set(), {0, 1, 2, 3}]
    before = leader.state.generation
    with leader.held():
        stage.admin.remove_group_members(stage.group, [MemberToRemove(member_id=expelled.id)])
        joiner = stage.start(other, topic)
        wait_until(lambda: stage.joined() == 3, "both waiting for the leader")
    owned = stage.rest(leader, expelled, joiner)
    return Outcome(4 - sum(len(numbers(each, topic)) for each in owned), leader.state.generation - before)


def unsubscribed(stage: Stage, staying: Kind, leaving: Kind, *, leaver_leads: bool) -> Outcome:
    """A member subscribes to fewer topics than before.

    It had two partitions that should go to the other member.
    """
    dropped, kept, others = stage.make_topic(2), stage.make_topic(1), stage.make_topic(3)
    all_three, two = (dropped, kept, others), (dropped, kept)
    if leaver_leads:
        leaver = stage.lead(leaving, *two)
        stayer = stage.start(staying, *all_three)
    else:
        stayer = stage.lead(staying, *all_three)
        leaver = stage.start(leaving, *two)
    owned = stage.settle({dropped: 2, kept: 1, others: 3}, stayer, leaver)
    assert [numbers(each, dropped) for each in owned] == [set(), {0, 1}]
    before = leaver.state.generation
    leaver.do(lambda consumer: consumer.subscribe([kept]))
    wait_until(lambda: not numbers(leaver.assignment(), dropped), "a topic given up")
    owned = stage.rest(stayer, leaver)
    assert not numbers(owned[1], dropped)
    return Outcome(2 - len(numbers(owned[0], dropped)), leaver.state.generation - before)


def between_polls(stage: Stage, kind: Kind) -> Outcome:
    """Two members look for records and go on with their work at once: every join finishes between two polls.

    There are four partitions, and this is over when the members share them, or have long joined in vain.
    """
    topic = stage.make_topic(4)
    members = [stage.start(kind, topic, poll_ms=0, work_s=0.1) for _ in range(2)]

    def shared_or_in_vain() -> bool:
        for member in members:
            member.poll()
        shared = [len(member.assignment()) for member in members] == [2, 2]
        return shared or all(member.state.generation > 8 for member in members)

    wait_until(shared_or_in_vain, "a group that gets somewhere, or nowhere")
    owned = Owned().union(*(member.assignment() for member in members))
    return Outcome(4 - len(owned), members[0].state.generation)


Play = Callable[..., Outcome]
"""`play(scenario, *kinds, **how)` plays a scenario on a stage of its own."""


@pytest.fixture
def play(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Play:
    def play(scenario: Callable[..., Outcome], *kinds: Kind, **how: bool) -> Outcome:
        with closing(Stage(rack_cluster.bootstrap, unique_name(), make_topic)) as stage:
            return scenario(stage, *kinds, **how)

    return play


@pytest.mark.parametrize(("lead", "other", "rebalances"), OUR_WAYS)
def test_a_member_that_is_expelled_beside_a_joiner_leaves_nothing_unowned(
    play: Play, lead: Kind, other: Kind, rebalances: int
) -> None:
    outcome = play(expelled_beside_a_joiner, lead, other)
    assert outcome.unowned == 0
    assert outcome.rebalances <= rebalances


def test_a_member_that_is_expelled_beside_a_joiner_leaves_two_of_four_unowned_by_the_host(play: Play) -> None:
    assert any(play(expelled_beside_a_joiner, HOST, HOST).unowned == 2 for _ in range(ATTEMPTS))


@pytest.mark.parametrize(
    ("staying", "leaving", "rebalances"),
    [*OUR_WAYS, pytest.param(OURS, STUBBORN, SOME, id="ours leading a stubborn one")],
)
def test_a_follower_that_unsubscribes_leaves_nothing_unowned(
    play: Play, staying: Kind, leaving: Kind, rebalances: int
) -> None:
    outcome = play(unsubscribed, staying, leaving, leaver_leads=False)
    assert outcome.unowned == 0
    assert outcome.rebalances <= rebalances


@pytest.mark.parametrize("kind", [pytest.param(OURS, id="ours"), pytest.param(PLAIN, id="ours without attach")])
def test_a_leader_that_unsubscribes_leaves_nothing_unowned(play: Play, kind: Kind) -> None:
    assert play(unsubscribed, kind, kind, leaver_leads=True).unowned == 0


def test_a_follower_that_unsubscribes_leaves_what_it_had_unowned_by_the_host(play: Play) -> None:
    assert any(play(unsubscribed, HOST, HOST, leaver_leads=False).unowned == 2 for _ in range(ATTEMPTS))


def test_joins_that_finish_between_two_polls_leave_nothing_unowned(play: Play) -> None:
    assert play(between_polls, OURS).unowned == 0


def test_joins_that_finish_between_two_polls_leave_everything_unowned_by_the_host(play: Play) -> None:
    assert any(play(between_polls, HOST).unowned == 4 for _ in range(ATTEMPTS))
