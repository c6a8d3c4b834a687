"""What is next for a partition, from the cluster's description of it; and what is done to the throttle of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from rackassign.admin.alter import ReassignmentAdmin
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.reassignment.operations import plan_status
from rackassign.reassignment.partition_execution import (
    CANCEL,
    DONE,
    SEND,
    WAIT,
    Action,
    PartitionStatus,
    ReplicaMove,
    next_step,
)
from rackassign.reassignment.throttle import SavedConfigs, restore_configs, save_configs, throttle

BEFORE, GOAL = (1, 2), (3, 2)
MOVE = ReplicaMove(BEFORE, GOAL)


def seen(replicas: tuple[int, ...], **more: Any) -> PartitionStatus:
    fields: dict[str, Any] = {"in_sync": frozenset(replicas), "leader": replicas[0]} | more
    return PartitionStatus(replicas, **fields)


def after(status: PartitionStatus | None, *down: int, start: PartitionStatus | None = None) -> Action:
    return next_step(GOAL, MOVE.known(), status, start or seen(BEFORE), down)


def copying(*adding: int, **more: Any) -> PartitionStatus:
    fields: dict[str, Any] = {"in_sync": frozenset(BEFORE), "target": GOAL, "adding": frozenset(adding)} | more
    return seen((3, 2, 1), **fields)


@pytest.mark.parametrize(
    ("status", "down", "action"),
    [
        (seen(BEFORE), (), SEND),
        (seen((2, 1)), (), SEND),
        # In the order of another list nothing is copied.
        (seen((2, 3)), (), SEND),
        # The broker that is to be left may be down; one that gets a copy may not, nor one that must report it.
        (seen(BEFORE), (1,), SEND),
        (seen(BEFORE), (3,), Action("stuck", "waits for broker 3", "broker 3", frozenset({3}))),
        (seen((2, 3)), (3,), SEND),
        (seen(BEFORE, leader=None), (), Action("stuck", "it has no leader to copy from", "leaderless")),
        (seen((2, 3), leader=None), (), SEND),
        (seen(GOAL), (), DONE),
        (seen(GOAL, in_sync=frozenset({2})), (), WAIT),
        (seen(GOAL, in_sync=frozenset({2})), (3,), DONE),
        (seen((4, 2)), (), Action("stuck", "its replicas are 4, 2, which is no list of the plan", "unknown")),
        (None, (), Action("stuck", "it does not exist", "gone")),
        (copying(3), (), WAIT),
        (copying(3), (3,), Action("stuck", "waits for broker 3", "broker 3", frozenset({3}))),
        (copying(3), (2,), WAIT),
        (copying(3, leader=None), (), Action("stuck", "it has no leader to copy from", "leaderless")),
        # All are copied, but the reassignment ends only when each of the goal is in sync.
        (copying(), (), WAIT),
        (copying(leader=None), (), WAIT),
        (copying(), (2, 3), Action("stuck", "waits for brokers 2, 3", "brokers 2, 3", frozenset({2, 3}))),
        (copying(1, target=BEFORE), (), CANCEL),
        (copying(5, target=(5, 2)), (), Action("foreign", "another process reassigns it, to 5, 2")),
    ],
)
def test_the_next_action_follows_from_what_the_cluster_reports(
    status: PartitionStatus | None, down: Sequence[int], action: Action
) -> None:
    assert after(status, *down) == action


def test_replicas_that_lagged_before_are_not_waited_for() -> None:
    lagging = seen(BEFORE, in_sync=frozenset({1}))
    assert after(seen(GOAL, in_sync=frozenset({3})), start=lagging) == DONE
    assert after(seen(GOAL, in_sync=frozenset({2})), start=lagging) == WAIT


@pytest.mark.parametrize(
    ("move", "copies"),
    [
        (ReplicaMove((1, 2), (2, 1)), False),
        (ReplicaMove((1, 2), (1, 2)), False),
        (ReplicaMove((1, 2), (1, 3)), True),
        (ReplicaMove((1, 2), (2, 1), ((1, 3),)), True),
        (ReplicaMove((1, 2), (1, 2, 3)), True),
    ],
)
def test_another_order_of_the_same_replicas_is_no_copy(move: ReplicaMove, copies: bool) -> None:  # noqa: FBT001
    assert move.copies() is copies


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (None, "gone"),
        (seen(GOAL), "as-planned"),
        (seen(BEFORE), "as-before"),
        (seen((2, 1)), "on-its-way"),
        (seen((2, 3)), "on-its-way"),
        (seen((4, 2)), "changed-by-others"),
        (copying(3), "on-its-way"),
        (copying(5, target=(5, 2)), "changed-by-others"),
    ],
)
def test_the_state_of_a_plan_follows_from_what_the_cluster_reports(status: PartitionStatus | None, state: str) -> None:
    tp = TopicPartition("t", 0)
    found = plan_status({tp: MOVE}, {tp: status} if status else {}, throttled=False)
    assert found.states == {tp: state}
    assert found.lists == ({tp: status.replicas} if status else {})


MOVES = {
    TopicPartition("t", 1): ReplicaMove((1, 2), (1, 3)),
    TopicPartition("t", 0): ReplicaMove((1, 2), (4, 2), ((5, 2),)),
    TopicPartition("u", 0): ReplicaMove((1,), (1, 2)),
    TopicPartition("v", 0): ReplicaMove((1,), (2,)),
}
LEADERS, FOLLOWERS = THROTTLED


def test_a_throttle_is_for_the_copies_in_both_directions_and_adds_to_one_that_is_set() -> None:
    topics = {"u": {LEADERS: "7:7", FOLLOWERS: "7:8"}, "v": {LEADERS: "*"}}
    configs = Mock(spec=ReassignmentAdmin)
    configs.topic_configs.return_value, configs.cluster_configs.return_value = topics, {RATES[0]: "5"}
    before = save_configs(configs, MOVES)
    assert before == SavedConfigs({RATES[0]: "5"}, {"t": {}, **topics})
    throttle(configs, MOVES, before, 1000)
    restore_configs(configs, before)
    assert [args[0] for name, args, _ in configs.method_calls if name.startswith("alter")] == [
        dict.fromkeys(RATES, "1000"),
        {
            "t": {LEADERS: "0:1,0:2,0:4,0:5,1:1,1:2,1:3", FOLLOWERS: "0:1,0:4,0:5,1:2,1:3"},
            "u": {LEADERS: "7:7,0:1,0:2", FOLLOWERS: "7:8,0:2"},
            "v": {LEADERS: "*", FOLLOWERS: "0:1,0:2"},
        },
        {RATES[0]: "5", RATES[1]: None},
        {"t": dict.fromkeys(THROTTLED), "u": topics["u"], "v": {LEADERS: "*", FOLLOWERS: None}},
    ]
