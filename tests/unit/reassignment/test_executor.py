"""A repair on a played cluster: whatever happens in between, it comes to its end, or back to the lists as they were."""

from __future__ import annotations

import io
import json
import math
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.errors import KafkaTimeoutError
from rich.console import Console
from rich.progress import Progress as Display

from rackassign.admin.admin_client import AuthorizationError
from rackassign.cli.app import run
from rackassign.cli.commands import reassign as cli_repair
from rackassign.cli.commands import reassign as reassign_status
from rackassign.cli.terminal import ProgressDisplay, stop_requested
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES
from rackassign.reassignment import (
    ExecutionLimits,
    ExecutionResult,
    Journal,
    Progress,
    ReassignmentRequest,
    ReplicaMove,
    execute_plan,
    operations,
)
from rackassign.reassignment.executor import Direction
from rackassign.reassignment.journal import archive, begin, open_exclusive, read, write
from rackassign.reassignment.kafka_cluster import CopyProgress
from rackassign.reassignment.operations import plan_status
from rackassign.reassignment.throttle import FOLLOWING, LEADING, MOST_BYTES, SavedConfigs
from tests.helpers.fakes.reassignment_cluster import CrashError, FakePartition, FakeReassignmentCluster
from tests.helpers.json_schemas import parsed

PACE = ExecutionLimits(batch_size=3, rate=1_000_000, stall_timeout_s=20)
BROKERS = range(1, 7)


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


MOVES = {
    place(0): ReplicaMove((1, 2, 3), (1, 2, 4)),
    place(1): ReplicaMove((1, 2, 3), (5, 6, 4)),
    place(2): ReplicaMove((1, 2), (2, 1, 3)),
    place(3): ReplicaMove((3, 2, 1), (3,)),
    place(4): ReplicaMove((4, 5, 6), (6, 5, 4)),
}
BEFORE = {where: move.before for where, move in MOVES.items()}
AFTER = {where: move.after for where, move in MOVES.items()}


class PlanRunner:
    """Keeps what a journal says, as a file would."""

    def __init__(self, journal: Journal) -> None:
        self.kept = journal

    def keep(self, journal: Journal) -> None:
        self.kept = journal

    def run(
        self, stage: FakeReassignmentCluster, direction: Direction = "apply", pace: ExecutionLimits = PACE
    ) -> ExecutionResult:
        return execute_plan(stage, self.kept, direction, keep=self.keep, limits=pace, stop=stage.stop)[1]


def refuse(_: object) -> None:
    raise AuthorizationError("ALTER", "the cluster")


def untouched(stage: FakeReassignmentCluster) -> bool:
    return not stage.defaults and not any(stage.topics.values())


@pytest.mark.parametrize(("seconds", "led"), [(12, True), (90, False)])
def test_an_election_is_waited_for_as_long_as_partitions_are_without_progress(
    monkeypatch: pytest.MonkeyPatch, seconds: float, *, led: bool
) -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    elect = stage.elect_preferred_leaders

    def later(places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        asked = tuple(places)

        def happen() -> None:
            elect(asked)

        stage.events.append((stage.clock + seconds, happen))
        return {}

    monkeypatch.setattr(stage, "elect_preferred_leaders", later)

    _, outcome = execute_plan(
        stage, desk.kept, "apply", keep=desk.keep, limits=ExecutionLimits(), report_progress=lambda _: None
    )

    assert outcome.done == tuple(MOVES)
    assert set(outcome.leader_not_elected.values()) == (set() if led else {"not elected within 30 s"})


def test_partitions_get_their_lists_and_their_leaders_wave_by_wave_and_slowed_down() -> None:
    stage, desk, told = (
        FakeReassignmentCluster(BEFORE, BROKERS),
        PlanRunner(Journal("c", moves=MOVES)),
        list[Progress](),
    )
    ended, outcome = execute_plan(stage, desk.kept, "apply", keep=desk.keep, limits=PACE, report_progress=told.append)
    assert stage.lists() == AFTER
    assert outcome.done == tuple(MOVES)
    assert (outcome.failed, outcome.leader_not_elected, outcome.sent) == ({}, {}, 5)
    assert {where: part.led_by for where, part in stage.partitions.items()} == {w: row[0] for w, row in AFTER.items()}
    assert stage.most_running <= 3
    assert stage.unthrottled == 0
    assert untouched(stage)
    assert ended == desk.kept == replace(desk.kept, phase="applied", throttled=None)
    assert told[-1].settled == told[-1].partitions == 5
    # What is copied is that of all batches, not that of the last one.
    copies = sum(len(set(move.after) - set(move.before)) for move in MOVES.values())
    assert told[-1].copied == (copies, copies, True)
    assert [each.copied for each in told] == sorted(each.copied for each in told)


@pytest.mark.parametrize("rate", [None, 1_000_000], ids=["lists", "throttle"])
def test_it_is_over_when_every_broker_that_responds_has_applied_it(
    monkeypatch: pytest.MonkeyPatch, rate: int | None
) -> None:
    moves = {place(0): MOVES[place(0)]}

    def over(late: dict[int, float], *silent: int) -> float:
        stage = FakeReassignmentCluster({place(0): BEFORE[place(0)]}, BROKERS)
        stage.late, lists, configs = late, stage.replica_lists, stage.topic_configs

        def replica_lists(tps: Any, broker: int) -> Any:
            if broker in silent:
                raise KafkaTimeoutError
            return lists(tps, broker)

        def topic_configs(topics: Any, keys: Any, broker: int | None = None) -> Any:
            if broker in silent:
                raise KafkaTimeoutError
            return configs(topics, keys, broker)

        monkeypatch.setattr(stage, "replica_lists", replica_lists)
        monkeypatch.setattr(stage, "topic_configs", topic_configs)
        outcome = PlanRunner(Journal("c", moves=moves)).run(stage, pace=replace(PACE, rate=rate))
        assert outcome.done == (place(0),)
        return stage.clock

    usual = over({})
    assert usual + 5 <= over({2: usual + 5, 6: usual + 3}) < usual + 6
    # A broker that does not respond is left out, and one that lags for ever is waited for in vain.
    assert over({2: math.inf}, 2) == usual
    assert usual + 10 <= over({2: math.inf}) < usual + 25


def test_a_rollback_makes_the_very_same_lists_again() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    desk.run(stage)
    desk.run(stage, "rollback")
    assert stage.lists() == BEFORE
    assert desk.kept.phase == "rolled-back"
    assert untouched(stage)


@settings(deadline=None)
@given(
    ends=st.lists(st.integers(1, 60), max_size=4),
    seed=st.integers(0, 99),
    last=st.sampled_from(["apply", "rollback"]),
    how=st.sampled_from(["killed", "stopped"]),
)
# Killed after the throttle of the first run was removed, while brokers still report it.
@example(ends=[15, 5], seed=0, last="apply", how="killed")
def test_killed_or_stopped_anywhere_it_goes_on_and_nothing_is_left_behind(
    ends: list[int], seed: int, last: Direction, how: str
) -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS, seed), PlanRunner(Journal("c", moves=MOVES))
    others = {"t": {LEADING: "9:9"}}
    stage.topics = {"t": dict(others["t"])}
    stage.show_configs()
    for after in ends:
        at = stage.calls + after
        stage.crash_at, stage.stop_at = (at, -1) if how == "killed" else (-1, at)
        began = stage.lists()
        try:
            outcome = desk.run(stage)
        except CrashError:
            assert desk.kept.open
        else:
            assert set(outcome.failed.values()) <= {"stopped"}
            assert stage.lists() == {p: began[p] if p in outcome.failed else AFTER[p] for p in MOVES}
            assert (stage.defaults, stage.topics) == ({}, others)
    stage.crash_at = stage.stop_at = -1
    assert desk.run(stage, last).failed == {}
    assert stage.lists() == (BEFORE if last == "rollback" else AFTER)
    assert (stage.defaults, stage.topics) == ({}, others)
    assert not desk.kept.open


@settings(deadline=None)
@given(seed=st.integers(0, 99), dies=st.sampled_from([4, 5, 6]), at=st.floats(0, 3))
def test_what_waits_for_a_broker_that_died_is_taken_back_in_its_old_order(seed: int, dies: int, at: float) -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS, seed), PlanRunner(Journal("c", moves=MOVES))
    stage.events.append((at, lambda: stage.kill(dies)))
    outcome = desk.run(stage)
    assert stage.lists() == {where: BEFORE[where] if where in outcome.failed else AFTER[where] for where in MOVES}
    assert set(outcome.failed.values()) <= {f"waits for broker {dies}"}
    assert untouched(stage)
    assert desk.kept.phase == ("begun" if outcome.failed else "applied")
    # It comes back, and the rest is done by running it again.
    stage.away.clear()
    assert desk.run(stage).failed == {}
    assert stage.lists() == AFTER


def test_a_list_nobody_knows_and_what_others_reassign_are_left_alone() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    stage.partitions[place(0)].replicas = (5, 6)
    stage.partitions[place(1)].target = (1, 2, 6)
    stage.partitions[place(1)].adding = {6}
    stage.away.add(6)
    del stage.partitions[place(2)]
    outcome = desk.run(stage)
    assert outcome.failed == {
        place(0): "its replicas are 5, 6, which is no list of the plan",
        place(1): "another process reassigns it, to 1, 2, 6",
    }
    assert outcome.deleted == {place(2): "the topic has no such partition"}
    assert stage.partitions[place(0)].replicas == (5, 6)
    assert stage.partitions[place(1)].target == (1, 2, 6)


def test_what_the_controller_refuses_is_told_and_the_others_go_on() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, {1, 2, 3, 5, 6}), PlanRunner(Journal("c", moves=MOVES))
    outcome = desk.run(stage)
    assert outcome.failed == dict.fromkeys([place(0), place(1), place(4)], "InvalidReplicationAssignmentError")
    assert set(outcome.done) == {place(2), place(3)}


def test_when_time_is_up_what_is_not_done_goes_back() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    outcome = desk.run(stage, pace=replace(PACE, timeout_s=0))
    assert set(outcome.failed.values()) == {"time limit reached"}
    assert {place(3), place(4)} <= set(outcome.failed)
    assert stage.lists() == {where: BEFORE[where] if where in outcome.failed else AFTER[where] for where in MOVES}
    assert untouched(stage)


ONE = {place(0): ReplicaMove((1, 2), (1, 3))}


@pytest.mark.parametrize("lists_offline", [True, False])
def test_a_broker_that_dies_in_the_middle_is_given_up_whether_it_is_listed_or_not(*, lists_offline: bool) -> None:
    stage, desk = FakeReassignmentCluster({place(0): (1, 2)}, BROKERS), PlanRunner(Journal("c", moves=ONE))
    stage.lists_offline, stage.never_in_sync = lists_offline, {3}
    stage.events.append((1.0, lambda: stage.kill(3)))
    outcome = desk.run(stage)
    assert outcome.failed == {place(0): "waits for broker 3"}
    assert set(stage.lists()[place(0)]) == {1, 2}
    assert stage.clock < 2 * PACE.stall_timeout_s


def test_a_replica_that_copies_nothing_is_given_up_although_its_broker_is_online() -> None:
    stage, desk = FakeReassignmentCluster({place(0): (1, 2)}, BROKERS), PlanRunner(Journal("c", moves=ONE))
    stage.never_in_sync = {3}
    outcome = desk.run(stage)
    assert outcome.failed == {place(0): "nothing was copied for 30 s: waits for broker 3"}
    assert set(stage.lists()[place(0)]) == {1, 2}
    assert 30 <= stage.clock < 40
    assert desk.kept.phase == "begun"


def test_only_the_replica_in_sync_remaining_is_no_reassignment_that_is_awaited_for_ever() -> None:
    """Kafka does not complete a reassignment to replicas of which none is in sync."""
    move = {place(0): ReplicaMove((1, 3), (1,))}
    stage, desk = FakeReassignmentCluster({place(0): (1, 3)}, BROKERS), PlanRunner(Journal("c", moves=move))
    stage.partitions[place(0)].in_sync, stage.never_in_sync = {3}, {1}
    stage._show(1.0)
    assert desk.run(stage).failed == {place(0): "nothing was copied for 30 s: waits for broker 1"}
    assert set(stage.lists()[place(0)]) == {1, 3}


@pytest.mark.parametrize(
    "progress", [lambda t: CopyProgress(int(t), 500), lambda _: CopyProgress(0, 500, complete=False)]
)
def test_a_long_copy_is_awaited_while_it_proceeds_and_where_that_is_not_known(
    progress: Callable[[float], CopyProgress],
) -> None:
    stage, desk = FakeReassignmentCluster({place(0): (1, 2)}, BROKERS), PlanRunner(Journal("c", moves=ONE))
    stage.never_in_sync = {3}
    stage.events.append((500.0, stage.never_in_sync.clear))

    def copy_progress(adding: object) -> CopyProgress:
        del adding
        return progress(stage.clock)

    stage.copy_progress = copy_progress  # type: ignore[method-assign]
    assert desk.run(stage).done == (place(0),)
    assert stage.lists() == {place(0): (1, 3)}


def test_what_producers_write_meanwhile_is_no_progress_of_a_replica_that_copies_nothing() -> None:
    moves = {**ONE, place(1): ReplicaMove((1, 2), (1, 4))}
    stage = FakeReassignmentCluster({where: move.before for where, move in moves.items()}, BROKERS)
    stage.never_in_sync = {3}

    def copy_progress(adding: Mapping[TopicPartition, Iterable[int]]) -> CopyProgress:
        copies = [broker for brokers in adding.values() for broker in brokers]
        return CopyProgress(int(stage.clock) * len(set(copies) - {3}), int(stage.clock) * len(copies))

    stage.copy_progress = copy_progress  # type: ignore[method-assign]
    outcome = PlanRunner(Journal("c", moves=moves)).run(stage)
    assert outcome.failed == {place(0): "nothing was copied for 30 s: waits for broker 3"}
    assert outcome.done == (place(1),)


def test_an_old_replica_that_catches_up_for_long_is_awaited() -> None:
    move = {place(0): ReplicaMove((1, 2, 3), (2, 1))}
    stage, desk = FakeReassignmentCluster({place(0): (1, 2, 3)}, BROKERS), PlanRunner(Journal("c", moves=move))
    stage.partitions[place(0)].in_sync, stage.never_in_sync = {1, 3}, {2}
    stage._show(1.0)
    stage.events.append((500.0, stage.never_in_sync.clear))

    def copy_progress(adding: Mapping[TopicPartition, Iterable[int]]) -> CopyProgress:
        return CopyProgress(int(stage.clock) if any(2 in brokers for brokers in adding.values()) else 0, 500)

    stage.copy_progress = copy_progress  # type: ignore[method-assign]
    assert desk.run(stage).done == (place(0),)


def test_a_replica_that_falls_behind_at_the_end_does_not_undo_what_is_done() -> None:
    stage, desk = FakeReassignmentCluster({place(0): (1, 2)}, BROKERS), PlanRunner(Journal("c", moves=ONE))
    begun = stage._finish

    def finish(part: FakePartition) -> None:
        moving = part.target is not None
        begun(part)
        if moving and part.target is None:
            part.in_sync -= {3}
            stage.never_in_sync = {3}

    stage._finish = finish  # type: ignore[method-assign]
    assert desk.run(stage).failed == {place(0): "nothing was copied for 30 s: waits for broker 3"}
    assert stage.lists() == {place(0): (1, 3)}


def test_a_throttle_of_others_is_added_to_and_put_back() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves={place(0): MOVES[place(0)]}))
    stage.defaults = {RATES[0]: "7"}
    stage.topics = {"t": {LEADING: "9:9", FOLLOWING: "*"}}
    stage.show_configs()
    seen: list[dict[str, str]] = []
    stage.events.append((0.1, lambda: seen.append({**stage.defaults, **stage.topics["t"]})))
    desk.run(stage)
    assert seen == [{**dict.fromkeys(RATES, "1000000"), LEADING: "9:9,0:1,0:2,0:3,0:4", FOLLOWING: "*"}]
    assert (stage.defaults, stage.topics) == ({RATES[0]: "7"}, {"t": {LEADING: "9:9", FOLLOWING: "*"}})


@pytest.mark.long
@pytest.mark.parametrize("direction", ["apply", "rollback"])
def test_a_topic_of_more_partitions_than_its_configuration_holds_is_throttled_part_by_part(
    direction: Direction,
) -> None:
    moves = {TopicPartition(topic, n): ReplicaMove((1, 2, 3), (4, 5, 6)) for topic in "ut" for n in range(1000)}
    stage = FakeReassignmentCluster({tp: getattr(move, _ROW[direction]) for tp, move in moves.items()}, BROKERS)
    desk, lists = PlanRunner(Journal("c", moves=moves)), list[str]()
    alter = stage.alter_topic_configs

    def listed(changes: Mapping[str, Mapping[str, str | None]]) -> None:
        lists.append(str(changes["t"][LEADING]))
        alter(changes)

    stage.alter_topic_configs = listed  # type: ignore[method-assign]
    outcome = desk.run(stage, direction, replace(PACE, batch_size=200))
    assert (len(outcome.done), outcome.failed, stage.unthrottled) == (2000, {}, 0)
    assert untouched(stage)
    # Lists are set at the start, once for each topic where they do not have the next batch, and at the end.
    assert len(lists) == 4
    assert max(map(len, lists)) > 0.99 * MOST_BYTES


_ROW = {"apply": "before", "rollback": "after"}


@pytest.mark.long
def test_what_is_being_copied_already_is_throttled_first() -> None:
    moves = {place(n): ReplicaMove((1, 2, 3), (4, 5, 6)) for n in range(3000)}
    stage = FakeReassignmentCluster({tp: move.before for tp, move in moves.items()}, BROKERS)
    stage.alter_reassignments({place(2999): (4, 5, 6)})
    stage.unthrottled = 0
    outcome = PlanRunner(Journal("c", moves=moves)).run(stage, pace=replace(PACE, batch_size=50))
    assert (outcome.failed, stage.unthrottled) == ({}, 0)


def test_a_batch_that_is_too_large_to_be_throttled_is_refused() -> None:
    moves = {place(n): ReplicaMove((1, 2, 3), (4, 5, 6)) for n in range(3000)}
    stage = FakeReassignmentCluster({tp: move.before for tp, move in moves.items()}, BROKERS)
    desk = PlanRunner(Journal("c", moves=moves))
    with pytest.raises(ConfigError, match=r"^throttle: 2000 partitions at a time .* of topic \"t\": use a smaller"):
        desk.run(stage, pace=replace(PACE, batch_size=2000))
    assert desk.kept == Journal("c", moves=moves)
    assert untouched(stage)
    assert stage.lists() == {tp: move.before for tp, move in moves.items()}


def test_what_is_not_begun_when_it_is_to_end_is_not_touched() -> None:
    moves = {TopicPartition("t", n): ReplicaMove((1, 2), (2, 3)) for n in range(100)}
    stage, desk = (
        FakeReassignmentCluster({where: move.before for where, move in moves.items()}, BROKERS),
        PlanRunner(Journal("c", moves=moves)),
    )
    stage.stop_at = 40
    calls: list[TopicPartition] = []
    stage.on_reassign = calls.extend
    outcome = desk.run(stage, pace=replace(PACE, batch_size=1))
    assert len(outcome.done) < 20
    assert set(calls) <= {*outcome.done, TopicPartition("t", len(outcome.done))}
    assert {part.led_by for where, part in stage.partitions.items() if where in outcome.failed} == {1}
    assert set(outcome.failed.values()) == {"stopped"}


def test_a_dead_broker_and_a_topic_that_is_gone_are_waited_for_once_not_in_every_wave() -> None:
    moves = {TopicPartition(topic, n): ReplicaMove((1, 2), (2, 3)) for topic in ("gone", "t") for n in range(20)}
    stage, desk = (
        FakeReassignmentCluster({p: m.before for p, m in moves.items() if p.topic == "t"}, BROKERS),
        PlanRunner(Journal("c", moves=moves)),
    )
    stage.kill(3)
    outcome = desk.run(stage, pace=replace(PACE, batch_size=1))
    assert len(outcome.deleted) == len(outcome.failed) == 20
    assert stage.clock < 3 * PACE.stall_timeout_s


@pytest.mark.parametrize("refuses", ["alter_cluster_configs", "alter_topic_configs"])
def test_a_throttle_that_was_left_is_not_forgotten_by_who_may_not_take_it_away(
    monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    stage.crash_at = 12
    with pytest.raises(CrashError):
        desk.run(stage)
    left, stage.crash_at = desk.kept.throttled, -1
    assert left is not None
    with monkeypatch.context() as patched:
        patched.setattr(stage, refuses, refuse)
        with pytest.raises(AuthorizationError):
            desk.run(stage, pace=replace(PACE, rate=None))
    assert desk.kept.throttled == left
    assert desk.run(stage).failed == {}
    assert untouched(stage)


def test_two_throttled_repairs_do_not_put_back_each_other_s_throttle() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves={place(0): MOVES[place(0)]}))
    stage.defaults = dict.fromkeys(RATES, "500000")
    stage.show_configs()
    stage.partitions[place(1)].target = (4, 5, 6)
    with pytest.raises(ConfigError, match="throttled reassignments of another process are in progress"):
        desk.run(stage)
    assert desk.kept == Journal("c", moves={place(0): MOVES[place(0)]})
    assert stage.lists()[place(0)] == BEFORE[place(0)]


@pytest.mark.parametrize("refuses", ["alter_reassignments", "alter_cluster_configs", "alter_topic_configs"])
def test_who_may_not_do_it_has_done_nothing(monkeypatch: pytest.MonkeyPatch, refuses: str) -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    monkeypatch.setattr(stage, refuses, refuse)
    with pytest.raises(AuthorizationError):
        desk.run(stage)
    assert desk.kept == Journal("c", moves=MOVES)
    assert stage.lists() == BEFORE
    assert untouched(stage)


def test_a_journal_reads_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(
        "c",
        ReassignmentRequest(
            ("t",), 3, frozenset({5}), rebalance=True, group="g", rules={"leaders": "rack", "weights": {"1": 2}}
        ),
        {place(0): ReplicaMove((1, 2), (2, 3), ((1, 3),))},
        {place(1): (1, -1)},
        "begun",
        SavedConfigs({RATES[0]: "1"}, {"t": {LEADING: "0:1"}}),
    )
    write(tmp_path / "j", journal)
    assert read(tmp_path / "j") == journal


def test_lists_as_they_were_are_not_written_over(tmp_path: Path) -> None:
    file, later = tmp_path / "plan.json", Journal("c", moves={place(0): ReplicaMove((1,), (2,))})
    assert begin(file, Journal("c", moves=MOVES)) is None
    assert begin(file, Journal("c", moves=MOVES, phase="applied")) is None
    assert begin(file, later) == tmp_path / "plan.1.json"
    assert read(tmp_path / "plan.1.json").moves == MOVES
    write(file, replace(later, phase="begun"))
    with pytest.raises(ConfigError, match="is a plan in progress"):
        begin(file, later)
    with open_exclusive(file), pytest.raises(ConfigError, match="another process is using"), open_exclusive(file):
        pass


GOOD: dict[str, Any] = {
    "format": "rackassign-repair/1",
    "cluster": "c",
    "phase": "planned",
    "wish": None,
    "moves": {"t": {"0": {"before": [1], "after": [2]}}},
    "waiting": {},
    "throttled": None,
}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"format": "rackassign-repair/2"}, r'format: expected "rackassign-repair/1", got "rackassign-repair/2"'),
        ({"phase": "over"}, 'phase: expected planned, begun, .*, got "over"'),
        ({"cluster": 7}, "expected text, got 7"),
        ({"wish": {"group": 5}}, "group"),
        ({"wish": {"no": 1}}, "no"),
        ({"throttled": 5}, "throttled: expected an object, got 5"),
        ({"throttled": {"brokers": {}, "topics": {"t": 5}}}, r"throttled\.topics\.t: expected an object, got 5"),
        ({"throttled": {"brokers": {}}}, 'throttled: the field "topics" is missing'),
        ({"more": 1}, "more: unknown field; known are cluster, format"),
        ({"moves": []}, "moves: expected an object, got an array of 0"),
        ({"moves": {"t": {"0": {"before": [1]}}}}, r'moves\.t\.0: the field "after" is missing'),
        ({"moves": {"t": {"0": {"before": [1], "after": [2], "then": []}}}}, r"moves\.t\.0\.then: unknown field"),
        ({"moves": {"t": {"0": {"before": 1, "after": [2]}}}}, r"moves\.t\.0\.before: expected an array, got 1"),
        (
            {"moves": {"t": {"0": {"before": [[1]], "after": [2]}}}},
            r"moves\.t\.0\.before: .* is not a list of replicas",
        ),
        (
            {"moves": {"t": {"0": {"before": [1], "after": [2]}, "00": {"before": [1], "after": [2]}}}},
            "the partition is listed twice",
        ),
        ({"wish": {"topics": "t"}}, "wish.topics: expected an array"),
        ({"wish": {"rf": "3"}}, 'wish.rf: expected an integer, got "3"'),
        ({"wish": []}, "wish: expected an object, got an array of 0"),
        ({"throttled": {"brokers": {"rate": 5}, "topics": {}}}, "expected text, got 5"),
        ({"moves": {"t": {"0": {"before": [1], "after": [2**40]}}}}, "is not a list of replicas"),
        ({"moves": {"t": {"0": {"before": [1], "after": [-1]}}}}, "is not a list of replicas"),
        ({"moves": {"t": {"-1": {"before": [1], "after": [2]}}}}, "invalid partition"),
        ({"moves": {"\ud800": {"0": {"before": [1], "after": [2]}}}}, "invalid partition"),
        ({"moves": {"t": {"0": {"before": [], "after": [2]}}}}, "is not a list of replicas"),
    ],
)
def test_a_plan_that_somebody_has_spoilt_is_refused(tmp_path: Path, wrong: dict[str, Any], problem: str) -> None:
    (tmp_path / "j").write_text(json.dumps(GOOD))
    assert read(tmp_path / "j").moves == {place(0): ReplicaMove((1,), (2,))}
    (tmp_path / "j").write_text(json.dumps({**GOOD, **wrong}))
    with pytest.raises(ConfigError, match=problem) as caught:
        read(tmp_path / "j")
    assert "\n" not in str(caught.value)


def test_a_plan_says_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "j").write_text(json.dumps(GOOD).replace('"phase":', '"phase": "begun", "phase":'))
    with pytest.raises(ConfigError, match="phase"):
        read(tmp_path / "j")


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[" * 100_000])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "j").write_text(text)
    with pytest.raises(ConfigError, match="is not a plan file of rackassign"):
        read(tmp_path / "j")


def test_a_plan_that_nobody_wants_any_more_is_put_by(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert archive(file) is None
    write(file, Journal("c", moves=MOVES))
    assert archive(file) == tmp_path / "plan.1.json"
    assert not file.exists()
    write(file, Journal("c", moves=MOVES, phase="applied"))
    assert archive(file) is None


def test_a_repair_that_goes_on_still_knows_the_first_lists() -> None:
    first = Journal(
        "c", moves={place(0): ReplicaMove((1, 2), (1, 3)), place(1): ReplicaMove((1,), (2,))}, phase="applied"
    )
    later = first.joined(Journal("c", moves={place(0): ReplicaMove((1, 3), (1, 4)), place(2): ReplicaMove((5,), (6,))}))
    assert later.moves == {
        place(0): ReplicaMove((1, 2), (1, 4), ((1, 3),)),
        place(1): ReplicaMove((1,), (2,)),
        place(2): ReplicaMove((5,), (6,)),
    }
    assert later.phase == "begun"


def test_a_rollback_ends_when_all_that_can_be_taken_back_is() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    desk.run(stage)
    stage.partitions[place(0)].replicas, stage.partitions[place(0)].in_sync = (5, 6), {5, 6}
    stage.partitions[place(1)].replicas, stage.partitions[place(1)].in_sync = (5, 6, 4), {5, 6, 4}
    stage.brokers.discard(2)
    stage._show(1.0)
    assert desk.run(stage).final == {place(0)}
    assert desk.kept.open
    outcome = desk.run(stage, "rollback")
    # One has replicas of somebody else's, three are to go back to a broker that is unregistered for good.
    assert outcome.final == outcome.failed.keys() == {place(number) for number in range(4)}
    assert set(outcome.done) == {place(4)}
    assert desk.kept.phase == "rolled-back"
    assert not desk.kept.open


def test_what_others_reassign_now_may_still_be_taken_back() -> None:
    stage, desk = FakeReassignmentCluster(BEFORE, BROKERS), PlanRunner(Journal("c", moves=MOVES))
    desk.run(stage)
    stage.away.add(6)
    stage.partitions[place(0)].target, stage.partitions[place(0)].adding = (1, 2, 6), {6}
    outcome = desk.run(stage, "rollback")
    assert place(0) in outcome.failed
    assert place(0) not in outcome.final
    assert desk.kept.phase == "begun"


def test_where_a_plan_stands_is_told_partition_by_partition() -> None:
    stage = FakeReassignmentCluster(BEFORE, BROKERS)
    stage.partitions[place(0)].replicas = MOVES[place(0)].after
    stage.partitions[place(1)].replicas, stage.partitions[place(1)].target = (5, 6, 4, 1, 2, 3), (5, 6, 4)
    stage.partitions[place(2)].replicas = (3, 6)
    del stage.partitions[place(4)]
    stage._show(1.0)
    found = plan_status(MOVES, stage.describe(MOVES), throttled=True)
    assert dict(found.states) == {
        place(0): "as-planned",
        place(1): "on-its-way",
        place(2): "changed-by-others",
        place(3): "as-before",
        place(4): "gone",
    }
    assert found.lists[place(2)] == (3, 6)


def test_what_is_abandoned_is_left_as_it_is_and_its_throttle_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stage = FakeReassignmentCluster(BEFORE, BROKERS)
    stage.defaults = dict.fromkeys(RATES, "1")
    stage.partitions[place(2)].replicas = (3, 6)
    stage._show(1.0)
    clusters = {"c": "c"}
    monkeypatch.setattr(operations, "ReassignmentCluster", lambda _: stage)
    monkeypatch.setattr(operations, "cluster_id", lambda _: clusters["c"])
    for module in (reassign_status, cli_repair):
        monkeypatch.setattr(module, "admin_client", lambda *_: nullcontext())
    file = tmp_path / "rackassign-reassignment.json"
    write(file, Journal("c", moves=MOVES, phase="begun", throttled=SavedConfigs({}, {"t": {}})))
    assert run(["reassign", "status", "--bootstrap-server", "b:1"]) == 1
    said = capsys.readouterr().out
    assert "1 with replicas that the plan does not know: changed by another tool or user: t-2 (3, 6)" in said
    assert "the throttle is still set" in said
    assert "`reassign abandon` leaves all as it is" in said
    clusters["c"] = "another"
    for command in ("status", "abandon", "apply", "rollback"):
        assert run(["reassign", command, "--bootstrap-server", "b:1"]) == 2
        assert capsys.readouterr().err == 'rackassign: plan: it is for cluster "c", but this is "another"\n'
    clusters["c"] = "c"
    before = stage.lists()
    assert run(["reassign", "abandon", "--bootstrap-server", "b:1", "--output", "json"]) == 0
    told = parsed("reassign abandon", capsys.readouterr().out)
    assert (told["phase"], told["throttled"]) == ("abandoned", False)
    assert told["changed-by-others"] == {"t": {"2": [3, 6]}}
    assert sorted(told["as-before"]["t"]) == ["0", "1", "3", "4"]
    assert stage.lists() == before
    assert not stage.defaults
    assert run(["reassign", "status", "--bootstrap-server", "b:1"]) == 0
    for command in ("apply", "rollback", "abandon"):
        capsys.readouterr()
        assert run(["reassign", command, "--bootstrap-server", "b:1"]) == 2
        assert "abandoned" in capsys.readouterr().err
    # It alone knows the lists as they were.
    assert begin(file, Journal("c", moves=MOVES)) == tmp_path / "rackassign-reassignment.1.json"


def test_a_second_signal_tells_what_is_done_and_a_third_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    with stop_requested("lists are being put back") as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert not capfd.readouterr().err
        signal.raise_signal(signal.SIGTERM)
        assert capfd.readouterr().err == "rackassign: lists are being put back; once more ends it at once\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_ends_it_in_the_middle_is_told_what_that_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), cli_repair.explain_interruption(Path("p.json")):
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for words in (
        "ended in the middle",
        "`reassign status --plan-file p.json`",
        "`reassign rollback --plan-file p.json` goes back",
    ):
        assert words in said


def test_without_a_terminal_it_is_said_now_and_then_how_far_it_is() -> None:
    out, now = io.StringIO(), [0.0]
    with Display(console=Console(file=out), disable=True) as display:
        steps = ProgressDisplay(display, lambda: now[0])
        for at in range(100):
            now[0] = float(at)
            steps.copied("Reassigning", 1, 9, 2_000_000, 5_000_000)
        steps.copied("Reassigning", 9, 9, 0, 0)
    assert out.getvalue().splitlines() == [
        "Reassigning",
        *["Reassigning: 1 of 9, 2 of 5 MB"] * 3,
        "Reassigning: 9 of 9",
    ]


def test_without_a_terminal_a_download_is_no_minute_of_silence() -> None:
    out, now = io.StringIO(), [0.0]
    with Display(console=Console(file=out), disable=True) as display:
        steps = ProgressDisplay(display, lambda: now[0])
        for at in range(0, 61, 20):
            now[0] = float(at)
            steps.show_step("Fetching", at * 1_000_000, 60_000_000)
    assert out.getvalue().splitlines() == ["Fetching", "Fetching: 40 of 60 MB"]


@pytest.mark.parametrize("text", ["0", "0M", "-1", "1.5M", "M", "5T", "9" * 5000])
def test_a_throttle_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="throttle: expected bytes a second, as 50M, got"):
        cli_repair.rate(text)
