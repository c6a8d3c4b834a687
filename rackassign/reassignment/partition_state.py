"""The next action for one partition that is to have other replicas, as a pure function.

Rules that follow from the brokers' behavior (observed with Kafka 4.3):

* A reassignment in progress is never given another target: a partition whose reassignment was replaced by a list that
  adds nothing stays half way for ever. The reassignment is cancelled, and after that the new list is sent.
* No reassignment in progress does not mean that it is done: brokers report the old list for a moment longer, and a
  replica is of use only when it is in sync.
* A replica to be added on an offline broker keeps a reassignment open until the broker is back. So does an offline
  broker that keeps its replica while others are only removed; a reassignment that adds replicas does not wait for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rackassign.util.text import join_ids

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
    """A partition as the cluster reports it.

    Args:
        replicas: Its replica list; during a reassignment this includes the replicas to be removed.
        in_sync: The in-sync replicas.
        leader: The leader; None without one.
        target: Its list after the reassignment in progress; None without one.
        adding: Replicas of the target that are still being added.
        offline: Replicas whose broker or disk is offline. Before Kafka 4.0, clusters list no offline brokers, but these
            replicas.
    """

    replicas: Replicas
    in_sync: frozenset[int]
    leader: int | None
    target: Replicas | None = None
    adding: frozenset[int] = frozenset()
    offline: frozenset[int] = frozenset()


class Action(NamedTuple):
    """The next action for a partition.

    Args:
        do: `send` the list, `cancel` the reassignment in progress, `wait` for it, or do nothing because the partition
            is `done` or its reassignment is `foreign` (another process's). A `stuck` partition continues only after
            another change in the cluster.
        why: Reason for `foreign` and `stuck`.
        cause: What other partitions may be stuck for as well: `gone`, `unknown`, `leaderless`, or the awaited brokers.
        awaits: IDs of the awaited brokers, if these are the cause.
    """

    do: Literal["send", "cancel", "wait", "done", "foreign", "stuck"]
    why: str = ""
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
    """Return the next action for a partition.

    Args:
        goal: The list to reach.
        known: All lists of the plan.
        seen: The partition now; None if the cluster does not know it.
        start: The partition before anything was done to it.
        down: Brokers that are not serving.
    """
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
    """Return brokers as text for users."""
    return f"broker{'' if len(ids) == 1 else 's'} {join_ids(sorted(ids))}"
