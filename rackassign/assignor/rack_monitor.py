"""Detect changes of replica racks that are worth a rebalance (the second half of KIP-881).

The detector neither blocks nor makes requests: `RackChangeDetector.check` gets the group's last assignment, the
topology and the current time, and returns what to do. Its rules:

* What counts is the difference between the racks of the last assignment and the current ones, not the events in
  between. So a rebalance that was requested and lost is requested again, and a new leader sees the same difference as
  the old one.
* Racks are compared, not replicas. A shrinking ISR, a new replica in the same rack, or a broker that is offline
  (`racks` keeps its rack) make no difference.
* A difference must last. While replicas are moved the lists of old and new are one for a time, so each change of the
  view restarts the wait. If a view never settles, it is acted upon after the interval.
* The change must last in the cluster, not only in a copy of it: clients keep their metadata for minutes. So the
  detector acts only upon a view that was seen again after the wait, and requests new metadata until then. A view
  without a gain may be one half of a reassignment, so it is checked again as well, less and less often.
* A rebalance stops consumers, so it must bring a gain. The group is planned again, from its members' current
  partitions. No rebalance is requested if they would keep them, or if no more partitions would be local than before.
* A plan that was cut by its time limit is no answer: the view is planned again, less and less often.

The leader's monitor runs the check after each refresh of the metadata, some time after an assignment is complete (a
refresh may have come during the join), and when the check itself requests it. It requests a rejoin explicitly. Changing
a client's snapshot of the metadata would not work: no client has racks in it, and a join that kafka-python's snapshot
starts is never read if it finishes between two polls and the patch for that is off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

from rackassign.assignor.adapter import AnyCluster, GroupMembership, time_limit_s
from rackassign.assignor.history import AssignmentHistory, LeaderAssignment
from rackassign.errors import ConfigError
from rackassign.locality import Locality, RackSets
from rackassign.model import Group, LocalityMode, Partitions, Topology
from rackassign.racks import BrokerRackCache
from rackassign.strategies import Options, Strategy
from rackassign.text import WarnOnce, short_repr

_LEAST_S = 1.0
"""Minimum seconds until a request is checked for its effect: the consumer must be polled first."""

_LONGEST_S = 300.0
"""Longest pause. The client's own refreshes are as frequent (`metadata.max.age.ms`)."""

_PAUSE_PER_PLAN = 4
"""How many times as long as a plan that was cut the pause after it is."""


@dataclass(frozen=True, slots=True)
class RackChangePolicy:
    """How a leader monitors the racks of the replicas.

    Args:
        min_change_duration_s: Seconds that a change must last.
        min_interval_s: Minimum seconds between two requested rebalances.

    Raises:
        ConfigError: If one is no number, or negative.
    """

    min_change_duration_s: float = 3.0
    min_interval_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("min_change_duration_s", "min_interval_s"):
            value: Any = getattr(self, name)
            try:
                valid = not isinstance(value, bool) and isinstance(value, Real) and float(value) >= 0
            except OverflowError:
                valid = False
            if not valid:
                raise ConfigError(f"{name} must be 0 or more, got {short_repr(value)}")


class RackView(NamedTuple):
    """The racks of the counting replicas of each partition."""

    # The index of each rack is its bit. For each topic `near` has the racks of each partition, as bits.
    racks: tuple[str, ...]
    near: Mapping[str, tuple[int, ...]]
    mode: LocalityMode

    @classmethod
    def of(cls, topology: Topology, mode: LocalityMode) -> RackView:
        racks = RackSets.of(topology, mode)
        near = {topic: tuple(bits) for topic, bits in racks.all_partition_racks(topology).items()}
        return cls(tuple(racks.bits), near, mode)

    def changed_from(self, before: RackView) -> int:
        """Count the partitions whose racks are new or differ; in mode `leader` not those without a leader."""
        names = self.racks if self.racks == before.racks else None
        changed = 0
        for topic, now in self.near.items():
            then = before.near.get(topic, ())
            if names is not None and now == then:
                continue
            changed += len(now) - len(then)
            changed += sum(
                (bits != old if names is not None else self._names(bits) != before._names(old))
                and (bits != 0 or self.mode != "leader")
                for bits, old in zip(now, then, strict=False)
            )
        return changed

    def _names(self, bits: int) -> list[str]:
        return [rack for i, rack in enumerate(self.racks) if bits >> i & 1]


class RebalanceGain(NamedTuple):
    """The expected gain of a rebalance."""

    # Partitions whose replica racks have changed; None if those of the last assignment are not known.
    changed: int | None
    now: Locality
    then: Locality
    moved: int


class CheckResult(NamedTuple):
    """Actions that the check requests."""

    # Of the rebalance to request; None to request none.
    gain: RebalanceGain | None = None
    # Seconds until the next check; None to wait for the next view.
    next_check_s: float | None = None
    # Whether to request new metadata from the brokers.
    refresh: bool = False


class RackChangeDetector:
    """Compares the topology with a group's last assignment, while this consumer leads the group."""

    def __init__(self, strategy: Strategy, options: Options, times: RackChangePolicy) -> None:
        self._strategy = strategy
        self._options = options
        self.times = times
        self._decided: LeaderAssignment | None = None
        self._before: RackView | None = None
        # `_due_at` sets both before it reads them, since no view was seen.
        self._first = self._unchanged_since = 0.0  # pragma: no mutate
        self._seen: RackView | None = None
        self._view_without_gain: RackView | None = None
        self._cut = False
        self._rejoin_requested_at: float | None = None
        self._pause = self._due = 0.0

    def check(
        self,
        now: float,
        decided: LeaderAssignment | None,
        topology: Topology,
        seen_at: float | None = None,
        time_limit_s: float | None = None,
    ) -> CheckResult:
        """Compare the topology, which includes offline brokers, with the assignment; times are those of one clock."""
        if decided is None or decided.group is None or not decided.complete:
            return CheckResult()
        mode = self._options.locality
        topology = _with_all_topics(topology, decided.group.topology)
        if decided is not self._decided or self._before is None:
            self._decided, self._before = decided, RackView.of(decided.group.topology, mode)
            self._seen = self._view_without_gain = None
        view = RackView.of(topology, mode)
        changed = view.changed_from(self._before)
        if not changed:
            self._seen = None
            return CheckResult()
        if view == self._view_without_gain and (now < self._due or not self._cut):
            return self._look_after_vain(now)
        seen_at = now if seen_at is None else seen_at
        due = self._due_at(seen_at, view)
        if due > now:
            return CheckResult(next_check_s=due - now)
        if seen_at < due:
            return CheckResult(next_check_s=max(self.times.min_change_duration_s, _LEAST_S), refresh=True)
        gain, self._cut = self.gain(decided.group, decided.assignment, topology, changed, time_limit_s)
        if gain is None:
            again = view == self._view_without_gain
            self._pause = 2 * self._pause if again else max(self.times.min_change_duration_s, _LEAST_S)
            if self._cut:
                # Where the client has no thread for plans, it waits for them.
                self._pause = min(max(self._pause, _PAUSE_PER_PLAN * (time_limit_s or 0)), _LONGEST_S)
            self._view_without_gain, self._due = view, now + self._pause
            return CheckResult(next_check_s=self._pause, refresh=again)
        self._rejoin_requested_at = now
        return CheckResult(gain, max(self.times.min_interval_s, _LEAST_S))

    def _look_after_vain(self, now: float) -> CheckResult:
        """Request new metadata each time a pause is over; each pause is twice as long as the one before."""
        if now < self._due:
            return CheckResult(next_check_s=self._due - now)
        self._pause *= 2
        if self._pause > _LONGEST_S:
            return CheckResult()
        self._due = now + self._pause
        return CheckResult(next_check_s=self._pause, refresh=True)

    def _due_at(self, seen_at: float, view: RackView) -> float:
        """Return the time at which this view has lasted long enough."""
        if self._seen is None:
            self._first = seen_at
        if view != self._seen:
            self._seen, self._unchanged_since = view, seen_at
        due = min(self._unchanged_since + self.times.min_change_duration_s, self._first + self.times.min_interval_s)
        if self._rejoin_requested_at is not None:
            due = max(due, self._rejoin_requested_at + self.times.min_interval_s)
        return due

    def gain(
        self,
        group: Group,
        assignment: Mapping[str, Partitions],
        topology: Topology,
        changed: int | None,
        time_limit_s: float | None,
    ) -> tuple[RebalanceGain | None, bool]:
        """Plan the group again; return the gain, if its members do not keep what they have, and whether time was up."""
        now = replace(
            group,
            topology=topology,
            # Partitions may have been added, which have no weights.
            weights={
                topic: row for topic, row in group.weights.items() if len(row) == len(topology.topics.get(topic, ()))
            },
            # The generation only has to be the same for all members.
            members=tuple(
                replace(member, owned=assignment[member.id], generation=0)  # pragma: no mutate
                for member in group.members
            ),
        )
        again = self._strategy(now, replace(self._options, time_limit_s=time_limit_s))
        moved = sum(
            len(set(partitions).difference(again.target[member].get(topic, ())))
            for member, owned in assignment.items()
            for topic, partitions in owned.items()
        )
        reached = Locality.count(now, assignment, RackSets.of(topology, self._options.locality))
        then = Locality.of(now, again)
        # A plan with the fewest moves has no needless ones; that of another strategy, or one past its budget, may have.
        better = moved and ("moves" in again.proven or then.cross < reached.cross)
        cut = bool(again.optimality_note) and time_limit_s is not None and again.seconds >= time_limit_s
        if not better and _sizes(again.target) == _sizes(assignment):
            return None, cut
        return RebalanceGain(changed if group.topology.topics else None, reached, then, moved), cut


def _with_all_topics(topology: Topology, before: Topology) -> Topology:
    """Return a topology with removed topics, and topics that lost partitions, unchanged: the client handles those."""
    gone = {
        topic: partitions
        for topic, partitions in before.topics.items()
        if len(topology.topics.get(topic, ())) < len(partitions)
    }
    return replace(topology, topics={**topology.topics, **gone}) if gone else topology


def _sizes(target: Mapping[str, Partitions]) -> int:
    return sum(len(partitions) for owned in target.values() for partitions in owned.values())


class RackMonitor:
    """Monitors the racks of replicas for the group that a consumer leads.

    All of it runs where the client calls its assignors, but for the checks, which the client may run on a thread.
    """

    def __init__(
        self,
        detector: RackChangeDetector,
        history: AssignmentHistory,
        topology: Callable[[AnyCluster, Iterable[str]], Topology],
        log: logging.Logger,
        once: WarnOnce,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._detector = detector
        self._history = history
        self._topology = topology
        self._log = log
        self._once = once
        self._clock = clock
        self._due: float | None = None
        self._seen_at = clock()
        self._rejoin_requested_at = False
        self._checked: GroupMembership | None = None
        self._check_again = False

    def refreshed(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        """Check new metadata; never raises."""
        self._seen_at = self._clock()
        self.check(membership, racks)

    def check(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        """Check now, and again when that is requested; never raises."""
        # Of a consumer that was stopped meanwhile no check ends.
        if self._checked is membership:
            self._check_again = True
            return
        try:
            self._run_check(membership, racks)
        except Exception:  # noqa: BLE001 - what cannot be watched must still be consumed
            self._checked = None
            self._warn()

    def _warn(self) -> None:
        self._once.warn("watch", "the racks of replicas cannot be monitored", exc_info=True)

    def _run_check(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        last = self._history.last
        if last is None or last.group is None:
            return
        topics = sorted(frozenset[str]().union(*(member.topics for member in last.group.members)))
        topology = racks.fill_missing(self._topology(membership.cluster(), topics))
        now, seen_at, limit_s = self._clock(), self._seen_at, time_limit_s(membership)

        def compare() -> CheckResult:
            try:
                return self._detector.check(now, last, topology, seen_at, limit_s)
            except Exception:  # noqa: BLE001 - as above
                self._warn()
                return CheckResult()

        def act(result: CheckResult) -> None:
            self._checked = None
            try:
                # After another join the result is about an assignment that is over.
                if self._history.last is last:
                    self._act(result, membership, racks)
            except Exception:  # noqa: BLE001 - as above
                self._warn()
            if self._check_again:
                self._check_again = False
                self.check(membership, racks)

        self._checked, self._check_again = membership, False
        membership.compute(compare, act)

    def _act(self, result: CheckResult, membership: GroupMembership, racks: BrokerRackCache) -> None:
        if result.gain is not None:
            self._log.info("%s", _described(result.gain))
            self._rejoin_requested_at = True
            membership.request_rejoin()
        if result.next_check_s is not None:
            self._schedule(result.next_check_s, membership, racks)
        if result.refresh:
            membership.refresh_metadata()

    def check_after_assignment(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        """Check when a current change would have lasted long enough; never raises."""
        try:
            if self._history.last is not None:
                self._schedule(self._detector.times.min_change_duration_s, membership, racks)
                if self._rejoin_requested_at:
                    # The cause of the rebalance may continue: a reassignment does not end because of a rebalance.
                    self._rejoin_requested_at = False
                    membership.refresh_metadata()
        except Exception:  # noqa: BLE001 - as above
            self._warn()

    def check_returned(self, membership: GroupMembership, group: Group, assignment: Mapping[str, Partitions]) -> None:
        """Request a rebalance if it makes the described assignment more local, for a member that does not lead."""
        generation, limit_s = membership.generation(), time_limit_s(membership)

        def plan() -> RebalanceGain | None:
            try:
                return self._detector.gain(group, assignment, group.topology, None, limit_s)[0]
            except Exception:  # noqa: BLE001 - as above
                self._warn()
                return None

        def act(gain: RebalanceGain | None) -> None:
            if gain is not None and gain.then.cross < gain.now.cross and membership.generation() == generation:
                self._log.info("%s", _described(gain))
                membership.request_rejoin()

        membership.compute(plan, act)

    def _schedule(self, seconds: float, membership: GroupMembership, racks: BrokerRackCache) -> None:
        now = self._clock()
        due = now + seconds
        if self._due is None or not now < self._due <= due:
            membership.call_later(seconds, lambda: self._run_scheduled(due, membership, racks))
            self._due = due

    def _run_scheduled(self, due: float, membership: GroupMembership, racks: BrokerRackCache) -> None:
        if due == self._due:
            self._due = None
            self.check(membership, racks)


def _described(gain: RebalanceGain) -> str:
    changed = (
        "this static member has returned"
        if gain.changed is None
        else f"replica racks of {gain.changed} partitions have changed"
    )
    return (
        f"{changed}: a rebalance makes {gain.then.local} local instead of {gain.now.local}, {gain.then.cross} cross"
        f" racks instead of {gain.now.cross}, and moves {gain.moved}"
    )
