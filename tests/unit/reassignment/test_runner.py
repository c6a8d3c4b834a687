"""A plan file applied and rolled back by a program: no command line, a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from rackassign.errors import ConfigError
from rackassign.model import Broker, TopicPartition
from rackassign.placement import state_file
from rackassign.placement.cluster_state import RATES
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import (
    ExecutionLimits,
    Journal,
    Progress,
    ReassignmentRequest,
    ReassignmentRunner,
    ReplicaMove,
    operations,
)
from rackassign.reassignment.executor import ProgressCallback
from rackassign.reassignment.journal import open_exclusive, read, write
from rackassign.reassignment.throttle import FOLLOWING, LEADING, SavedConfigs
from tests.helpers.fakes.reassignment_cluster import FakePartition, FakeReassignmentCluster

TP = TopicPartition("t", 0)
MOVES = {TP: ReplicaMove((1, 2), (1, 3))}
ADMIN: Any = object()
LIMITS = ExecutionLimits(stall_timeout_s=5)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> FakeReassignmentCluster:
    simulated = FakeReassignmentCluster({TP: (1, 2)}, {1, 2, 3})
    monkeypatch.setattr(operations, "ReassignmentCluster", lambda _: simulated)
    monkeypatch.setattr(operations, "cluster_id", lambda _: "c")
    monkeypatch.setattr(operations, "list_brokers", lambda _: [Broker(number, None) for number in (1, 2, 3)])
    monkeypatch.setattr(operations, "_LOOK_EVERY_S", 0.01)
    return simulated


def test_a_plan_is_applied_and_rolled_back_without_a_command_line(
    stage: FakeReassignmentCluster, tmp_path: Path
) -> None:
    plan, state = tmp_path / "plan.json", tmp_path / "state.json"
    write(plan, Journal("c", moves=MOVES, waiting={TopicPartition("t", 1): (1, -1)}))
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).apply(journal)
    assert (outcome.direction, outcome.result.done, outcome.pending_replicas) == ("apply", (TP,), 1)
    assert outcome.locality is None
    assert (stage.lists(), read(plan).phase) == ({TP: (1, 3)}, "applied")
    assert state_file.read(state).plans == {TopicPartition("t", 1): (1, -1)}
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).rollback(journal)
    assert (outcome.direction, outcome.result.done, outcome.pending_replicas) == ("rollback", (TP,), 0)
    assert (stage.lists(), read(plan).phase) == ({TP: (1, 2)}, "rolled-back")


def test_a_run_that_is_to_stop_sends_nothing(stage: FakeReassignmentCluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    write(plan, Journal("c", moves=MOVES))
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(ADMIN, plan, tmp_path / "state.json", stop=lambda: True).apply(journal)
    assert (outcome.result.done, stage.most_running, stage.lists()) == ((), 0, {TP: (1, 2)})


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


def test_an_interrupted_execution_is_resumed_from_the_plan_file_and_leaves_no_throttle(
    stage: FakeReassignmentCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, executions, problems = tmp_path / "plan.json", list[str](), list[str]()
    original = stage.alter_cluster_configs

    def without_controller(changes: Mapping[str, str | None]) -> None:
        if len(executions) == 2 and None in changes.values():
            raise KafkaConnectionError("no controller")
        original(changes)

    monkeypatch.setattr(stage, "alter_cluster_configs", without_controller)

    @contextmanager
    def display() -> Iterator[ProgressCallback]:
        # The broker is back for the second execution, which cannot remove its throttle.
        stage.away = set() if executions else {3}
        executions.append("")
        yield lambda _: None

    write(plan, Journal("c", moves=MOVES))
    limits = replace(LIMITS, rate=2_000_000)
    with open_exclusive(plan) as journal:
        outcome = ReassignmentRunner(
            ADMIN, plan, tmp_path / "state.json", limits=limits, display=display, report_problem=problems.append
        ).apply(journal, wait_for_brokers=30)
    assert (outcome.result.failed, stage.lists(), outcome.journal.phase) == ({}, {TP: (1, 3)}, "applied")
    assert (stage.defaults, stage.topics["t"], read(plan).throttled) == ({}, {}, None)
    assert len(executions) == 3
    assert len(problems) == 1
    assert problems[0].startswith("cluster not available: the throttle is still set")


def test_what_an_interrupted_execution_has_begun_is_rolled_back_as_well(
    stage: FakeReassignmentCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, later = TopicPartition("t", 1), TopicPartition("t", 2)
    for tp in (more, later):
        stage.partitions[tp] = FakePartition((1,), {1}, led_by=1)
    stage._show(1.0)
    plan, state = tmp_path / "plan.json", tmp_path / "state.json"
    write(plan, Journal("c", moves=MOVES, waiting=dict.fromkeys((more, later), (1, -1))))
    steps = iter(((more,), (later,)))

    def remaining(_admin: object, journal: Journal, _state: object) -> Journal | None:
        tp = next(steps, None)
        return tp and journal.joined(Journal("c", moves={tp[0]: ReplicaMove((1,), (1, 2))}))

    monkeypatch.setattr(operations, "prepare_remaining", remaining)
    failing, updated = iter((False, True)), operations.updated_state

    def after_the_end(*given: Any) -> state_file.PlacementState:
        if next(failing, False):
            raise KafkaConnectionError("no broker")
        return updated(*given)

    monkeypatch.setattr(operations, "updated_state", after_the_end)
    with open_exclusive(plan) as journal:
        made = ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).apply(journal, wait_for_brokers=30)
    assert made.result.failed == {}
    assert stage.lists() == {TP: (1, 3), more: (1, 2), later: (1, 2)}
    with open_exclusive(plan) as journal:
        ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).rollback(journal)
    assert stage.lists() == {TP: (1, 2), more: (1,), later: (1,)}


@pytest.mark.parametrize("rate", [None, 1_000])
def test_a_throttle_that_was_left_is_replaced_for_the_topics_of_now(
    stage: FakeReassignmentCluster, tmp_path: Path, rate: int | None
) -> None:
    plan, seen = tmp_path / "plan.json", list[dict[str, str]]()
    stage.defaults, stage.topics = dict.fromkeys(RATES, "7"), {"t": {LEADING: "0:9"}, "gone": {LEADING: "0:1"}}
    stage.show_configs()
    # What was set before the throttle of an earlier execution, in which the topic was not yet.
    write(plan, Journal("c", moves=MOVES, phase="begun", throttled=SavedConfigs({}, {"gone": {}})))
    stage.on_reassign = lambda _: seen.append(dict(stage.topics["t"]))
    with open_exclusive(plan) as journal:
        ReassignmentRunner(ADMIN, plan, tmp_path / "s.json", limits=replace(LIMITS, rate=rate)).apply(journal)
    assert seen[0].get(FOLLOWING) == (None if rate is None else "0:2,0:3")
    assert (stage.defaults, stage.topics) == ({}, {"t": {LEADING: "0:9"}, "gone": {}})


def test_lists_of_throttled_replicas_of_another_tool_are_not_taken_for_those_of_before(
    stage: FakeReassignmentCluster, tmp_path: Path
) -> None:
    plan, other = tmp_path / "plan.json", TopicPartition("t", 1)
    stage.partitions[other] = FakePartition((1,), {1}, target=(1, 2), adding={2}, led_by=1)
    stage._show(1.0)
    # As kafka-reassign-partitions sets it, with a rate for each broker.
    stage.topics = {"t": {LEADING: "1:1,1:2", FOLLOWING: "1:2"}}
    stage.show_configs()
    write(plan, Journal("c", moves=MOVES))
    with open_exclusive(plan) as journal, pytest.raises(ConfigError, match="of another process are in progress"):
        ReassignmentRunner(ADMIN, plan, tmp_path / "s.json", limits=replace(LIMITS, rate=1_000)).apply(journal)
    assert (stage.lists()[TP], read(plan).phase) == ((1, 2), "planned")
    assert stage.topics == {"t": {LEADING: "1:1,1:2", FOLLOWING: "1:2"}}


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
    stage: FakeReassignmentCluster,
    tmp_path: Path,
    request_: ReassignmentRequest | None,
    move: ReplicaMove | None,
    waiting: tuple[int, ...] | None,
    known: tuple[int, ...],
    after_rollback: tuple[int, ...],
) -> None:
    plan, state, tp = tmp_path / "plan.json", tmp_path / "state.json", TopicPartition("t", 1)
    stage.partitions[tp] = FakePartition((1,) if move is None else move.after, {1, 3}, led_by=1)
    stage._show(1.0)
    moves, rows = {} if move is None else {tp: move}, {} if waiting is None else {tp: waiting}
    write(plan, Journal("c", request_, moves, rows, phase="applied"))
    state_file.write(state, state_file.PlacementState(plans={tp: known} if known else {}))
    with open_exclusive(plan) as journal:
        ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).rollback(journal)
    assert stage.lists()[tp] == (1,)
    assert state_file.read(state).plans == ({tp: after_rollback} if after_rollback else {})


def test_a_rollback_leaves_the_state_of_another_cluster_alone(stage: FakeReassignmentCluster, tmp_path: Path) -> None:
    plan, state = tmp_path / "plan.json", tmp_path / "state.json"
    of_another = state_file.PlacementState(plans={TP: (1, 3, -1)}, cluster="another")
    state_file.write(state, of_another)
    write(plan, Journal("c", ReassignmentRequest(replication_factor=3), MOVES, {TP: (1, 3, -1)}, phase="begun"))
    with open_exclusive(plan) as journal:
        ReassignmentRunner(ADMIN, plan, state, limits=LIMITS).rollback(journal)
    assert state_file.read(state) == of_another
    assert stage.lists() == {TP: (1, 2)}


def test_a_throttle_that_was_abandoned_is_not_restored_after_the_next_plan(
    stage: FakeReassignmentCluster, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    stage.defaults, stage.topics = dict.fromkeys(RATES, "7"), {"t": {LEADING: "0:1", FOLLOWING: "0:3"}}
    stage.show_configs()
    throttled = Journal("c", moves=MOVES, phase="begun", throttled=SavedConfigs({}, {"t": {}}))
    operations.abandon(ADMIN, throttled, lambda journal: write(plan, journal))
    assert read(plan).phase == "abandoned"
    write(plan, Journal("c", moves=MOVES))
    with open_exclusive(plan) as journal:
        ReassignmentRunner(ADMIN, plan, tmp_path / "s.json", limits=replace(LIMITS, rate=1_000)).apply(journal)
    assert (stage.defaults, stage.topics["t"]) == ({}, {})
