"""Going through partitions wave by wave.

A wave that cannot go on (a broker died that was to get a copy) is taken back, partition by partition, to the list it
began with. What was not begun when a run ends is not touched at all.
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
"""Refusals of a list, as with a broker in it that is no longer registered: trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """How much at a time, and how long to wait.

    Args:
        wave: Partitions that are reassigned at the same time, 1 or more.
        rate: Bytes a second that each broker sends, and receives, for it; None for no limit.
        patience_s: Seconds after which a partition that is stuck is given up.
        timeout_s: Seconds after which everything that is not done is; None for no end.
    """

    wave: int = 50
    rate: int | None = None
    patience_s: float = 30.0
    timeout_s: float | None = None


class Progress(NamedTuple):
    """How far a repair is.

    Args:
        settled: Partitions that are done or given up.
        partitions: How many there are.
        copied: Of the wave that is on its way.
    """

    settled: int
    partitions: int
    copied: CopyProgress


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What became of a repair.

    Args:
        done: Partitions that have their list.
        failed: Why the others do not; they have the list they had when this run began, unless it says otherwise.
        deleted: Partitions that are not there, with the reason; there is nothing left to do for them.
        sent: Partitions whose replicas this run has changed.
        leader_not_elected: Partitions whose preferred replica does not lead, with the reason.
        final: Those that failed for good: somebody else has changed them, or the cluster takes no such list.
    """

    done: tuple[TopicPartition, ...]
    failed: Mapping[TopicPartition, str]
    sent: int
    deleted: Mapping[TopicPartition, str] = field(default_factory=dict)
    leader_not_elected: Mapping[TopicPartition, str] = field(default_factory=dict)
    final: frozenset[TopicPartition] = frozenset()


Told = Callable[[Progress], None]


class BatchExecutor:
    """One run over all partitions.

    Args:
        hands: Change the cluster.
        moves: All lists that are known.
        goals: The list each partition is to have.
        pace: How much at a time.
        told: Told how far it is.
        stop: Tells whether to end.

    Attributes:
        sent: Partitions whose replicas have been changed.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        hands: ReassignmentCluster,
        moves: Mapping[TopicPartition, ReplicaMove],
        goals: Mapping[TopicPartition, Replicas],
        pace: ExecutionLimits,
        told: Told,
        stop: Callable[[], bool],
    ) -> None:
        self._hands, self._moves, self._pace, self._told, self._stop = hands, moves, pace, told, stop
        self._wanted = goals
        self._goals = dict(goals)
        self._until = None if pace.timeout_s is None else self._hands.now() + pace.timeout_s
        self._start: dict[TopicPartition, PartitionStatus] = {}
        self._stuck_since: dict[tuple[str, str, int], float] = {}
        self._touched: set[TopicPartition] = set()
        self._taken: dict[TopicPartition, Replicas] = {}
        self._done: dict[TopicPartition, None] = {}
        self._failed: dict[TopicPartition, str] = {}
        self._gone: set[TopicPartition] = set()
        self._lost: set[TopicPartition] = set()
        self._final: set[TopicPartition] = set()
        self._not_led: dict[TopicPartition, str] = {}
        self._copied, self._counted_at = CopyProgress(0, 0), float("-inf")
        self.sent: set[TopicPartition] = set()

    def all(self) -> ExecutionResult:
        """Do all of it, wave by wave."""
        places = list(self._goals)
        # Who may not see all of it does none of it.
        self._hands.describe(places)
        for begin in range(0, len(places), self._pace.wave):
            why = self._ending()
            if why:
                self._leave(places[begin:], why)
                break
            wave = places[begin : begin + self._pace.wave]
            self._settle(wave)
            self._lead(wave)
        failed = {place: self._failed[place] for place in sorted(self._failed)}
        done = self._done.keys() - failed
        missing = self._hands.missing(sorted(self._gone)) if self._gone else {}
        gone = {place: missing.get(place, "it was not there for a while") for place in sorted(self._gone)}
        return ExecutionResult(
            tuple(sorted(done)),
            failed,
            len(self.sent & done),
            gone,
            dict(self._not_led),
            frozenset(self._final & failed.keys()),
        )

    def _leave(self, places: Sequence[TopicPartition], why: str) -> None:
        """Leave partitions alone, except for what an earlier run has begun: that is taken back."""
        seen = self._hands.describe(places)
        begun = [p for p in places if p in seen and seen[p].target in self._moves[p].known()]
        self._settle(begun)
        for place in places:
            if place not in self._done:
                self._failed.setdefault(place, why)

    def _settle(self, wave: Sequence[TopicPartition]) -> None:
        """Look and act until each partition has its list, or has been given up and is where it was."""
        left = list(wave)
        while left:
            seen, down = self._hands.describe(left), self._hands.offline_brokers()
            for place in left:
                if place in seen:
                    self._start.setdefault(place, self._at_rest(place, seen[place]))
            steps = {place: self._step(place, seen.get(place), down) for place in left}
            if self._ending():
                for place, step in steps.items():
                    if step.do != "done":
                        self._give_up(place, self._ending())
                steps = {place: self._step(place, seen.get(place), down) for place in left}
            self._act({place: step for place, step in steps.items() if place not in self._lost}, seen)
            self._done |= dict.fromkeys(place for place, step in steps.items() if step.do == "done")
            self._time(steps)
            left = [place for place, step in steps.items() if not self._over(place, step)]
            self._tell(wave, last=not left)
            if left:
                self._hands.sleep(_LOOK_EVERY_S)

    def _ending(self) -> str:
        """Return why nothing more is to be begun."""
        if self._stop():
            return "stopped"
        return "time is up" if self._until is not None and self._hands.now() > self._until else ""

    def _at_rest(self, place: TopicPartition, seen: PartitionStatus) -> PartitionStatus:
        """Return a partition as it was before what runs, if an earlier run has begun that."""
        move = self._moves[place]
        if seen.target is None or seen.target not in move.known():
            return seen
        self._touched.add(place)
        return replace(seen, replicas=move.after if seen.target == move.before else move.before, target=None)

    def _step(self, place: TopicPartition, seen: PartitionStatus | None, down: frozenset[int]) -> Action:
        goal, start = self._goals[place], self._start.get(place, PartitionStatus(self._goals[place], frozenset(), None))
        step = next_step(goal, self._moves[place].known(), seen, start, down)
        # A broker that is behind may show a list that the partition has no more. Sending one that it has does nothing.
        return Action("send") if step.do == "done" and self._taken.get(place) != goal else step

    def _act(self, steps: Mapping[TopicPartition, Action], seen: Mapping[TopicPartition, PartitionStatus]) -> None:
        lists = {
            place: self._goals[place] if step.do == "send" else None
            for place, step in steps.items()
            if step.do in {"send", "cancel"}
        }
        self._touched |= lists.keys()
        refused = self._hands.alter_reassignments(lists) if lists else {}
        for place, row in lists.items():
            if row is None:
                # What is to be cancelled may have come to its end in that moment.
                continue
            there = seen[place].replicas == row
            if place not in refused or there:
                self._taken[place] = row
                self.sent |= set() if there else {place}
                continue
            if place in self._failed:
                self._lost.add(place)
            if refused[place] in _FINAL:
                self._final.add(place)
            self._give_up(place, refused[place])

    def _time(self, steps: Mapping[TopicPartition, Action]) -> None:
        """Start clocks for what is stuck, and stop those of what is not any more, unless they have run out."""
        now = self._hands.now()
        stuck = {_clock(place, step) for place, step in steps.items() if step.do == "stuck"}
        kept = {c: at for c, at in self._stuck_since.items() if c in stuck or now - at >= self._pace.patience_s}
        self._stuck_since = dict.fromkeys(stuck, now) | kept

    def _over(self, place: TopicPartition, step: Action) -> bool:
        """Tell whether nothing more can be done for a partition, and give one up that has been stuck too long."""
        if step.do == "foreign":
            self._failed.setdefault(place, step.why)
        if step.do in {"foreign", "done"} or place in self._lost:
            return True
        if step.do != "stuck":
            return False
        if self._hands.now() - self._stuck_since[_clock(place, step)] < self._pace.patience_s:
            return False
        if step.cause == "gone":
            self._gone.add(place)
            return True
        if place in self._failed or step.cause == "unknown":
            if step.cause == "unknown":
                self._final.add(place)
            self._failed.setdefault(place, step.why)
            return True
        self._give_up(place, step.why)
        return place in self._lost

    def _give_up(self, place: TopicPartition, why: str) -> None:
        """Have a partition go back to the list it had when this run began, if anything was done to it."""
        if place in self._done or place in self._failed:
            return
        self._failed[place] = why
        if place in self._touched and place in self._start:
            self._goals[place] = self._start[place].replicas
        else:
            self._lost.add(place)

    def _lead(self, wave: Sequence[TopicPartition]) -> None:
        """Have the first of each list lead, and wait until it does; of what was taken back only if it led before."""
        first = {place: self._goals[place][0] for place in wave if place in self._done}
        first = {p: b for p, b in first.items() if p not in self._failed or self._start[p].leader == b}
        until, asked = self._hands.now() + _ELECTED_S, False
        while first:
            seen, down = self._hands.describe(first), self._hands.offline_brokers()
            first = {p: broker for p, broker in first.items() if p in seen and seen[p].leader != broker}
            able = {p for p, broker in first.items() if broker in seen[p].in_sync and broker not in down}
            self._not_led |= {p: f"broker {first[p]} is down or not in sync" for p in first if p not in able}
            first = {place: broker for place, broker in first.items() if place in able}
            if first and not asked:
                refused = self._hands.elect_preferred_leaders(first)
                self._not_led |= refused
                first = {place: broker for place, broker in first.items() if place not in refused}
                asked = True
            elif self._hands.now() > until:
                self._not_led |= dict.fromkeys(first, "the election takes long")
                return
            if first:
                self._hands.sleep(_LOOK_EVERY_S)

    def _tell(self, wave: Sequence[TopicPartition], *, last: bool) -> None:
        if last or self._hands.now() - self._counted_at > _COUNTED_EVERY_S:
            adding = {
                place: set(self._wanted[place]) - set(self._start[place].replicas)
                for place in wave
                if place in self._start and place not in self._failed
            }
            self._copied = self._hands.copy_progress({place: new for place, new in adding.items() if new})
            self._counted_at = self._hands.now()
        settled = len(self._done.keys() | self._failed.keys() | self._gone)
        self._told(Progress(settled, len(self._wanted), self._copied))


def _clock(place: TopicPartition, step: Action) -> tuple[str, str, int]:
    """Return what a partition is stuck for: of a topic that is gone, or a broker, it need be waited for but once."""
    alone = step.cause in {"unknown", "leaderless"}
    return step.cause, place.topic if alone or step.cause == "gone" else "", place.partition if alone else -1
