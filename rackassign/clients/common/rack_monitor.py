"""Whether the racks of replicas have changed in a way that is worth a rebalance (the second half of KIP-881).

Nothing here waits or asks anybody: `Watch.check` is told what the group lives by, what the cluster looks like and what
time it is, and says what to do. Its rules:

* What counts is the difference between the racks the last assignment was made from and those there are now, and not
  that something happened in between. A rebalance that was asked for and lost is so asked for again, and a new leader
  sees the same difference as the old one.
* Racks are compared, and not replicas: an ISR that shrinks, a replica more in the same rack, a broker that is away
  (`racks.memory` keeps its rack) are no difference.
* A difference must last. While replicas are moved the lists of old and new are one for a time, so each change of the
  view begins the wait anew; but a view that never rests is acted upon after the interval.
* What lasts is the cluster and not a copy of it: clients keep their metadata for minutes. So nothing is acted upon that
  was not seen again after the wait, and new metadata are asked for until it was. A view that gains nothing may be one
  half of a reassignment: it is looked at again as well, less and less often.
* A rebalance stops consumers, so it must buy something: the group is planned again, from what its members have now,
  and nothing is asked for if they would keep it, or read no more at home than before.

The leader's monitor runs the check after each refresh of the metadata, some time after an assignment is complete (a
refresh may have come while the join was under way), and when the check itself asks for it. It requests a rejoin
explicitly. Changing a client's snapshot of the metadata would not do: no client has racks in it, and a join that
kafka-python's snapshot starts is never read if it finishes between two polls and the patch for that is off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from rackassign.clients.common.adapter import AnyCluster, GroupMembership, time_limit_s
from rackassign.clients.common.assignment_history import AssignmentHistory, LeaderAssignment
from rackassign.errors import ConfigError
from rackassign.locality import Locality, RackSets
from rackassign.model import Group, LocalityMode, Partitions, Plan, Topology
from rackassign.racks import BrokerRackCache
from rackassign.strategies import Options, Strategy
from rackassign.util.log_once import WarnOnce

_LEAST_S = 1.0
"""Until it is looked whether a request was heard: the user must poll first."""

_LONGEST_S = 300.0
"""After such a pause the client's own refreshes are as frequent (`metadata.max.age.ms`)."""


@dataclass(frozen=True, slots=True)
class RackChangePolicy:
    """How a leader watches the racks of the replicas.

    Args:
        min_change_duration_s: Seconds that a change must last.
        min_interval_s: Seconds between two rebalances that are asked for, at least.

    Raises:
        ConfigError: If one is negative.
    """

    min_change_duration_s: float = 3.0
    min_interval_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("min_change_duration_s", "min_interval_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class RackView:
    """The racks of the counting replicas of each partition.

    Args:
        racks: Names of the racks, in order; the place of each is its bit.
        near: For each topic the racks of each partition, as bits.
        mode: Which replicas count.
    """

    racks: tuple[str, ...]
    near: Mapping[str, tuple[int, ...]]
    mode: LocalityMode

    @classmethod
    def of(cls, topology: Topology, mode: LocalityMode) -> RackView:
        """Look at a topology."""
        racks = RackSets.of(topology, mode)
        near = {topic: tuple(bits) for topic, bits in racks.all_partition_racks(topology).items()}
        return cls(tuple(racks.bits), near, mode)

    def changed_from(self, before: RackView) -> int:
        """Count the partitions whose racks are others than before, new ones included.

        In mode `leader` a partition that has none now is as it was.
        """
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
    """What a rebalance is asked for.

    Args:
        changed: Partitions whose replica racks have changed.
        now: How local the group is as it is.
        then: How local it will be.
        moved: Partitions that move.
    """

    changed: int
    now: Locality
    then: Locality
    moved: int


class CheckResult(NamedTuple):
    """What to do.

    Args:
        gain: Ask for a rebalance, for this; None not to.
        again_s: Look again in so many seconds; None to wait for the next view.
        refresh: Ask the brokers for new metadata.
    """

    gain: RebalanceGain | None = None
    again_s: float | None = None
    refresh: bool = False


class RackChangeDetector:
    """Watches what one group lives by, while it is led from here.

    Args:
        strategy: Plans the group again.
        options: Of the strategy.
        times: How long changes must last, and how often a rebalance may be asked for.
    """

    def __init__(self, strategy: Strategy, options: Options, times: RackChangePolicy) -> None:
        self._strategy = strategy
        self._options = options
        self.times = times
        self._decided: LeaderAssignment | None = None
        self._before: RackView | None = None
        self._first = self._still = 0.0
        self._seen: RackView | None = None
        self._vain: RackView | None = None
        self._asked: float | None = None
        self._pause = self._due = 0.0

    def check(
        self,
        now: float,
        decided: LeaderAssignment | None,
        topology: Topology,
        seen_at: float | None = None,
        time_limit_s: float | None = None,
    ) -> CheckResult:
        """Say what to do.

        Args:
            now: Seconds, of a clock that only goes forward.
            decided: What the group lives by; None if it was not decided here, and then there is nothing to do.
            topology: What the cluster looks like, brokers that are away included.
            seen_at: When it was that, on the same clock; now if left out.
            time_limit_s: Seconds that planning may take; None for no limit.
        """
        if decided is None or decided.group is None or decided.plan is None or not decided.complete:
            return CheckResult()
        mode = self._options.locality
        topology = _with_all_topics(topology, decided.group.topology)
        if decided is not self._decided or self._before is None:
            self._decided, self._before = decided, RackView.of(decided.group.topology, mode)
            self._seen = self._vain = None
        view = RackView.of(topology, mode)
        changed = view.changed_from(self._before)
        if not changed:
            self._seen = None
            return CheckResult()
        if view == self._vain:
            return self._look_after_vain(now)
        seen_at = now if seen_at is None else seen_at
        due = self._due_at(seen_at, view)
        if due > now:
            return CheckResult(again_s=due - now)
        if seen_at < due:
            return CheckResult(again_s=max(self.times.min_change_duration_s, _LEAST_S), refresh=True)
        gain = self._gain(decided.group, decided.plan, topology, changed, time_limit_s)
        if gain is None:
            self._vain = view
            self._pause = max(self.times.min_change_duration_s, _LEAST_S)
            self._due = now + self._pause
            return CheckResult(again_s=self._pause)
        self._asked = now
        return CheckResult(gain, max(self.times.min_interval_s, _LEAST_S))

    def _look_after_vain(self, now: float) -> CheckResult:
        """Ask for new metadata each time a pause is over; each is twice as long as the one before."""
        if now < self._due:
            return CheckResult(again_s=self._due - now)
        self._pause *= 2
        if self._pause > _LONGEST_S:
            return CheckResult()
        self._due = now + self._pause
        return CheckResult(again_s=self._pause, refresh=True)

    def _due_at(self, seen_at: float, view: RackView) -> float:
        """Return when this view has lasted."""
        if self._seen is None:
            self._first = seen_at
        if view != self._seen:
            self._seen, self._still = view, seen_at
        due = min(self._still + self.times.min_change_duration_s, self._first + self.times.min_interval_s)
        if self._asked is not None:
            due = max(due, self._asked + self.times.min_interval_s)
        return due

    def _gain(
        self, group: Group, plan: Plan, topology: Topology, changed: int, time_limit_s: float | None
    ) -> RebalanceGain | None:
        """Plan the group again from what its members have; None if they keep it."""
        now = replace(
            group,
            topology=topology,
            weights={topic: row for topic, row in group.weights.items() if _fits(row, topic, topology)},
            members=tuple(replace(member, owned=plan.target[member.id], generation=0) for member in group.members),
        )
        again = self._strategy(now, replace(self._options, time_limit_s=time_limit_s))
        moved = sum(
            len(set(partitions).difference(again.target[member].get(topic, ())))
            for member, owned in plan.target.items()
            for topic, partitions in owned.items()
        )
        kept = Locality.count(now, plan.target, RackSets.of(topology, self._options.locality))
        then = Locality.of(now, again)
        # A plan that is proven best moves nothing for nothing; that of another strategy may.
        better = moved and (again.optimal or then.cross < kept.cross)
        if not better and _sizes(again.target) == _sizes(plan.target):
            return None
        return RebalanceGain(changed, kept, then, moved)


def _with_all_topics(topology: Topology, before: Topology) -> Topology:
    """Return a topology where a topic that is gone, or has lost partitions, is as it was: the host sees to that."""
    gone = {
        topic: partitions
        for topic, partitions in before.topics.items()
        if len(topology.topics.get(topic, ())) < len(partitions)
    }
    return replace(topology, topics={**topology.topics, **gone}) if gone else topology


def _fits(row: tuple[float, ...], topic: str, topology: Topology) -> bool:
    """Tell whether weights are those of the topic as it is now: partitions may have been added."""
    return len(row) == len(topology.topics.get(topic, ()))


def _sizes(target: Mapping[str, Partitions]) -> int:
    return sum(len(partitions) for owned in target.values() for partitions in owned.values())


class RackMonitor:
    """Watches the racks of replicas for the group that a consumer leads; all of it runs where the client calls us.

    Args:
        watch: Says what to do.
        decisions: What this consumer decided as the leader.
        topology: Reads topics out of the client's view of the cluster.
        log: For what a rebalance is asked for.
        once: For what goes wrong.
        clock: Seconds, only forward.
    """

    def __init__(
        self,
        detector: RackChangeDetector,
        decisions: AssignmentHistory,
        topology: Callable[[AnyCluster, Iterable[str]], Topology],
        log: logging.Logger,
        once: WarnOnce,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = detector
        self._decisions = decisions
        self._topology = topology
        self._log = log
        self._once = once
        self._clock = clock
        self._due: float | None = None
        self._seen_at = clock()
        self._asked = False

    def refreshed(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        """Look at metadata that have just come; never raises."""
        self._seen_at = self._clock()
        self.check(membership, racks)

    def check(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        """Look now, and again when that is wanted; never raises."""
        try:
            self._look(membership, racks)
        except Exception:  # noqa: BLE001 - what cannot be watched must still be consumed
            self._once.warn("watch", "the racks of replicas cannot be watched", exc_info=True)

    def _look(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        decided = self._decisions.last
        if decided is None or decided.group is None:
            return
        topics = sorted(frozenset[str]().union(*(member.topics for member in decided.group.members)))
        topology = racks.fill_missing(self._topology(membership.cluster(), topics))
        limit_s = min(time_limit_s(membership), membership.spare_s())
        look = self._watch.check(self._clock(), decided, topology, self._seen_at, limit_s)
        if look.gain is not None:
            self._log.info("%s", _described(look.gain))
            self._asked = True
            membership.request_rejoin()
        if look.again_s is not None:
            self._look_in(look.again_s, membership, racks)
        if look.refresh:
            membership.refresh_metadata()

    def look_later(self, membership: GroupMembership, racks: BrokerRackCache) -> None:
        """Look when a change there is now would have lasted long enough; never raises."""
        try:
            if self._decisions.last is not None:
                self._look_in(self._watch.times.min_change_duration_s, membership, racks)
                if self._asked:
                    # What it was asked for may go on: a reassignment does not end for a rebalance.
                    self._asked = False
                    membership.refresh_metadata()
        except Exception:  # noqa: BLE001 - as above
            self._once.warn("watch", "the racks of replicas cannot be watched", exc_info=True)

    def _look_in(self, seconds: float, membership: GroupMembership, racks: BrokerRackCache) -> None:
        now = self._clock()
        due = now + seconds
        if self._due is None or not now < self._due <= due:
            membership.call_later(seconds, lambda: self._look_if_due(due, membership, racks))
            self._due = due

    def _look_if_due(self, due: float, membership: GroupMembership, racks: BrokerRackCache) -> None:
        if due == self._due:
            self._due = None
            self.check(membership, racks)


def _described(gain: RebalanceGain) -> str:
    return (
        f"replica racks of {gain.changed} partitions have changed: a rebalance makes {gain.then.local} local instead"
        f" of {gain.now.local}, {gain.then.cross} cross racks instead of {gain.now.cross}, and moves {gain.moved}"
    )
