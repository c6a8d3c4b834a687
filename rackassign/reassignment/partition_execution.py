"""The reassignment of one partition: its state, transitions and next request, as pure functions.

Rules that follow from the brokers' behavior (observed with Kafka 4.3):

* A reassignment in progress is never given another target: a partition whose reassignment was replaced by a list that
  adds nothing stays half way for ever. The reassignment is cancelled, and after that the new list is sent.
* No reassignment in progress does not mean that it is done: brokers report the old list for a moment longer, and a
  replica is of use only when it is in sync.
* A replica to be added on an offline broker keeps a reassignment open until the broker is back. So does an offline
  broker that keeps its replica while others are only removed; a reassignment that adds replicas does not wait for it.

The states:

::

    PENDING ──► IN_PROGRESS ──► DONE
                     │
                     ▼
                 REVERTING ───► REVERTED

The three on the left also become FAILED or DELETED. Which requests a partition needs is decided by
`next_step`, from the cluster's description alone; its state decides only which list is the goal, and
whether the execution is over.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from rackassign.text import join_ids

Replicas = tuple[int, ...]
"""Broker IDs, preferred leader first."""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """The replica lists of a partition.

    Args:
        before: The original list, which a rollback restores.
        after: The planned list.
        intermediate: Lists that the partition was given in between, by earlier plans of a resumed reassignment.
    """

    before: Replicas
    after: Replicas
    intermediate: tuple[Replicas, ...] = ()

    def known(self) -> frozenset[Replicas]:
        """Return all lists of this move."""
        return frozenset({self.before, self.after, *self.intermediate})

    def copies(self) -> bool:
        """Return whether the sets of replicas differ, not only their order."""
        return len({frozenset(row) for row in self.known()}) > 1


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition as the cluster reports it."""

    # During a reassignment this includes the replicas to be removed.
    replicas: Replicas
    in_sync: frozenset[int]
    leader: int | None
    # Its list after the reassignment in progress, and replicas of that which are still being added.
    target: Replicas | None = None
    adding: frozenset[int] = frozenset()
    # Replicas whose broker or disk is offline. Before Kafka 4.0, clusters list no offline brokers, but these replicas.
    offline: frozenset[int] = frozenset()


class Action(NamedTuple):
    """The next action for a partition."""

    # `send` the list, `cancel` the reassignment in progress, `wait` for it, or do nothing because the partition is
    # `done` or its reassignment is `foreign` (another process's). A `stuck` partition continues only after another
    # change in the cluster.
    do: Literal["send", "cancel", "wait", "done", "foreign", "stuck"]
    why: str = ""
    # What other partitions may be stuck for as well: `gone`, `unknown`, `leaderless`, or the brokers that are awaited.
    cause: str = ""
    awaits: frozenset[int] = frozenset()


DONE, WAIT, SEND, CANCEL = Action("done"), Action("wait"), Action("send"), Action("cancel")


def next_step(
    goal: Replicas,
    known: frozenset[Replicas],
    seen: PartitionStatus | None,
    start: PartitionStatus,
    down: Collection[int],
) -> Action:
    # `known` are all lists of the plan, and `start` is the partition before anything was done to it.
    if seen is None:
        return Action("stuck", "it does not exist", "gone")
    down = seen.offline.union(down)
    if seen.target is not None:
        return _of_what_runs(goal, known, seen, down)
    if seen.replicas == goal:
        lagging = set(start.replicas) - start.in_sync
        return DONE if set(goal) - seen.in_sync <= lagging | down else WAIT
    if set(seen.replicas) not in map(set, known):
        return Action("stuck", f"its replicas are {join_ids(seen.replicas)}, which is no list of the plan", "unknown")
    return _blocked(set(goal) - set(seen.replicas), set(goal), seen, set(down)) or SEND


def _of_what_runs(goal: Replicas, known: frozenset[Replicas], seen: PartitionStatus, down: frozenset[int]) -> Action:
    if seen.target not in known:
        return Action("foreign", f"another process reassigns it, to {join_ids(seen.target or ())}")
    if seen.target != goal:
        return CANCEL
    return _blocked(set(seen.adding), set(goal), seen, set(down)) or WAIT


def _blocked(adding: set[int], goal: set[int], seen: PartitionStatus, down: set[int]) -> Action | None:
    """Return what would keep a reassignment from completing, or None."""
    if adding and seen.leader is None:
        return Action("stuck", "it has no leader to copy from", "leaderless")
    waits_for = adding & down if adding else (goal & down if goal != set(seen.replicas) else set())
    if waits_for:
        named = named_brokers(waits_for)
        return Action("stuck", f"waits for {named}", named, frozenset(waits_for))
    return None


def named_brokers(ids: Collection[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {join_ids(sorted(ids))}"


class ExecutionState(Enum):
    """State of a partition in one execution."""

    PENDING = "pending"
    """Nothing has been sent for it, and no earlier execution has a reassignment of it in progress."""
    IN_PROGRESS = "in progress"
    """It is being brought to its planned list, by this execution or an earlier one."""
    REVERTING = "reverting"
    """It is given up, and is being brought back to the list that it had at the start."""
    DONE = "done"
    """It has its planned list."""
    REVERTED = "reverted"
    """It was given up, and has the list again that it had at the start."""
    FAILED = "failed"
    """It was given up, and nothing more is done to it."""
    DELETED = "deleted"
    """It does not exist."""


_REVERSE = frozenset({ExecutionState.REVERTING, ExecutionState.REVERTED})
_OVER = frozenset({ExecutionState.DONE, ExecutionState.REVERTED, ExecutionState.FAILED, ExecutionState.DELETED})


@dataclass(slots=True, eq=False)
class PartitionExecution:
    """One partition in one execution."""

    move: ReplicaMove
    planned: Replicas
    state: ExecutionState = ExecutionState.PENDING
    # Before anything was done to it, None until it is described; and as described last, None if it is not known.
    start: PartitionStatus | None = None
    status: PartitionStatus | None = None
    # What the controller accepted last, and whether a request of this execution has changed the replicas.
    accepted: Replicas | None = None
    changed: bool = False
    # Why it was given up; None if it was not. A partition that is deleted while it is reverted keeps it.
    reason: str | None = None
    # Whether it failed for good, so that another execution would fail as well.
    final: bool = False

    @property
    def goal(self) -> Replicas:
        """The list to reach: the planned one or, once the partition is given up, the one that it had at the start."""
        return self.start.replicas if self.start is not None and self.state in _REVERSE else self.planned

    @property
    def over(self) -> bool:
        """Whether nothing more is done to the partition."""
        return self.state in _OVER

    @property
    def settled(self) -> bool:
        return self.over or self.reason is not None

    def observe(self, status: PartitionStatus | None) -> None:
        """Take the cluster's description of the partition; the first one decides to which list it is reverted."""
        self.status = status
        if status is None or self.start is not None:
            return
        self.start = status
        if status.target in self.move.known():
            # An earlier execution has begun this reassignment. Its replica list has the added and the removed replicas,
            # which is no list to revert to.
            before, after = self.move.before, self.move.after
            self.start = replace(status, replicas=after if status.target == before else before, target=None)
            self.state = ExecutionState.IN_PROGRESS

    def next_action(self, offline: Collection[int]) -> Action:
        """Return the next action for the partition as it was described last."""
        start = self.start or PartitionStatus(self.goal, frozenset(), None)
        action = next_step(self.goal, self.move.known(), self.status, start, offline)
        # A broker that lags behind may report a list that the partition no longer has. Sending a list that it
        # already has does nothing.
        return Action("send") if action.do == "done" and self.accepted != self.goal else action

    def begin(self) -> None:
        """Note that a request will be sent: not after it, as one that is refused or not answered may be executed."""
        if self.state is ExecutionState.PENDING:
            self.state = ExecutionState.IN_PROGRESS

    def accept(self) -> None:
        self.accepted = self.goal
        self.changed |= not self.has_goal()

    def has_goal(self) -> bool:
        return self.status is not None and self.status.replicas == self.goal

    def complete(self) -> None:
        self.state = ExecutionState.REVERTED if self.state is ExecutionState.REVERTING else ExecutionState.DONE

    def refuse(self, error: str, *, final: bool) -> None:
        """Note that the controller has refused the goal.

        A planned list that is refused is given up like any other. If the earlier list is refused as well, no list is
        left to send.
        """
        self.final |= final
        if self.state is ExecutionState.REVERTING:
            self.fail(error)
        else:
            self.give_up(error)

    def give_up(self, reason: str) -> None:
        """Revert the partition if anything was done to it, and leave it alone otherwise."""
        if self.settled:
            return
        self.reason = reason
        # Of a pending partition, no request was sent, so that it has its earlier list anyway. A request for that list
        # would overwrite what another process may do to it.
        self.state = ExecutionState.REVERTING if self.state is ExecutionState.IN_PROGRESS else ExecutionState.FAILED

    def stall(self, status: PartitionStatus | None, seconds: float) -> None:
        """Note that nothing has happened for too long."""
        lagging = set(self.goal) - (frozenset() if status is None else status.in_sync)
        waits_for = named_brokers(lagging) if lagging else "the controller to end it, all replicas being in sync"
        reason = f"nothing was copied for {seconds:g} s: waits for {waits_for}"
        if self.reason is None and status is not None and status.target is not None:
            self.give_up(reason)
        else:
            # It has its list already, or not even the earlier one can be restored.
            self.fail(reason)

    def fail(self, reason: str, *, final: bool = False) -> None:
        """Leave the partition as it is. The first reason is kept, for which a partition was given up."""
        self.final |= final
        self.reason = reason if self.reason is None else self.reason
        self.state = ExecutionState.FAILED

    def delete(self) -> None:
        """Note that the partition does not exist. This is no failure unless it had been given up before."""
        self.state = ExecutionState.DELETED
