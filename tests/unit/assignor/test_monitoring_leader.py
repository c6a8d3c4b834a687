"""What a leader's monitor requests of its client, and when: checks, metadata, and rejoins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import pytest

from rackassign.assignor.history import AssignmentHistory, LeaderAssignment
from rackassign.assignor.rack_monitor import RackChangeDetector, RackChangePolicy, RackMonitor
from rackassign.model import Broker, Group, Member, Partition, Plan, Topology
from rackassign.racks import BrokerRackCache
from rackassign.strategies import Options, plan_sticky
from rackassign.text import WarnOnce

FIRST, MOVED, COPYING = ([[0], [1], [2]], [[1], [2], [0]], [[0, 1], [1, 2], [2, 0]])
"""Replicas of a topic: at first, after a reassignment, and with the old and the new ones."""

LOG = "rackassign.test.monitor"


def topology(replicas: list[list[int]]) -> Topology:
    brokers = tuple(Broker(i, rack) for i, rack in enumerate("abc"))
    return Topology(brokers, {"t": tuple(Partition(tuple(ids), ids[0]) for ids in replicas)})


class Leader:
    """A leader with its monitor: a client that is played, and its clock."""

    def __init__(self, policy: RackChangePolicy | None = None, *, on_thread: bool = False) -> None:
        self.now = 1000.0
        self.on_thread = on_thread
        self.computing: list[Callable[[], None]] = []
        self.early = 0.0
        self.broken = False
        self.view = self.there = topology(FIRST)
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.looks: list[float] = []
        self.refreshes: list[float] = []
        self.rejoins: list[float] = []
        self.limits: list[float | None] = []
        self.topics: list[list[str]] = []
        self.history = AssignmentHistory()
        self.racks = BrokerRackCache()
        log = logging.getLogger(LOG)
        detector = RackChangeDetector(self.plan, Options(), policy or RackChangePolicy())
        self.monitor = RackMonitor(detector, self.history, self.known, log, WarnOnce(log), clock=lambda: self.now)
        self.generation = 0

    def plan(self, group: Group, options: Options) -> Plan:
        self.limits.append(options.time_limit_s)
        return plan_sticky(group, options)

    def known(self, cluster: Any, topics: Iterable[str]) -> Topology:
        assert cluster == "cluster"
        self.topics.append(list(topics))
        self.looks.append(self.now - 1000)
        if self.broken:
            raise RuntimeError("changed")
        return self.view

    def lead(self) -> None:
        """Complete a rebalance."""
        self.generation += 1
        members = tuple(Member(f"m{rack}", frozenset({"t"}), rack) for rack in "abc")
        group = Group(self.view, (*members, Member("other", frozenset({"s", "r"}))))
        plan = plan_sticky(group)
        self.history.on_join()
        self.history.propose(LeaderAssignment(plan.assignment, group=group, plan=plan))
        self.history.commit(self.generation)
        self.monitor.check_after_assignment(self.membership, self.racks)

    def refresh(self) -> None:
        """Let the client get metadata."""
        self.view = self.there
        self.racks.update(self.view.brokers)
        self.monitor.refreshed(self.membership, self.racks)

    @property
    def membership(self) -> Any:
        return self

    def cluster(self) -> str:
        return "cluster"

    def session_timeout_s(self) -> float:
        return 45.0

    def compute(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if self.on_thread:
            self.computing.append(lambda: done(work()))
        else:
            done(work())

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.calls.append((self.now + delay_s - self.early, callback))
        self.early = 0.0

    def refresh_metadata(self) -> None:
        self.refreshes.append(self.now - 1000)
        self.calls.append((self.now + 0.5, self.refresh))

    def request_rejoin(self) -> None:
        self.rejoins.append(self.now - 1000)

    def pass_time(self, seconds: float) -> None:
        """Call what is due until then."""
        end = self.now + seconds
        while self.calls and min(due for due, _ in self.calls) <= end:
            first = min(self.calls, key=lambda call: call[0])
            self.calls.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


@pytest.fixture
def leader() -> Leader:
    """Return a leader that has led once."""
    leader = Leader()
    leader.lead()
    return leader


def test_a_change_is_acted_upon_when_it_has_lasted_and_was_seen_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    leader = Leader()
    leader.lead()
    leader.pass_time(60)
    leader.there = topology(MOVED)
    leader.refresh()
    leader.pass_time(2)
    assert leader.refreshes == []
    leader.pass_time(1.4)
    assert (leader.refreshes, leader.rejoins) == ([63.0], [])
    leader.pass_time(0.2)
    assert leader.rejoins == [63.5]
    (record,) = caplog.records
    assert record.getMessage() == (
        "replica racks of 3 partitions have changed: a rebalance makes 3 local instead of 0, 0 cross racks instead of"
        " 3, and moves 3"
    )
    # Those of all members, each once.
    assert leader.topics[0] == ["r", "s", "t"]


def test_the_first_check_knows_when_the_monitor_began() -> None:
    """The metadata are as old as the monitor, at most, if none has come since."""
    leader = Leader(RackChangePolicy(min_change_duration_s=3, min_interval_s=100))
    leader.lead()
    leader.view = leader.there = topology(MOVED)
    leader.pass_time(3)
    # First seen at 0, so after three seconds it is time to see it again.
    assert (leader.looks, leader.refreshes) == ([3.0], [3.0])


def test_a_request_that_has_no_effect_is_repeated_after_the_interval(leader: Leader) -> None:
    leader.there = topology(MOVED)
    leader.refresh()
    leader.pass_time(30)
    assert leader.rejoins[0] == 3.5
    assert [round(later - before) for before, later in zip(leader.rejoins, leader.rejoins[1:], strict=False)] == [
        10,
        10,
    ]


def test_after_a_requested_rebalance_new_metadata_are_requested_once(leader: Leader) -> None:
    leader.there = topology(MOVED)
    leader.refresh()
    leader.pass_time(4)
    assert (leader.refreshes, len(leader.rejoins)) == ([3.0], 1)
    leader.lead()
    assert leader.refreshes == [3.0, 4.0]
    leader.pass_time(60)
    leader.lead()
    leader.pass_time(60)
    assert leader.refreshes == [3.0, 4.0]
    assert len(leader.rejoins) == 1


def test_checks_that_are_due_already_are_not_scheduled_again(leader: Leader) -> None:
    leader.there = topology(MOVED)
    for _ in range(5):
        leader.refresh()
    assert len(leader.calls) == 1
    leader.pass_time(1)
    # Another view has to last as well, but one check at the time of the first is enough.
    leader.there = topology(COPYING)
    leader.refresh()
    leader.refresh()
    assert len(leader.calls) == 1


def test_metadata_that_come_when_a_check_is_due_take_its_place(leader: Leader) -> None:
    leader.pass_time(10)
    leader.there = topology(MOVED)
    leader.refresh()
    leader.now += 3
    leader.refresh()
    assert leader.rejoins == [13.0]
    leader.looks.clear()
    leader.pass_time(9)
    assert leader.looks == []


def test_after_a_check_that_is_made_a_little_early_there_is_another(leader: Leader) -> None:
    """Timers may have another clock, or a coarser one."""
    leader.pass_time(10)
    leader.there = topology(MOVED)
    leader.early = 0.25
    leader.refresh()
    leader.pass_time(5)
    assert leader.rejoins == [13.5]


def test_of_two_scheduled_checks_the_earlier_one_is_made() -> None:
    leader = Leader(RackChangePolicy(min_change_duration_s=4, min_interval_s=5))
    leader.lead()
    leader.pass_time(4)
    leader.there = topology(MOVED)
    leader.refresh()
    leader.pass_time(3)
    # The view changes after three seconds; after five it is checked, and not three seconds later.
    leader.there = topology([[1], [2], [0, 1]])
    leader.refresh()
    leader.looks.clear()
    leader.pass_time(20)
    assert leader.rejoins[0] == pytest.approx(9.5)
    assert len(leader.looks) == len(set(leader.looks))


def test_while_a_thread_computes_new_metadata_wait_for_it() -> None:
    leader = Leader(RackChangePolicy(min_change_duration_s=0), on_thread=True)
    leader.lead()
    leader.there = topology(MOVED)
    for _ in range(3):
        leader.refresh()
    assert len(leader.computing) == 1
    leader.computing.pop()()
    assert len(leader.rejoins) == 1
    assert len(leader.computing) == 1


def test_what_a_thread_never_told_a_consumer_that_was_stopped_does_not_stop_the_next_one() -> None:
    leader = Leader(RackChangePolicy(min_change_duration_s=0), on_thread=True)
    leader.lead()
    leader.there = topology(MOVED)
    leader.refresh()
    stopped = leader.computing.pop()
    leader.monitor.refreshed(copy(leader).membership, leader.racks)
    assert len(leader.computing) == 1
    del stopped


def test_a_member_that_does_not_lead_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    leader.monitor.check_after_assignment(leader.membership, leader.racks)
    leader.there = topology(MOVED)
    leader.refresh()
    # One whose join could not be decoded has no group to compare with.
    leader.history.propose(LeaderAssignment({}))
    leader.history.commit(1)
    leader.refresh()
    assert (leader.calls, leader.looks) == ([], [])
    assert not caplog.records


def test_what_fails_is_logged_once_and_not_raised(leader: Leader, caplog: pytest.LogCaptureFixture) -> None:
    leader.broken = True
    leader.refresh()
    leader.pass_time(10)
    assert len(leader.looks) == 2
    assert [record.getMessage() for record in caplog.records] == ["the racks of replicas cannot be monitored"]
    assert "RuntimeError: changed" in caplog.text
    # As soon as it works again, changes are found.
    leader.broken = False
    leader.there = topology(MOVED)
    leader.refresh()
    leader.pass_time(10)
    assert len(leader.rejoins) == 1
