"""Execution of a plan in batches of partitions.

A batch that cannot complete, for example because a broker that was to get a replica died, is taken back partition by
partition to the replica lists that it began with. Partitions not started when a run ends are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rackassign.model import TopicPartition
from rackassign.reassignment.cluster import CopyProgress, ReassignmentCluster
from rackassign.reassignment.partition_state import Action, PartitionStatus, ReplicaMove, Replicas, next_step

_LOOK_EVERY_S = 0.25
_COUNTED_EVERY_S = 1.0
_ELECTED_S = 5.0

_FINAL = frozenset({"InvalidReplicationAssignmentError"})
"""Refusals that a retry does not change, for example of a list with a broker that is no longer registered."""


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """Limits of an execution: partitions at a time, bandwidth and waiting times.

    Args:
        batch_size: Partitions that are reassigned at the same time, 1 or more.
        rate: Bytes per second that each broker sends, and receives, for the reassignment; None for no limit.
        stall_timeout_s: Seconds after which a stuck partition is given up.
        timeout_s: Seconds after which all unfinished partitions are given up; None for no limit.
    """

    batch_size: int = 50
    rate: int | None = None
    stall_timeout_s: float = 30.0
    timeout_s: float | None = None


class Progress(NamedTuple):
    """Progress of an execution.

    Args:
        settled: Partitions that are done or given up.
        partitions: Number of all partitions.
        copied: Copy progress of the current batch.
    """

    settled: int
    partitions: int
    copied: CopyProgress


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """Result of an execution.

    Args:
        done: Partitions that have their planned list.
        failed: The other partitions, with the reason. They have the list that they had when this run began, unless the
            reason states otherwise.
        deleted: Partitions that do not exist, with the reason. Nothing is left to do for them.
        sent: Number of partitions whose replicas this run has changed.
        leader_not_elected: Partitions whose preferred leader is not the leader, with the reason.
        final: Partitions that failed for good: they were changed by another process, or the cluster refuses the list.
    """

    done: tuple[TopicPartition, ...]
    failed: Mapping[TopicPartition, str]
    sent: int
    deleted: Mapping[TopicPartition, str] = field(default_factory=dict)
    leader_not_elected: Mapping[TopicPartition, str] = field(default_factory=dict)
    final: frozenset[TopicPartition] = frozenset()


ProgressCallback = Callable[[Progress], None]


class BatchExecutor:
    """One run over all partitions.

    Args:
        cluster: Cluster that is changed.
        moves: All replica lists of each partition that are known.
        goals: The list that each partition is to have.
        limits: Limits of the execution.
        report_progress: Called with the progress.
        stop: Return whether to stop.

    Attributes:
        sent: Partitions whose replicas have been changed.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        cluster: ReassignmentCluster,
        moves: Mapping[TopicPartition, ReplicaMove],
        goals: Mapping[TopicPartition, Replicas],
        limits: ExecutionLimits,
        report_progress: ProgressCallback,
        stop: Callable[[], bool],
    ) -> None:
        self._cluster, self._moves, self._limits, self._report_progress, self._stop = (
            cluster,
            moves,
            limits,
            report_progress,
            stop,
        )
        self._wanted = goals
        self._goals = dict(goals)
        self._until = None if limits.timeout_s is None else self._cluster.now() + limits.timeout_s
        self._start: dict[TopicPartition, PartitionStatus] = {}
        self._stuck_since: dict[tuple[str, str, int], float] = {}
        self._touched: set[TopicPartition] = set()
        self._taken: dict[TopicPartition, Replicas] = {}
        self._done: dict[TopicPartition, None] = {}
        self._failed: dict[TopicPartition, str] = {}
        self._gone: set[TopicPartition] = set()
        self._abandoned: set[TopicPartition] = set()
        self._final: set[TopicPartition] = set()
        self._not_led: dict[TopicPartition, str] = {}
        self._copied, self._counted_at = CopyProgress(0, 0), float("-inf")
        self.sent: set[TopicPartition] = set()

    def all(self) -> ExecutionResult:
        """Reassign all partitions, batch by batch."""
        tps = list(self._goals)
        # Describe all partitions first: without the permission for all of them, nothing is done.
        self._cluster.describe(tps)
        for begin in range(0, len(tps), self._limits.batch_size):
            why = self._ending()
            if why:
                self._leave(tps[begin:], why)
                break
            batch = tps[begin : begin + self._limits.batch_size]
            self._settle(batch)
            self._lead(batch)
        failed = {tp: self._failed[tp] for tp in sorted(self._failed)}
        done = self._done.keys() - failed
        missing = self._cluster.missing(sorted(self._gone)) if self._gone else {}
        gone = {tp: missing.get(tp, "it did not exist for a while") for tp in sorted(self._gone)}
        return ExecutionResult(
            tuple(sorted(done)),
            failed,
            len(self.sent & done),
            gone,
            dict(self._not_led),
            frozenset(self._final & failed.keys()),
        )

    def _leave(self, tps: Sequence[TopicPartition], why: str) -> None:
        """Leave partitions alone, except for those that an earlier run has begun: these are taken back."""
        seen = self._cluster.describe(tps)
        begun = [p for p in tps if p in seen and seen[p].target in self._moves[p].known()]
        self._settle(begun)
        for tp in tps:
            if tp not in self._done:
                self._failed.setdefault(tp, why)

    def _settle(self, batch: Sequence[TopicPartition]) -> None:
        """Describe and act until each partition has its list, or has been given up and has its earlier list again."""
        left = list(batch)
        while left:
            seen, down = self._cluster.describe(left), self._cluster.offline_brokers()
            for tp in left:
                if tp in seen:
                    self._start.setdefault(tp, self._at_rest(tp, seen[tp]))
            steps = {tp: self._step(tp, seen.get(tp), down) for tp in left}
            if self._ending():
                for tp, step in steps.items():
                    if step.do != "done":
                        self._give_up(tp, self._ending())
                steps = {tp: self._step(tp, seen.get(tp), down) for tp in left}
            self._act({tp: step for tp, step in steps.items() if tp not in self._abandoned}, seen)
            self._done |= dict.fromkeys(tp for tp, step in steps.items() if step.do == "done")
            self._time(steps)
            left = [tp for tp, step in steps.items() if not self._over(tp, step)]
            self._report(batch, last=not left)
            if left:
                self._cluster.sleep(_LOOK_EVERY_S)

    def _ending(self) -> str:
        """Return the reason to begin nothing more, empty for none."""
        if self._stop():
            return "stopped"
        return "time limit reached" if self._until is not None and self._cluster.now() > self._until else ""

    def _at_rest(self, tp: TopicPartition, seen: PartitionStatus) -> PartitionStatus:
        """Return a partition as it was before the current reassignment, if an earlier run has begun that."""
        move = self._moves[tp]
        if seen.target is None or seen.target not in move.known():
            return seen
        self._touched.add(tp)
        return replace(seen, replicas=move.after if seen.target == move.before else move.before, target=None)

    def _step(self, tp: TopicPartition, seen: PartitionStatus | None, down: frozenset[int]) -> Action:
        goal, start = self._goals[tp], self._start.get(tp, PartitionStatus(self._goals[tp], frozenset(), None))
        step = next_step(goal, self._moves[tp].known(), seen, start, down)
        # A broker that lags behind may report a list that the partition no longer has. Sending a list that it
        # already has does nothing.
        return Action("send") if step.do == "done" and self._taken.get(tp) != goal else step

    def _act(self, steps: Mapping[TopicPartition, Action], seen: Mapping[TopicPartition, PartitionStatus]) -> None:
        lists = {
            tp: self._goals[tp] if step.do == "send" else None
            for tp, step in steps.items()
            if step.do in {"send", "cancel"}
        }
        self._touched |= lists.keys()
        refused = self._cluster.alter_reassignments(lists) if lists else {}
        for tp, row in lists.items():
            if row is None:
                # The reassignment to be cancelled may have completed in the meantime.
                continue
            there = seen[tp].replicas == row
            if tp not in refused or there:
                self._taken[tp] = row
                self.sent |= set() if there else {tp}
                continue
            if tp in self._failed:
                self._abandoned.add(tp)
            if refused[tp] in _FINAL:
                self._final.add(tp)
            self._give_up(tp, refused[tp])

    def _time(self, steps: Mapping[TopicPartition, Action]) -> None:
        """Start clocks for stuck partitions; stop those of partitions no longer stuck, unless they have run out."""
        now = self._cluster.now()
        stuck = {_clock(tp, step) for tp, step in steps.items() if step.do == "stuck"}
        kept = {c: at for c, at in self._stuck_since.items() if c in stuck or now - at >= self._limits.stall_timeout_s}
        self._stuck_since = dict.fromkeys(stuck, now) | kept

    def _over(self, tp: TopicPartition, step: Action) -> bool:
        """Return whether nothing more can be done for a partition; give it up if it has been stuck too long."""
        if step.do == "foreign":
            self._failed.setdefault(tp, step.why)
        if step.do in {"foreign", "done"} or tp in self._abandoned:
            return True
        if step.do != "stuck":
            return False
        if self._cluster.now() - self._stuck_since[_clock(tp, step)] < self._limits.stall_timeout_s:
            return False
        if step.cause == "gone":
            self._gone.add(tp)
            return True
        if tp in self._failed or step.cause == "unknown":
            if step.cause == "unknown":
                self._final.add(tp)
            self._failed.setdefault(tp, step.why)
            return True
        self._give_up(tp, step.why)
        return tp in self._abandoned

    def _give_up(self, tp: TopicPartition, why: str) -> None:
        """Set the goal of a partition to the list it had when this run began, if anything was done to it."""
        if tp in self._done or tp in self._failed:
            return
        self._failed[tp] = why
        if tp in self._touched and tp in self._start:
            self._goals[tp] = self._start[tp].replicas
        else:
            self._abandoned.add(tp)

    def _lead(self, batch: Sequence[TopicPartition]) -> None:
        """Elect the first replica of each list and wait until it leads.

        For partitions that were taken back, this is done only if the first replica was the leader before.
        """
        first = {tp: self._goals[tp][0] for tp in batch if tp in self._done}
        first = {p: b for p, b in first.items() if p not in self._failed or self._start[p].leader == b}
        until, asked = self._cluster.now() + _ELECTED_S, False
        while first:
            seen, down = self._cluster.describe(first), self._cluster.offline_brokers()
            first = {p: broker for p, broker in first.items() if p in seen and seen[p].leader != broker}
            able = {p for p, broker in first.items() if broker in seen[p].in_sync and broker not in down}
            self._not_led |= {p: f"broker {first[p]} is down or not in sync" for p in first if p not in able}
            first = {tp: broker for tp, broker in first.items() if tp in able}
            if first and not asked:
                refused = self._cluster.elect_preferred_leaders(first)
                self._not_led |= refused
                first = {tp: broker for tp, broker in first.items() if tp not in refused}
                asked = True
            elif self._cluster.now() > until:
                self._not_led |= dict.fromkeys(first, "the election is taking too long")
                return
            if first:
                self._cluster.sleep(_LOOK_EVERY_S)

    def _report(self, batch: Sequence[TopicPartition], *, last: bool) -> None:
        if last or self._cluster.now() - self._counted_at > _COUNTED_EVERY_S:
            adding = {
                tp: set(self._wanted[tp]) - set(self._start[tp].replicas)
                for tp in batch
                if tp in self._start and tp not in self._failed
            }
            self._copied = self._cluster.copy_progress({tp: new for tp, new in adding.items() if new})
            self._counted_at = self._cluster.now()
        settled = len(self._done.keys() | self._failed.keys() | self._gone)
        self._report_progress(Progress(settled, len(self._wanted), self._copied))


def _clock(tp: TopicPartition, step: Action) -> tuple[str, str, int]:
    """Return the key of the clock for a stuck partition.

    Partitions that wait for a broker, or for a deleted topic, share one clock, so that the wait happens only once.
    """
    alone = step.cause in {"unknown", "leaderless"}
    return step.cause, tp.topic if alone or step.cause == "gone" else "", tp.partition if alone else -1
