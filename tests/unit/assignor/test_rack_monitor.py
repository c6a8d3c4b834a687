"""When a leader asks for a rebalance because replica racks have changed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rackassign import RackAwareStickyAssignor
from rackassign.assignor.history import AssignmentHistory, LeaderAssignment
from rackassign.assignor.rack_monitor import (
    CheckResult,
    RackChangeDetector,
    RackChangePolicy,
    RackView,
    RebalanceGain,
)
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import Broker, Group, LocalityMode, Member, Partition, Plan, Topology
from rackassign.racks import BrokerRackCache
from rackassign.strategies import STRATEGIES, Options, Strategy, plan_sticky

RACKS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}

JAVA = [[0, 1], [1, 2], [2, 0]]
"""Of Kafka's ConsumerCoordinatorTest: three partitions, six nodes in three racks."""


def topology(
    replicas: Sequence[Sequence[int]], racks: Mapping[int, str | None] = RACKS, *, leaders: Sequence[int | None] = ()
) -> Topology:
    led = leaders or [ids[0] for ids in replicas]
    return Topology(
        tuple(Broker(broker, rack) for broker, rack in racks.items()),
        {"t": tuple(Partition(tuple(ids), leader) for ids, leader in zip(replicas, led, strict=True))},
    )


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        pytest.param([[0, 2], [1, 2], [2, 0]], 1, id="different racks"),
        pytest.param([[0, 1, 2], [1, 2], [2, 0]], 1, id="additional racks"),
        pytest.param([[0, 1], [1, 2], [2]], 1, id="less racks"),
        pytest.param([*JAVA, [0, 1]], 1, id="new partitions"),
        pytest.param(JAVA, 0, id="no metadata change"),
        pytest.param([[3, 4], [4, 5], [5, 3]], 0, id="no rack change"),
        pytest.param([[0, 1, 3], [1, 2, 5], [2, 0, 3]], 0, id="new replicas on same racks"),
    ],
)
def test_what_java_calls_a_change_is_one(now: Sequence[Sequence[int]], changed: int) -> None:
    """The table of Kafka's own ConsumerCoordinatorTest, 4.3.0; the row of the rackless leader is a test below."""
    before = RackView.of(topology(JAVA), "any-replica")
    assert RackView.of(topology(now), "any-replica").changed_from(before) == changed
    # The same with a rack more in the cluster, so that racks have other bits.
    more = RackView.of(topology(now, {**RACKS, 9: "A"}), "any-replica")
    assert more.changed_from(before) == changed


def test_leaders_are_what_counts_where_only_leaders_are_read() -> None:
    before = RackView.of(topology(JAVA), "leader")
    assert RackView.of(topology([[0, 2], [1, 0], [2, 0]]), "leader").changed_from(before) == 0
    assert RackView.of(topology(JAVA, leaders=[1, 1, 2]), "leader").changed_from(before) == 1
    assert RackView.of(topology(JAVA, leaders=[3, 4, 5]), "leader").changed_from(before) == 0
    # Without a leader for a moment it is where it was.
    assert RackView.of(topology(JAVA, leaders=[None, 1, 2]), "leader").changed_from(before) == 0


class Led:
    """A group that was planned once, its clock, and what the watch says."""

    def __init__(
        self,
        replicas: Sequence[Sequence[int]] = JAVA,
        *,
        strategy: Strategy = plan_sticky,
        members: str = "abc",
        mode: LocalityMode = "any-replica",
        times: RackChangePolicy | None = None,
    ) -> None:
        self.group = Group(
            topology(replicas), tuple(Member(f"m{i}", frozenset({"t"}), rack) for i, rack in enumerate(members))
        )
        self.strategy = strategy
        self.options = Options(locality=mode)
        self.watch = RackChangeDetector(strategy, self.options, times or RackChangePolicy())
        self.decided = self._decide(self.group)
        self.now = 1000.0
        self.asked = 0

    def _decide(self, group: Group) -> LeaderAssignment:
        plan = self.strategy(group, self.options)
        return LeaderAssignment(plan.assignment, not plan.withheld, group, plan)

    def plan_again(self, seen: Topology) -> None:
        assert self.decided.plan is not None
        held = self.decided.plan.target
        members = tuple(replace(m, owned=held[m.id], generation=1) for m in self.group.members)
        self.decided = self._decide(replace(self.group, topology=seen, members=members))

    def watched(self, seen: Topology, seconds: float) -> int:
        """Let time pass with this view, looking when the watch wants to; return how often it asked."""
        asked, end = 0, self.now + seconds
        look = self.watch.check(self.now, self.decided, seen)
        while True:
            asked += look.gain is not None
            if look.next_check_s is None or self.now + look.next_check_s > end:
                self.now = end
                return asked
            self.now += look.next_check_s
            look = self.watch.check(self.now, self.decided, seen)


@pytest.fixture
def led() -> Led:
    """Return a group whose three partitions are local."""
    return Led([[0], [1], [2]])


def test_a_change_that_lasts_is_asked_for_once_and_again_while_it_is_not_heard(led: Led) -> None:
    seen = topology([[1], [2], [0]])
    assert led.watched(seen, 2.9) == 0
    assert led.watched(seen, 0.2) == 1
    assert led.watched(seen, 9.7) == 0
    # The request was lost in a join that was under way.
    assert led.watched(seen, 0.2) == 1
    led.plan_again(seen)
    assert led.watched(seen, 100) == 0


class Cluster:
    """What a client knows of a cluster: metadata that it asks for when it is told to, and keeps."""

    def __init__(self, led: Led, known: Topology) -> None:
        self.led = led
        self.known = known
        self.there = known
        self.seen_at = led.now
        self.refreshed = 0

    def pass_time(self, seconds: float) -> list[tuple[float, RebalanceGain]]:
        """Let time pass; return when a rebalance was asked for, and for what."""
        led, asked = self.led, list[tuple[float, RebalanceGain]]()
        start, end = led.now, led.now + seconds
        while True:
            look = led.watch.check(led.now, led.decided, self.known, self.seen_at)
            if look.gain is not None:
                asked.append((led.now - start, look.gain))
                led.plan_again(self.known)
            if look.refresh:
                self.refreshed += 1
                self.known, self.seen_at = self.there, led.now
            elif look.next_check_s is None or led.now + look.next_check_s > end:
                led.now = end
                return asked
            else:
                led.now += look.next_check_s


def test_a_view_is_seen_again_before_it_is_acted_upon(led: Led) -> None:
    """The client looked in the middle of a reassignment, and would not look again for five minutes."""
    half, whole = topology([[1], [1], [2]]), topology([[1], [2], [0]])
    cluster = Cluster(led, half)
    cluster.there = whole
    ((at, gain),) = cluster.pass_time(600)
    assert at <= 10
    assert gain.then == Locality(3, 0, 0)
    assert led.decided.group is not None
    assert led.decided.group.topology == whole


def test_a_view_that_gains_nothing_is_looked_at_again_less_and_less_often(led: Led) -> None:
    """While replicas are copied the lists of old and new are one: that gains nothing, and what follows does."""
    cluster = Cluster(led, topology([[0, 1], [1, 2], [2, 0]]))
    cluster.there = cluster.known
    assert cluster.pass_time(30) == []
    cluster.there = topology([[1], [2], [0]])
    assert len(cluster.pass_time(60)) == 1
    before = cluster.refreshed
    led = Led([[0], [1], [2]])
    cluster = Cluster(led, topology([[0, 1], [1, 2], [2, 0]]))
    assert cluster.pass_time(3600) == []
    # It is not asked for ever.
    assert cluster.refreshed <= before + 8


def test_metadata_that_come_by_themselves_make_no_pause_shorter() -> None:
    led = Led([[0], [1], [2]], times=RackChangePolicy(min_change_duration_s=0))
    seen = topology([[0, 1], [1, 2], [2, 0]])
    assert led.watch.check(1000.0, led.decided, seen) == CheckResult(next_check_s=1.0)
    assert led.watch.check(1000.25, led.decided, seen) == CheckResult(next_check_s=0.75)
    assert led.watch.check(1001.0, led.decided, seen) == CheckResult(next_check_s=2.0, refresh=True)
    assert led.watch.check(1001.5, led.decided, seen) == CheckResult(next_check_s=1.5)


def test_a_change_whose_last_view_is_older_than_its_debounce_is_looked_at_again_after_one() -> None:
    led = Led([[0], [1], [2]], times=RackChangePolicy(min_change_duration_s=5))
    seen = topology([[1], [0], [2]])
    assert led.watch.check(0.0, led.decided, seen) == CheckResult(next_check_s=5.0)
    assert led.watch.check(5.0, led.decided, seen, 0.0) == CheckResult(next_check_s=5.0, refresh=True)
    assert led.watch.check(5.0, led.decided, seen, 5.0).gain is not None


def test_a_view_that_never_rests_is_acted_upon_after_the_interval(led: Led) -> None:
    asked = 0
    for i in range(12):
        asked += led.watched(topology([[1], [0], [2, 4 + i % 2]]), 1.0)
    assert asked == 1


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=list(STRATEGIES))
def test_a_change_that_changes_no_assignment_is_not_asked_for(strategy: Strategy) -> None:
    led = Led([[0], [1], [2]], strategy=strategy)
    assert led.watched(topology([[0, 1], [1, 2], [2, 0]]), 100) == 0
    # And once it does it is.
    assert led.watched(topology([[1], [0], [2]]), 100) >= 1


def test_a_strategy_that_moves_for_nothing_is_not_let() -> None:
    """Range is greedy and keeps nothing: planned again it may move what is read no nearer then."""
    asked = vain = 0
    for seed in range(200):
        dice = random.Random(seed)
        replicas = [dice.sample(range(6), 2) for _ in range(dice.randrange(3, 9))]
        led = Led(replicas, strategy=STRATEGIES["range"], members="abcab"[: dice.randrange(2, 6)])
        for _ in range(2):
            replicas[dice.randrange(len(replicas))] = dice.sample(range(6), 2)
        led.watch = RackChangeDetector(led.strategy, led.options, RackChangePolicy(min_change_duration_s=0))
        gain = led.watch.check(0.0, led.decided, topology(replicas)).gain
        asked += gain is not None
        vain += gain is not None and gain.then.cross >= gain.now.cross
    assert asked > 20
    assert vain == 0


def test_planning_is_done_once_for_a_view_that_gains_nothing() -> None:
    calls = []

    def counted(group: Group, options: Options) -> object:
        calls.append(1)
        return plan_sticky(group, options)

    led = Led([[0], [1], [2]])
    led.watch = RackChangeDetector(counted, led.options, RackChangePolicy(min_change_duration_s=0))  # type: ignore[arg-type]
    for _ in range(10):
        assert led.watched(topology([[0, 1], [1, 2], [2, 0]]), 5) == 0
    assert len(calls) == 1


def test_a_view_whose_plan_was_cut_by_time_is_planned_again() -> None:
    led = Led([[0], [1], [2]], times=RackChangePolicy(min_change_duration_s=0))
    seen = topology([[1], [2], [0]])
    pauses: list[float] = []
    for _ in range(12):
        result = led.watch.check(led.now, led.decided, seen, time_limit_s=0.0)
        assert result.gain is None
        # It may be one half of a reassignment.
        assert result.refresh == bool(pauses)
        assert result.next_check_s is not None
        pauses.append(result.next_check_s)
        # Meanwhile nothing is planned, whatever the limit.
        assert led.watch.check(led.now, led.decided, seen).gain is None
        led.now += result.next_check_s
    assert pauses[:3] == [1, 2, 4]
    assert pauses[-1] == 300
    assert led.watch.check(led.now, led.decided, seen).gain is not None


def test_a_plan_that_was_cut_is_followed_by_a_longer_pause() -> None:
    """Where plans are made on the client's thread, they take at most a fifth of its time."""
    led = Led([[0], [1], [2]], times=RackChangePolicy(min_change_duration_s=0))

    def cut(group: Group, options: Options) -> Plan:
        plan = plan_sticky(group, replace(options, time_limit_s=0.0))
        return replace(plan, seconds=options.time_limit_s or 0.0)

    led.watch = RackChangeDetector(cut, led.options, RackChangePolicy(min_change_duration_s=0))
    result = led.watch.check(led.now, led.decided, topology([[1], [2], [0]]), time_limit_s=10.0)
    assert result == CheckResult(next_check_s=40.0)


def test_a_broker_that_is_away_and_comes_back_is_no_change() -> None:
    led = Led()
    memory = BrokerRackCache()
    memory.update(led.group.topology.brokers)
    away = topology(JAVA, {broker: rack for broker, rack in RACKS.items() if broker})
    assert RackView.of(away, "any-replica").changed_from(RackView.of(led.group.topology, "any-replica")) == 2
    assert led.watched(memory.fill_missing(away), 100) == 0
    assert led.watched(memory.fill_missing(topology(JAVA)), 100) == 0


def test_a_topic_that_is_not_listed_or_has_shrunk_is_as_it_was(led: Led) -> None:
    assert led.watched(replace(led.group.topology, topics={}), 100) == 0
    assert led.watched(topology([[1], [0]]), 100) == 0


def test_nobody_else_s_group_is_watched_nor_one_that_is_not_whole() -> None:
    led = Led([[0], [1], [2]], times=RackChangePolicy(min_change_duration_s=0))
    seen = topology([[1], [0], [2]])
    assert led.watch.check(0.0, None, seen) == CheckResult()
    assert led.watch.check(0.0, LeaderAssignment({}), seen) == CheckResult()
    assert led.watch.check(0.0, led.decided._replace(complete=False), seen) == CheckResult()
    assert led.watch.check(0.0, led.decided, seen).gain is not None


def test_partitions_that_were_added_are_planned_for_with_weights_too() -> None:
    led = Led([[0], [1], [2]], times=RackChangePolicy(min_change_duration_s=0))
    led.decided = led._decide(replace(led.group, weights={"t": (1.0, 2.0, 3.0)}))
    look = led.watch.check(0.0, led.decided, topology([[0], [1], [2], [0]]))
    assert look.gain is not None
    assert look.gain.then.local == 4


def test_weights_of_a_topic_that_has_not_grown_are_planned_with() -> None:
    led = Led([[1], [0], [0], [0]], members="ab", times=RackChangePolicy(min_change_duration_s=0))
    led.decided = led._decide(replace(led.group, weights={"t": (3.0, 1.0, 1.0, 1.0)}))
    look = led.watch.check(0.0, led.decided, topology([[0], [1], [1], [1]]))
    assert look.gain is not None
    # Two partitions for each member would leave one of them in the other rack.
    assert look.gain.then == Locality(4, 0, 0)


@pytest.mark.parametrize(
    "times",
    [
        {"min_change_duration_s": -1},
        {"min_interval_s": float("nan")},
        {"min_interval_s": True},
        {"min_interval_s": 10**400},
        {"min_change_duration_s": "3"},
    ],
)
def test_times_are_checked(times: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be 0 or more"):
        RackChangePolicy(**times)


def test_a_decision_counts_from_the_generation_it_came_true_in() -> None:
    decisions, first, second = AssignmentHistory(), LeaderAssignment({}), LeaderAssignment({})
    decisions.propose(first)
    assert decisions.last is None
    decisions.commit(5)
    assert decisions.last is first
    decisions.on_join()
    assert decisions.last is None
    decisions.propose(second)
    decisions.commit(6)
    assert (decisions.get(5), decisions.get(6), decisions.last) == (first, second, second)
    # Another one leads.
    decisions.on_join()
    decisions.commit(7)
    assert (decisions.get(5), decisions.get(6), decisions.last) == (None, second, None)


def test_decisions_of_a_group_s_former_life_are_not_held_against_anybody() -> None:
    """Generations begin anew when a group has been removed while its consumers live."""
    decisions = AssignmentHistory()
    for generation in (56, 57):
        decisions.on_join()
        decisions.propose(LeaderAssignment({}))
        decisions.commit(generation)
    for generation in range(1, 58):
        decisions.on_join()
        decisions.commit(generation)
        assert decisions.get(generation) is None
    assert decisions.get(56) is None


def test_memory_is_bounded_and_forgets_what_was_seen_longest_ago() -> None:
    memory = BrokerRackCache(most=3)
    for broker in (1, 2, 3, 1, 4):
        memory.update([Broker(broker, f"r{broker}")])
    assert memory.racks() == {3: "r3", 1: "r1", 4: "r4"}
    assert memory.rack_of(2) is None
    known = Topology((Broker(1, "r1"), Broker(3), Broker(4, "x")), {})
    memory.update(known.brokers)
    assert memory.fill_missing(known) is known
    assert memory.racks() == {1: "r1", 3: None, 4: "x"}
    assert {b.id: b.rack for b in memory.fill_missing(Topology((), {})).brokers} == {1: "r1", 3: None, 4: "x"}


@pytest.mark.parametrize("monitor", [False, "off", 5, RackChangePolicy])
def test_what_is_no_policy_of_the_rack_monitor_is_refused(monitor: Any) -> None:
    with pytest.raises(ConfigError, match="rack_monitor must be a RackChangePolicy, or None to disable it, got"):
        RackAwareStickyAssignor(rack=None, rack_monitor=monitor)
