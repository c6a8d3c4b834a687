"""The state of one partition in one execution: which list is its goal, and when it is over."""

from __future__ import annotations

from rackassign.reassignment.partition_execution import ExecutionState, PartitionExecution, PartitionStatus, ReplicaMove

MOVE = ReplicaMove((1, 2), (3, 2))


def status(*replicas: int, target: tuple[int, ...] | None = None) -> PartitionStatus:
    return PartitionStatus(replicas, frozenset(replicas), replicas[0], target)


def execution(*replicas: int, target: tuple[int, ...] | None = None) -> PartitionExecution:
    found = PartitionExecution(MOVE, MOVE.after)
    found.observe(status(*replicas, target=target))
    return found


def test_a_partition_for_which_nothing_was_sent_is_left_alone_when_it_is_given_up() -> None:
    found = execution(1, 2)
    found.give_up("stopped")
    assert (found.state, found.goal, found.reason) == (ExecutionState.FAILED, MOVE.after, "stopped")


def test_a_partition_for_which_a_list_was_sent_is_reverted_to_the_list_it_had_at_the_start() -> None:
    found = execution(2, 1)
    found.begin()
    found.accept()
    found.observe(status(3, 2, 1, target=MOVE.after))
    found.give_up("waits for broker 3")
    assert (found.state, found.goal, found.over, found.settled) == (ExecutionState.REVERTING, (2, 1), False, True)
    assert found.next_action(()).do == "cancel"
    found.complete()
    assert (found.state, found.reason) == (ExecutionState.REVERTED, "waits for broker 3")


def test_a_reassignment_of_an_earlier_execution_is_reverted_to_the_list_before_it() -> None:
    found = execution(3, 2, 1, target=MOVE.after)
    found.give_up("stopped")
    assert (found.state, found.goal) == (ExecutionState.REVERTING, MOVE.before)


def test_a_list_that_is_refused_while_reverting_ends_the_execution_with_the_first_reason() -> None:
    found = execution(1, 2)
    found.begin()
    found.refuse("NotControllerError", final=False)
    assert found.state is ExecutionState.REVERTING
    found.refuse("InvalidReplicationAssignmentError", final=True)
    assert (found.state, found.reason, found.final) == (ExecutionState.FAILED, "NotControllerError", True)


def test_a_list_that_a_lagging_broker_reports_is_sent_once_more() -> None:
    found = execution(*MOVE.after)
    assert found.next_action(()).do == "send"
    found.begin()
    found.accept()
    assert (found.next_action(()).do, found.changed) == ("done", False)


def test_a_reassignment_that_the_controller_does_not_end_names_no_broker() -> None:
    found = execution(1, 2)
    found.begin()
    found.accept()
    copied = status(3, 2, 1, target=MOVE.after)
    found.observe(copied)
    found.stall(copied, 30)
    assert found.reason == (
        "nothing was copied for 30 s: waits for the controller to end it, all replicas being in sync"
    )
