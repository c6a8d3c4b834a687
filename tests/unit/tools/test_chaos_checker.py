"""The judge of the chaos runs: it must find what is wrong, and only that; and the schedules must keep their bounds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import pytest

from rackassign.model import TopicPartition
from tests.helpers.machine_speed import machine_factor, scaled_s
from tools.chaos.checker import QUIET_S as CHECKED_QUIET_S
from tools.chaos.checker import RESULT_RULES, RULES, STARTED_S, TIMED, Violation
from tools.chaos.checker import SETTLE_S as CHECKED_SETTLE_S
from tools.chaos.checker import check as check_times
from tools.chaos.history import (
    LOST,
    MEMBER_FILE,
    NOTES_FILE,
    REVOKED,
    Acked,
    Batch,
    Calm,
    Died,
    Dropped,
    Failed,
    Given,
    Held,
    History,
    Journal,
    Moved,
    Note,
    Played,
    Result,
    Seen,
    read_history,
)
from tools.chaos.schedule import BROKERS, FEWEST_MEMBERS, MEMBERS, TOPICS, UNDONE_BY, Event, Kind, plan, promised
from tools.chaos.soak import grown

ALL = tuple(TopicPartition(topic, number) for topic in TOPICS for number in range(len(TOPICS[topic])))
ONE, TWO = ALL[0], ALL[1]
LEFT, RIGHT = ALL[:4], ALL[4:]
CALM = 40.0
QUIET_S, SETTLE_S = (seconds / machine_factor() for seconds in (CHECKED_QUIET_S, CHECKED_SETTLE_S))
END = CALM + QUIET_S + 5
"""Times are those of a quiet machine."""


def slowed(row: Any) -> Any:
    """Return a note with the times of this machine."""
    times = {
        each.name: scaled_s(getattr(row, each.name)) for each in fields(row) if each.name in {"at", "began", "done"}
    }
    return replace(row, **times)


def check(history: History) -> list[Violation]:
    members = {name: tuple(map(slowed, notes)) for name, notes in history.members.items()}
    return check_times(History(members, tuple(map(slowed, history.notes))), RULES)


def played(at: float, kind: Kind, target: str) -> Played:
    return Played(Event(at, kind, target), at, at)


def batch(at: float, first: int, last: int, place: TopicPartition = ONE) -> Batch:
    return Batch(at, place, first, last, tuple(range(first, last + 1)))


A1 = (Given(2, 1, "a1", ()), Given(3, 2, "a1", LEFT), batch(4, 0, 9), batch(5, 10, 19))
B1 = (Given(2, 1, "b1", ALL), Dropped(3, REVOKED, LEFT), Given(3, 2, "b1", RIGHT))
NOTES: tuple[Note, ...] = (
    played(1, Kind.MEMBER_START, "a1"),
    played(1, Kind.MEMBER_START, "b1"),
    *(Acked(3.5, ONE, offset, offset) for offset in range(20)),
    Calm(CALM, ("a1.1", "b1.1")),
    *(Seen(at, {"a1": LEFT, "b1": RIGHT}) for at in (CALM, END)),
)
SOUND = History({"a1.1": A1, "b1.1": B1}, NOTES)


def rules(history: History) -> list[str]:
    return [violation.rule for violation in check(history)]


def with_a1(*notes: Note) -> History:
    return History({"a1.1": (*A1, *notes), "b1.1": B1}, NOTES)


def with_notes(*notes: Note) -> History:
    return replace(SOUND, notes=(*NOTES, *notes))


def without(kind: type[Note]) -> History:
    return replace(SOUND, notes=tuple(note for note in NOTES if not isinstance(note, kind)))


def test_a_sound_history_has_no_violation() -> None:
    assert check(SOUND) == []


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = with_notes(
        Moved(5.0), Seen(6.0, None), Died(7.0, "x", -9), Died(8.0, "x", None), played(1, Kind.RACK_UP, "a")
    )
    history = replace(history, members={**history.members, "c1.1": (Failed(8.0, "a\nb"),)})
    files = {NOTES_FILE: history.notes, **{MEMBER_FILE.format(name): notes for name, notes in history.members.items()}}
    for file, notes in files.items():
        journal = Journal(tmp_path / file)
        for note in notes:
            journal.note(note)
        journal.close()
    assert read_history(tmp_path) == history


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / NOTES_FILE).write_text('{"is": "Moved", "at": 1.0}\n{"is": "Mov', "utf-8")
    assert read_history(tmp_path) == History({}, (Moved(1.0),))


def test_a_record_that_nobody_has_processed_is_lost() -> None:
    [violation] = check(with_notes(Acked(6, ONE, 20, 20), Acked(6, ONE, 21, 21)))
    assert astuple(violation) == ("lost records", "two-0: 2 records, from 20 to 21")


def test_another_record_than_was_sent_is_found() -> None:
    assert rules(with_notes(Acked(6, ONE, 19, 7))) == ["lost records"]


def test_two_owners_in_one_generation_are_found() -> None:
    assert "two owners" in rules(with_a1(Given(6, 2, "a1", (*LEFT, RIGHT[0]))))


def test_two_owners_in_different_generations_are_none() -> None:
    # A member that was stopped believes for a while that it has what others were given meanwhile.
    assert "two owners" not in rules(with_a1(Given(6, 3, "a1", ALL)))


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([batch(6, 21, 22)], id="forward within a tenure"),
        pytest.param([batch(6, 15, 22)], id="backward within a tenure"),
        pytest.param([Given(6, 2, "a1", LEFT), batch(7, 21, 22)], id="over a rebalance that leaves the partition"),
        pytest.param([Dropped(6, LOST, LEFT), Given(6, 2, "a1", LEFT), batch(7, 21, 22)], id="at its begin"),
        pytest.param([batch(6, 1, 2, TWO)], id="at the begin of a partition"),
        pytest.param([batch(6, 0, 0, RIGHT[0])], id="a partition of somebody else"),
        pytest.param([Batch(6, ONE, 20, 22, (20, 22))], id="in a batch"),
    ],
)
def test_a_position_that_skips_is_found(entries: Sequence[Note]) -> None:
    assert "skipped records" in rules(with_a1(*entries))


def test_a_partition_that_is_had_again_begins_where_it_was_committed() -> None:
    again = with_a1(Dropped(6, REVOKED, LEFT), Given(6, 2, "a1", LEFT), batch(7, 10, 25))
    assert check(again) == []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"a1": LEFT[1:], "b1": RIGHT}, "two-0 has 0 owners"),
        ({"a1": LEFT, "b1": (*RIGHT, ONE)}, "two-0 has 2 owners"),
        ({"a1": RIGHT, "b1": LEFT}, "the coordinator says"),
        ({"a1": LEFT, "b1": RIGHT, "c1": ()}, "c1 has nothing"),
        (None, "not stable"),
    ],
)
def test_a_group_that_is_not_whole_at_the_end_is_found(
    given: dict[str, tuple[TopicPartition, ...]] | None, what: str
) -> None:
    found = check(with_notes(Seen(END, given)))
    assert {violation.rule for violation in found} == {"unsettled"}
    assert any(what in violation.what for violation in found)


def test_partitions_that_were_added_count() -> None:
    added = Played(Event(0, Kind.PARTITION_ADD, "two", partition=6), 0, 0)
    [violation] = check(with_notes(added))
    assert violation.what == "two-6 has 0 owners at the end"


def test_a_group_that_comes_to_rest_too_late_is_found() -> None:
    late = CALM + SETTLE_S + 1
    # A second longer than it must be: the exact time is a little less on some machines, by rounding.
    history = with_notes(Seen(late, None), *(Seen(late + s, {"a1": LEFT, "b1": RIGHT}) for s in (1, 2 + QUIET_S)))
    assert rules(history) == ["late"]


@pytest.mark.parametrize("gone", [Calm, Seen])
def test_a_run_that_ended_too_early_is_found(gone: type[Note]) -> None:
    assert rules(without(gone)) == ["unsettled"]


def test_a_rebalance_that_nothing_explains_is_found() -> None:
    assert rules(with_a1(Given(30, 3, "a1", LEFT))) == ["needless rebalance"]


def test_a_rebalance_that_only_its_number_tells_of_is_found() -> None:
    history = with_a1(Given(30, 4, "a1", LEFT))
    leave = played(29, Kind.MEMBER_LEAVE, "c1")
    assert rules(history) == ["needless rebalance"] * 2
    assert rules(replace(history, notes=(*history.notes, leave))) == []


@pytest.mark.parametrize(
    ("events", "explained"),
    [
        ([played(24, Kind.MEMBER_KILL, "c1")], True),
        ([played(10, Kind.MEMBER_KILL, "c1")], False),
        ([played(31, Kind.MEMBER_KILL, "c1")], False),
        ([played(26, Kind.MEMBER_BLINK, "c1"), played(28, Kind.MEMBER_WAKE, "c1")], False),
        ([played(22, Kind.MEMBER_STOP, "c1"), played(29, Kind.MEMBER_WAKE, "c1")], True),
        ([played(15, Kind.BROKER_PAUSE, "1")], True),
        ([Moved(20)], True),
    ],
)
def test_a_rebalance_is_explained_by_what_came_shortly_before(events: list[Note], explained: bool) -> None:  # noqa: FBT001
    history = with_a1(Given(30, 3, "a1", LEFT))
    assert ("needless rebalance" in rules(replace(history, notes=(*NOTES, *events)))) is not explained


def test_a_member_that_is_slow_to_start_explains_the_rebalances_in_which_it_joins() -> None:
    start = played(14, Kind.MEMBER_JOIN, "c1")
    # Six seconds for a start and six for two rounds have passed by then.
    joined = {"c1.1": (Given(30, 3, "c1", ()),)}
    late = with_a1(Given(30, 3, "a1", LEFT), Given(31, 4, "a1", LEFT[1:]))
    noted = replace(late, notes=(*NOTES, start))
    assert "needless rebalance" not in rules(replace(noted, members={**noted.members, **joined}))
    assert rules(noted).count("needless rebalance") == 2
    after = with_a1(Given(30, 3, "a1", LEFT), Given(37, 4, "a1", LEFT[1:]))
    noted = replace(after, notes=(*NOTES, start))
    assert rules(replace(noted, members={**noted.members, **joined})).count("needless rebalance") == 1


def test_an_event_explains_two_rebalances_and_no_third() -> None:
    history = with_a1(*(Given(30 + n, 3 + n, "a1", LEFT[n:]) for n in range(3)))
    leave = played(29, Kind.MEMBER_LEAVE, "c1")
    assert rules(replace(history, notes=(*NOTES, leave))).count("needless rebalance") == 1


def test_a_rebalance_that_changes_nothing_is_explained_by_a_broker_and_by_nothing_else() -> None:
    def again(name: str, owned: tuple[TopicPartition, ...]) -> tuple[Note, ...]:
        # The first may yet have had something to hand over.
        return (*SOUND.members[name], *(Given(30 + n, 3 + n, name[:2], owned) for n in range(2)))

    history = replace(SOUND, members={"a1.1": again("a1.1", LEFT), "b1.1": again("b1.1", RIGHT)})
    member, broker = played(29, Kind.MEMBER_LEAVE, "c1"), played(25, Kind.BROKER_KILL, "1")
    assert rules(replace(history, notes=(*NOTES, member))) == ["needless rebalance"]
    assert rules(replace(history, notes=(*NOTES, broker))) == []


def test_a_group_that_takes_too_long_to_begin_is_found() -> None:
    assert rules(with_notes(played(5, Kind.BROKER_KILL, "1"))) == []
    assert rules(with_notes(played(2 + STARTED_S, Kind.BROKER_KILL, "1"))) == ["late"]


def test_a_member_that_is_put_out_for_no_reason_is_found() -> None:
    history = with_a1(Dropped(30, LOST, LEFT), Given(31, 3, "a1-again", LEFT))
    assert "needless loss" in rules(history)
    pause = played(25, Kind.BROKER_PAUSE, "1")
    assert "needless loss" not in rules(replace(history, notes=(*NOTES, pause)))
    other = [played(20, Kind.MEMBER_STOP, "b1"), played(29, Kind.MEMBER_WAKE, "b1")]
    assert "needless loss" in rules(replace(history, notes=(*NOTES, *other)))


def test_errors_out_of_a_consumer_are_found() -> None:
    [violation] = check(with_a1(Failed(6, "Traceback\nValueError: x")))
    assert astuple(violation) == ("error", "a1.1, 1 times: ValueError: x")


@pytest.mark.parametrize("code", [1, -11, None])
def test_a_process_that_ends_by_itself_is_found(code: int | None) -> None:
    assert rules(with_notes(Died(6, "b1.1", code))) == ["error"]


def test_a_member_that_grows_is_found() -> None:
    flat = tuple(Held(at, 50.0, 9, 30) for at in range(0, 600, 5))
    for more in ({"memory": 59.0}, {"threads": 13}, {"files": 34}):
        leaking = tuple(replace(held, **more) if held.at > 300 else held for held in flat)
        assert list(grown(History({"a1.1": flat, "b1.1": leaking}, ()))) == ["b1.1"]


def test_a_seed_gives_the_same_schedule_in_another_process() -> None:
    program = "from tools.chaos.schedule import plan; print(plan(7, 60, cuts=True))"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(plan(7, 60, cuts=True))
    assert plan(8, 60, cuts=True) != plan(7, 60, cuts=True)


def test_a_schedule_that_is_too_short_for_every_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        plan(1, 20)


@pytest.mark.parametrize(("seconds", "cuts"), [(36, False), (60, False), (60, True), (120, True)])
def test_schedules_have_every_kind_of_fault_and_keep_their_bounds(seconds: float, cuts: bool) -> None:  # noqa: FBT001
    for seed in range(200):
        events = plan(seed, seconds, cuts=cuts)
        assert promised(cuts=cuts) <= {event.kind for event in events}
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert events[-1].at <= seconds
        obeys_bounds(events)


def obeys_bounds(events: Sequence[Event]) -> None:
    up, alive, open_faults = set(BROKERS), set(MEMBERS), set[tuple[Kind, str]]()
    counts = {topic: len(replicas) for topic, replicas in TOPICS.items()}
    for event in events:
        brokers = {broker for broker, rack in BROKERS.items() if event.target in {str(broker), rack}}
        if event.kind in UNDONE_BY:
            open_faults.add((UNDONE_BY[event.kind], event.target))
        elif event.kind in UNDONE_BY.values():
            open_faults.remove((event.kind, event.target))
        if event.kind in {Kind.BROKER_KILL, Kind.BROKER_PAUSE, Kind.BROKER_CUT, Kind.RACK_DOWN}:
            assert brokers <= up
            up -= brokers
            assert set(event.members) <= alive
            alive -= set(event.members)
        elif brokers:
            up |= brokers
            alive |= set(event.members)
        elif event.kind in {Kind.MEMBER_KILL, Kind.MEMBER_STOP, Kind.MEMBER_BLINK, Kind.MEMBER_LEAVE}:
            alive.remove(event.target)
        elif event.kind in {Kind.MEMBER_JOIN, Kind.MEMBER_BACK, Kind.MEMBER_WAKE}:
            assert event.target not in alive
            alive.add(event.target)
        elif event.kind is Kind.PARTITION_ADD:
            assert event.partition == counts[event.target]
            counts[event.target] += 1
        else:
            assert event.partition < counts[event.target]
        assert len(up) >= 2
        assert len(alive) >= FEWEST_MEMBERS
    assert not open_faults
    assert up == set(BROKERS)


def test_what_only_took_long_is_told_from_what_is_wrong() -> None:
    assert RULES.keys() - TIMED == {
        *("lost records", "two owners", "skipped records", "unsettled", "error"),
        *("needless rebalance", "needless loss"),
    }


INPUT = [Acked(1.0, TopicPartition("input", number % 2), number // 2, number) for number in range(4)]
NUMBERS = (1, 1, 2, 2)
"""What counting the records of each of the two partitions gives."""

EACH_ONCE = [Result(f"RECORD-{number}", NUMBERS[number], committed=True) for number in range(4)]
ABORTED = Result("RECORD-1", 2, committed=False)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([*EACH_ONCE, ABORTED], {}),
        ([Result(each.value, None, committed=True) for each in EACH_ONCE], {}),
        ([*EACH_ONCE, Result("RECORD-3", None, committed=True)], {"repeated results": "1, among them RECORD-3"}),
        ([*EACH_ONCE, Result("other", None, committed=True)], {"repeated results": "1, among them other"}),
        ([*EACH_ONCE[:3], Result("RECORD-3", 3, committed=True)], {"misnumbered results": "2, among them 3, 2"}),
        ([], {"lost results": "4, among them RECORD-0, RECORD-1, RECORD-2, RECORD-3"}),
        (
            [*EACH_ONCE[:1], ABORTED, *EACH_ONCE[2:]],
            {"lost results": "1, among them RECORD-1", "misnumbered results": "1, among them 1"},
        ),
    ],
)
def test_what_is_wrong_with_results_is_found(results: Sequence[Result], expected: dict[str, str]) -> None:
    found = check_times(History({}, (*INPUT, *results)), RESULT_RULES)
    assert {each.rule: each.what for each in found} == expected
