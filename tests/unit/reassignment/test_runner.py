"""A plan file applied and rolled back by a program: no command line, a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackassign.model import Broker, TopicPartition
from rackassign.placement import state_file
from rackassign.reassignment import (
    ExecutionLimits,
    Journal,
    Progress,
    ReassignmentRequest,
    ReassignmentRunner,
    ReplicaMove,
    runner,
    service,
)
from rackassign.reassignment.batches import ProgressCallback
from rackassign.reassignment.journal import open_exclusive, read, write
from tests.helpers.fakes.reassignment_cluster import FakeReassignmentCluster

TP = TopicPartition("t", 0)
MOVES = {TP: ReplicaMove((1, 2), (1, 3))}
ADMIN: Any = object()
LIMITS = ExecutionLimits(stall_timeout_s=5)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> FakeReassignmentCluster:
    simulated = FakeReassignmentCluster({TP: (1, 2)}, {1, 2, 3})
    monkeypatch.setattr(service, "KafkaReassignmentCluster", lambda _: simulated)
    monkeypatch.setattr(service, "cluster_id", lambda _: "c")
    monkeypatch.setattr(service, "list_brokers", lambda _: [Broker(number, None) for number in (1, 2, 3)])
    monkeypatch.setattr(runner, "_LOOK_EVERY_S", 0.01)
    return simulated


def test_a_plan_is_applied_and_rolled_back_without_a_command_line(
    stage: FakeReassignmentCluster, tmp_path: Path
) -> None:
    plan, state = tmp_path / "plan.json", tmp_path / "state.json"
    write(plan, Journal("c", moves=MOVES, waiting={TopicPartition("t", 1): (1, -1)}))
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).apply(journal)
    assert (outcome.result.done, outcome.pending_replicas, outcome.locality) == ((TP,), 1, None)
    assert (stage.lists(), read(plan).phase) == ({TP: (1, 3)}, "applied")
    assert state_file.read(state).plans == {TopicPartition("t", 1): (1, -1)}
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).rollback(journal)
    assert (outcome.result.done, outcome.pending_replicas) == ((TP,), 0)
    assert (stage.lists(), read(plan).phase) == ({TP: (1, 2)}, "rolled-back")


def test_what_failed_is_executed_again_while_brokers_are_awaited(
    stage: FakeReassignmentCluster, tmp_path: Path
) -> None:
    plan, shown, problems = tmp_path / "plan.json", list[list[Progress]](), list[str]()

    @contextmanager
    def display() -> Iterator[ProgressCallback]:
        # The broker is back for the second execution.
        stage.away = set() if shown else {3}
        shown.append([])
        yield shown[-1].append

    write(plan, Journal("c", moves=MOVES))
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(
            ADMIN, plan, tmp_path / "state.json", limits=LIMITS, display=display, report_problem=problems.append
        ).apply(journal, wait_for_brokers=30)
    assert (outcome.result.failed, stage.lists(), problems) == ({}, {TP: (1, 3)}, [])
    assert [progress[-1].settled for progress in shown] == [1, 1]


def test_a_request_without_anything_is_the_default_one() -> None:
    assert ReassignmentRequest.read({}) == ReassignmentRequest()
