"""What a runner writes into the state file, and what it plans again; `tests/simulation` runs it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.model import Broker, TopicPartition
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import ExecutionResult, Journal, ReassignmentRequest, ReplicaMove, operations
from rackassign.reassignment.operations import rolled_back_state, updated_state
from rackassign.reassignment.partition_execution import Replicas

TP = TopicPartition("t", 0)
MOVES = {TP: ReplicaMove((1, 2), (1, 3))}
ADMIN: Any = object()


def test_what_remains_of_a_request_is_planned_again_for_its_own_partitions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting, other = TopicPartition("t", 1), TopicPartition("u", 0)
    journal = Journal("c", ReassignmentRequest(replication_factor=2), MOVES, {waiting: (1, -1)})
    moves = {waiting: ReplicaMove((1,), (1, 2)), other: ReplicaMove((1,), (1, 2))}
    again = SimpleNamespace(journal=replace(journal, moves=moves, waiting={other: (1, -1)}))
    monkeypatch.setattr(operations, "prepare", lambda *_: again)
    remaining = operations.prepare_remaining(ADMIN, journal, PlacementState())
    assert remaining is not None
    assert (remaining.moves, remaining.waiting) == ({**MOVES, waiting: moves[waiting]}, {})
    again.journal = replace(again.journal, moves={other: moves[other]})
    assert operations.prepare_remaining(ADMIN, journal, PlacementState()) is None


def test_a_request_without_anything_is_the_default_one() -> None:
    assert ReassignmentRequest.read({}) == ReassignmentRequest()


def test_replicas_that_wait_for_a_broker_are_in_the_state_file_until_they_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations, "list_brokers", lambda _: [Broker(1, "a")])
    waiting, failed = TopicPartition("t", 1), TopicPartition("t", 2)
    journal = Journal("c", moves=MOVES, waiting=dict.fromkeys((waiting, failed), (1, -1)))
    outcome = ExecutionResult((TP,), {failed: "stopped"}, 1)
    state = updated_state(ADMIN, PlacementState(plans={TP: (1, -1)}), journal, outcome)
    assert (state.plans, set(state.brokers), state.cluster) == ({waiting: (1, -1)}, {1}, "c")


@pytest.mark.parametrize(
    ("request_", "move", "waiting", "known", "after_rollback"),
    [
        # A replication factor has added placeholders, whether some were served or not.
        (ReassignmentRequest(replication_factor=3), None, (1, -1, -2), (1, -1, -2), ()),
        (ReassignmentRequest(replication_factor=3), ReplicaMove((1,), (1, 3)), (1, 3, -1), (1, 3, -1), ()),
        # They were there before the plan.
        (ReassignmentRequest(), None, (1, -1, -2), (1, -1, -2), (1, -1, -2)),
        (ReassignmentRequest(), ReplicaMove((1,), (1, 3)), None, (), (1, -1)),
        (ReassignmentRequest(), ReplicaMove((1,), (1, 3)), (1, 3, -1), (1, 3, -1), (1, -1, -2)),
        (None, ReplicaMove((1,), (1, 3)), None, (), ()),
    ],
)
def test_a_rollback_restores_the_placeholders_of_before_the_plan(
    request_: ReassignmentRequest | None,
    move: ReplicaMove | None,
    waiting: Replicas | None,
    known: Replicas,
    after_rollback: Replicas,
) -> None:
    moves, rows = {} if move is None else {TP: move}, {} if waiting is None else {TP: waiting}
    journal, outcome = Journal("c", request_, moves, rows, phase="applied"), ExecutionResult(tuple(moves), {}, 1)
    state = PlacementState(plans={TP: known} if known else {}, cluster="c")
    assert rolled_back_state(state, journal, outcome).plans == ({TP: after_rollback} if after_rollback else {})
    # The state of another cluster stays as it is.
    another = replace(state, cluster="another")
    assert rolled_back_state(another, journal, outcome) == another
