"""What leaves partitions to nobody under kafka-python's own cooperative assignor, and does not under ours.

Each scenario is played with both, and in each the partitions are so laid out that nothing has to move: a member that
really gives something up joins again, and with its next claims the group would heal by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from rackassign import RackAwareCooperativeStickyAssignor, attach
from rackassign.testing import Cluster
from rackassign.testing.harness import Owned, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.scenarios import (
    HOST,
    OURS,
    Kind,
    Outcome,
    ScenarioGroup,
    expelled_beside_a_joiner,
    unsubscribed,
)
from tests.helpers.machine_speed import scaled_s

pytestmark = [pytest.mark.brokers, pytest.mark.local]

PLAIN = Kind(KafkaConsumer, lambda: RackAwareCooperativeStickyAssignor(rack="a"))
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
    pytest.param(PLAIN, PLAIN, SOME, id="ours without attach", marks=pytest.mark.release),
    pytest.param(OURS, HOST, SOME, id="ours leading the host's", marks=pytest.mark.long),
    pytest.param(MENDED, MENDED, SOME, id="the host's, attached", marks=pytest.mark.long),
]
"""Leader, the other members, and how many rebalances it may take."""

ATTEMPTS = 10
"""Of the host. A refresh of the metadata at the right moment makes its leader join once more, and that heals."""


def between_polls(stage: ScenarioGroup, kind: Kind) -> Outcome:
    """Two members look for records and go on with their work at once: every join finishes between two polls.

    There are four partitions, and this is over when the members share them, or have long joined in vain.
    """
    topic = stage.make_topic(4)
    # On a slow machine a join takes longer, and the work must be longer than a join.
    members = [stage.start(kind, topic, poll_ms=0, work_s=scaled_s(0.1)) for _ in range(2)]

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
        with closing(ScenarioGroup(rack_cluster.bootstrap, unique_name(), make_topic)) as stage:
            return scenario(stage, *kinds, **how)

    return play


@pytest.mark.parametrize(("lead", "other", "rebalances"), OUR_WAYS)
def test_a_member_that_is_expelled_beside_a_joiner_leaves_nothing_unowned(
    play: Play, lead: Kind, other: Kind, rebalances: int
) -> None:
    outcome = play(expelled_beside_a_joiner, lead, other)
    assert outcome.unowned == 0
    assert outcome.rebalances <= rebalances


@pytest.mark.long
def test_a_member_that_is_expelled_beside_a_joiner_leaves_two_of_four_unowned_by_the_host(play: Play) -> None:
    assert any(play(expelled_beside_a_joiner, HOST, HOST).unowned == 2 for _ in range(ATTEMPTS))


@pytest.mark.long
@pytest.mark.parametrize(
    ("staying", "leaving", "rebalances"),
    [*OUR_WAYS, pytest.param(OURS, STUBBORN, SOME, id="ours leading a stubborn one", marks=pytest.mark.release)],
)
def test_a_follower_that_unsubscribes_leaves_nothing_unowned(
    play: Play, staying: Kind, leaving: Kind, rebalances: int
) -> None:
    outcome = play(unsubscribed, staying, leaving, leaver_leads=False)
    assert outcome.unowned == 0
    assert outcome.rebalances <= rebalances


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", [pytest.param(OURS, id="ours"), pytest.param(PLAIN, id="ours without attach", marks=pytest.mark.release)]
)
def test_a_leader_that_unsubscribes_leaves_nothing_unowned(play: Play, kind: Kind) -> None:
    assert play(unsubscribed, kind, kind, leaver_leads=True).unowned == 0


@pytest.mark.long
def test_a_follower_that_unsubscribes_leaves_what_it_had_unowned_by_the_host(play: Play) -> None:
    assert any(play(unsubscribed, HOST, HOST, leaver_leads=False).unowned == 2 for _ in range(ATTEMPTS))


def test_joins_that_finish_between_two_polls_leave_nothing_unowned(play: Play) -> None:
    assert play(between_polls, OURS).unowned == 0


@pytest.mark.long
def test_joins_that_finish_between_two_polls_leave_everything_unowned_by_the_host(play: Play) -> None:
    assert any(play(between_polls, HOST).unowned == 4 for _ in range(ATTEMPTS))
