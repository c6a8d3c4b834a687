"""Batches of an execution on a played cluster: what is awaited how often, and what is left as it is."""

from __future__ import annotations

from collections.abc import Iterable

from rackassign.model import TopicPartition
from rackassign.reassignment import ExecutionLimits, ExecutionResult, Journal, ReplicaMove, execute_plan
from rackassign.reassignment.executor import Direction
from tests.helpers.fakes.reassignment_cluster import FakeReassignmentCluster

BROKERS = range(1, 7)
LIMITS = ExecutionLimits(batch_size=1, stall_timeout_s=20)


def execute(
    cluster: FakeReassignmentCluster, journal: Journal, direction: Direction = "apply"
) -> tuple[Journal, ExecutionResult]:
    return execute_plan(cluster, journal, direction, keep=lambda _: None, limits=LIMITS)


def test_a_broker_that_was_given_up_once_and_came_back_is_awaited_again() -> None:
    first, second, last = (TopicPartition("t", number) for number in range(3))
    moves = {tp: ReplicaMove((1, 2), (2, 3)) for tp in (first, last)} | {second: ReplicaMove((1, 2), (2, 4))}
    cluster = FakeReassignmentCluster({tp: move.before for tp, move in moves.items()}, BROKERS)
    cluster.kill(3)

    def restart(tps: Iterable[TopicPartition]) -> None:
        if second in tps:
            cluster.away.discard(3)
        elif last in tps and not cluster.events:
            cluster.kill(3)
            cluster.events.append((cluster.clock + 5, lambda: cluster.away.discard(3)))

    cluster.on_reassign = restart
    _, result = execute(cluster, Journal("c", moves=moves))
    assert result.failed == {first: "waits for broker 3"}
    assert result.done == (second, last)


def test_a_rollback_of_a_plan_that_was_never_begun_elects_no_leaders() -> None:
    same, exported = TopicPartition("t", 0), TopicPartition("t", 1)
    moves = {tp: ReplicaMove((1, 2), (2, 3)) for tp in (same, exported)}
    # The plan was exported, and another tool has applied it to one partition.
    cluster = FakeReassignmentCluster({same: (1, 2), exported: (2, 3)}, BROKERS)
    cluster.partitions[same].led_by = 2
    journal, result = execute(cluster, Journal("c", moves=moves), "rollback")
    assert (journal.phase, result.done, result.sent) == ("rolled-back", (same, exported), 1)
    assert cluster.lists() == {same: (1, 2), exported: (1, 2)}
    assert (cluster.partitions[same].led_by, cluster.partitions[exported].led_by) == (2, 1)


def test_a_partition_that_only_some_brokers_know_is_not_taken_for_deleted() -> None:
    lagging, deleted = TopicPartition("lagging", 0), TopicPartition("deleted", 0)
    moves = {tp: ReplicaMove((1, 2), (2, 3)) for tp in (lagging, deleted)}
    cluster = FakeReassignmentCluster({lagging: (1, 2)}, BROKERS)
    cluster.unknown = {lagging}
    journal, result = execute(cluster, Journal("c", moves=moves))
    assert result.failed == {lagging: "not all brokers report it"}
    assert tuple(result.deleted) == (deleted,)
    # It can be applied again.
    assert journal.phase == "begun"
    cluster.unknown.clear()
    assert execute(cluster, journal)[0].phase == "applied"
    assert cluster.lists() == {lagging: (2, 3)}
