"""What to do next about one partition that is to have other replicas; judged from values alone.

Rules that brokers make necessary (seen on Kafka 4.3):

* What runs is never given another target: a partition whose reassignment was replaced by a list that adds nothing stays
  half way for ever. It is cancelled, and when that is over, sent anew.
* "Nothing runs" does not mean that it is done: brokers go on showing the old list for a moment, and a replica is of use
  when it is in sync.
* A replica to be added on a broker that is down keeps a reassignment open until the broker is back. So does one that
  only removes while a broker that stays is down; one that adds does not wait for those that stay.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

Replicas = tuple[int, ...]
"""Broker ids, preferred leader first."""


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """The lists of a partition.

    Args:
        before: As it was before anything was repaired, and as a rollback makes it again.
        after: As it is to be.
        intermediate: Lists that it was given on the way, by a repair that went on.
    """

    before: Replicas
    after: Replicas
    intermediate: tuple[Replicas, ...] = ()

    def known(self) -> frozenset[Replicas]:
        """Return all lists that a repair gives it."""
        return frozenset({self.before, self.after, *self.intermediate})

    def copies(self) -> bool:
        """Tell whether it takes more than another order."""
        return len({frozenset(row) for row in self.known()}) > 1


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition as the cluster tells of it now.

    Args:
        replicas: Its list; of one that is being reassigned also what will be removed.
        in_sync: Those of them that are in sync.
        leader: Who leads; None for nobody.
        target: Its list when the reassignment that runs is over; None if none runs.
        adding: Those of the target that are still to come.
    """

    replicas: Replicas
    in_sync: frozenset[int]
    leader: int | None
    target: Replicas | None = None
    adding: frozenset[int] = frozenset()


class Action(NamedTuple):
    """What to do.

    Args:
        do: `send` the list, `cancel` what runs, `wait` for it, nothing because it is `done`, or nothing because it is
            `foreign`: somebody else's. What is `stuck` goes on only if something else happens in the cluster.
        why: Of what is foreign or stuck.
        cause: What others may be stuck for as well: `gone`, `unknown`, `leaderless`, or the brokers waited for.
    """

    do: Literal["send", "cancel", "wait", "done", "foreign", "stuck"]
    why: str = ""
    cause: str = ""


DONE, WAIT, SEND, CANCEL = Action("done"), Action("wait"), Action("send"), Action("cancel")


def next_step(
    goal: Replicas,
    known: frozenset[Replicas],
    seen: PartitionStatus | None,
    start: PartitionStatus,
    down: Collection[int],
) -> Action:
    """Return what to do next.

    Args:
        goal: The list to reach.
        known: All lists that are ours.
        seen: The partition now; None if the cluster does not tell of it.
        start: The same before anything was done to it.
        down: Brokers that do not serve.
    """
    if seen is None:
        return Action("stuck", "it is not there", "gone")
    if seen.target is not None:
        return _of_what_runs(goal, known, seen, frozenset(down))
    if seen.replicas == goal:
        lagging = set(start.replicas) - start.in_sync
        return DONE if set(goal) - seen.in_sync <= lagging | set(down) else WAIT
    if set(seen.replicas) not in map(set, known):
        return Action(
            "stuck", f"its replicas are {_listed(seen.replicas)}, which is not what the plan knows", "unknown"
        )
    return _blocked(set(goal) - set(seen.replicas), set(goal), seen, set(down)) or SEND


def _of_what_runs(goal: Replicas, known: frozenset[Replicas], seen: PartitionStatus, down: frozenset[int]) -> Action:
    if seen.target not in known:
        return Action("foreign", f"somebody else reassigns it, to {_listed(seen.target or ())}")
    if seen.target != goal:
        return CANCEL
    return _blocked(set(seen.adding), set(goal), seen, set(down)) or WAIT


def _blocked(adding: set[int], goal: set[int], seen: PartitionStatus, down: set[int]) -> Action | None:
    """Tell what would keep a reassignment from coming to its end."""
    if adding and seen.leader is None:
        return Action("stuck", "it has no leader to copy from", "leaderless")
    waits_for = adding & down if adding else (goal & down if goal != set(seen.replicas) else set())
    if waits_for:
        return Action("stuck", f"waits for {_brokers(waits_for)}", _brokers(waits_for))
    return None


def _brokers(ids: Collection[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {_listed(sorted(ids))}"


def _listed(ids: Collection[int]) -> str:
    return ", ".join(map(str, ids))
