"""Transactions: results, changes of state and input offsets are committed together, or none of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError, RackassignError
from rackassign.stateful import Output, Punctuate, State
from rackassign.stateful._output import LARGEST
from tests.helpers.stateful_world import LOG, Played, Stage, count
from tests.helpers.tasks import Record, Task


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.remake("out")
    return stage


def number(record: Record, state: State, output: Output) -> None:
    """Write the number of a record, which is that of the state."""
    count(record, state)
    output.send(b"%d-%s" % (record.partition, state.get(b"n") or b""), record.key, topic="out")


def writer(stage: Stage, place: str = "1", **more: Any) -> Played:
    return stage.start(place, **{"process": number, "output": "out", **more})


def numbered(*sizes: int) -> Counter[bytes]:
    return Counter(b"%d-%d" % (partition, each + 1) for partition, size in enumerate(sizes) for each in range(size))


def test_results_states_and_offsets_are_visible_once_the_interval_is_over(stage: Stage) -> None:
    one = writer(stage, commit_interval_ms=60_000)
    stage.feed(1)
    # The first commit is due at once.
    stage.run()
    for partition in range(2):
        stage.feed(5, partition)
    stage.run()
    assert (stage.values("out"), stage.committed()) == ([b"0-1"], {("t", 0): 1})
    with one.stateful.state(("t", 0)) as state:
        assert (state.get(b"n"), one.counted()) == (b"1", 6)
    one.todo.append(lambda member: member.commit())
    stage.run()
    assert Counter(stage.values("out")) == numbered(6, 5)
    assert stage.committed() == {("t", 0): 6, ("t", 1): 5}
    # All changes of a key in the interval are one record, with the progress of the task and the end.
    assert [stage.log(LOG, partition).end for partition in range(2)] == [6, 3]
    stage.feed(1)
    stage.run()
    assert Counter(stage.values("out")) == numbered(6, 5)
    stage.stop(one)
    assert Counter(stage.values("out")) == numbered(7, 5)
    assert one.done == 12


def test_a_poll_does_not_wait_for_records_longer_than_a_commit_may_wait(stage: Stage) -> None:
    one = writer(stage, commit_interval_ms=1000)
    one.poll_ms = 5000
    for size in (1, 2, 3):
        stage.feed(1)
        stage.run(1.2)
        assert Counter(stage.values("out")) == numbered(size)


def test_what_many_records_write_is_committed_in_parts_and_no_task_waits_for_ever(stage: Stage) -> None:
    def process(record: Record, state: State, output: Output) -> None:
        number(record, state, output)
        output.send(bytes(100_000), topic="other")

    stage.remake("other")
    one = writer(stage, process=process, output=["out", "other"], commit_interval_ms=60_000)
    before = one.stateful.statistics().counts.commits
    for partition in range(2):
        stage.feed(100, partition)
    while not (visible := Counter(stage.values("out"))):
        stage.run(0.05)
    # Some 40 of these have four megabytes.
    assert 30 <= visible.total() <= 60
    stage.run(5.0)
    assert 3 <= one.stateful.statistics().counts.commits - before <= 12
    stage.stop(one)
    assert Counter(stage.values("out")) == numbered(100, 100)


def test_what_a_state_changes_is_committed_in_parts_as_well(stage: Stage) -> None:
    def grow(record: Record, store: State) -> None:
        store.put(b"%d" % record.offset, bytes(100_000))

    stage.start(process=grow, commit_interval_ms=60_000)
    for records in (1, 100):
        stage.feed(records)
        stage.run()
    assert 80 <= stage.committed()["t", 0] < 101


REFUSALS = [
    (87, "InvalidRecordError", "one of group-t-changelog, out"),
    (32, "Error", "brokers refuse the time of a record: the clock of this machine"),
    (44, "PolicyViolationError", "one of group-t-changelog, out"),
    (29, "AuthorizationError", "not allowed: WRITE on one of group-t-changelog, out"),
    (10, "MessageSizeTooLargeError", "a record of the transaction of group-"),
]


@pytest.mark.parametrize(("topic", "reset"), [("out", "earliest"), (LOG, "latest")])
def test_a_record_that_brokers_refuse_for_good_is_an_error_and_no_endless_repetition(
    stage: Stage, topic: str, reset: str
) -> None:
    one = writer(stage, auto_offset_reset=reset)
    for number, (error, raised, why) in enumerate(REFUSALS, 1):
        stage.cluster.refused[topic] = error
        stage.feed(2)
        stage.run(1.0)
        assert one.raised
        while one.raised:
            failed = one.raised.pop()
            assert raised in type(failed).__name__
            assert why in str(failed)
        assert Counter(stage.values("out")) == numbered(2 * number - 2)
        stage.cluster.refused.clear()
        stage.run(1.5)
        one.raised.clear()
        assert (Counter(stage.values("out")), one.counted()) == (numbered(2 * number), 2 * number)


def test_an_open_transaction_of_a_dead_owner_is_waited_for_and_others_are_processed_meanwhile(stage: Stage) -> None:
    one = writer(stage, "1")
    stage.feed(2)
    # It dies before it ends its transaction.
    stage.cluster.delay_next(one.name, "EndTxn", "request", 100.0)
    stage.run(0.5)
    assert one.counted() == 2
    one.kill()
    other = writer(stage, "2")
    stage.feed(3, 1)
    stage.run(8.0)
    assert Counter(stage.values("out")) == numbered(0, 3)
    stage.run(20.0)
    assert Counter(stage.values("out")) == numbered(2, 3)
    assert (other.counted(), other.counted(1)) == (2, 3)


def test_functions_at_intervals_write_too_also_before_the_first_record(stage: Stage) -> None:
    def tick(_: int, state: State, output: Output) -> None:
        output.send(b"tick %d" % int(state.get(b"n") or 0))

    stage.feed(2)
    one = writer(stage, punctuate=[Punctuate(tick, 1, time="wall")], auto_offset_reset="latest")
    one.poll_ms = 10_000
    stage.run(3.0)
    assert set(stage.values("out")) == {b"tick 0"}
    assert len(stage.values("out")) >= 3
    stage.feed(1)
    stage.run()
    assert b"tick 1" in stage.values("out")
    # Where it reads is not moved by a function.
    assert stage.committed() == {("t", 0): 3, ("t", 1): 0}


def test_transactions_that_cannot_begin_are_an_error_within_a_limit(stage: Stage) -> None:
    stage.cluster.begins = False
    one = writer(stage)
    stage.run(75.0)
    assert "transactions of group-" in str(one.raised[0])
    assert "cannot be begun" in str(one.raised[0])


# What is refused where it is sent.


def output_of(*topics: str) -> Output:
    return Output(topics, lambda _: 2)


@pytest.mark.parametrize(
    ("send", "problem"),
    [
        (lambda output: output.send("text"), 'value of a record must be bytes or None, got "text": encode it first'),
        (lambda output: output.send(b"", "key"), "key of a record must be bytes or None"),
        (
            lambda output: output.send(b"", topic="t"),
            r"topic must be one of those that output names \(out\), got \"t\"",
        ),
        (lambda output: output.send(b"", partition=2), "out has partitions 0 to 1, got 2"),
        (lambda output: output.send(b"", headers=[("name", "text")]), "headers must be pairs of a name and bytes"),
        (lambda output: output.send(b"", headers=None), "headers must be pairs of a name and bytes, got null"),
        (lambda output: output.send(b"", headers="ab"), "headers must be pairs of a name and bytes, got"),
        (lambda output: output.send(None), "a record needs a value or a key"),
        (lambda output: output.send(b"", timestamp_ms=1.5), "timestamp_ms must be an integer from 0"),
        (lambda output: output.send(b"", timestamp_ms=-1), "timestamp_ms must be an integer from 0"),
        (lambda output: output.send(b"", timestamp_ms=1 << 63), "to 9223372036854775807, got 9223372036854775808"),
        (lambda output: output.send(b"x" * LARGEST), "bytes is too large for out"),
    ],
)
def test_a_record_that_could_not_be_written_is_refused_where_it_is_sent(
    tmp_path: Path, send: Callable[[Any], None], problem: str
) -> None:
    output = output_of("out")
    task = Task(tmp_path / "1", lambda _, __, given: send(given), output=output)
    with pytest.raises(ConfigError, match=problem):
        task.play([Record(0)])
    assert task.run.take_output() == []


def test_results_of_a_record_that_fails_are_dropped_and_others_kept(tmp_path: Path) -> None:
    fails = [True]
    kept: list[Output] = []

    def process(record: Record, state: State, output: Output) -> None:
        kept.append(output)
        number(record, state, output)
        if record.offset == 1 and fails:
            fails.clear()
            raise ValueError("not now")

    task = Task(tmp_path / "1", process, output=output_of("out"))
    records = [Record(each) for each in range(3)]
    with pytest.raises(ValueError, match="not now"):
        task.play(records, commits=False)
    one = task.run.transaction_bytes
    task.play(records, commits=False)
    # A record has some 200 bytes besides; that of the state replaces the one before.
    assert 2 * 200 < task.run.transaction_bytes - one < 2 * 220
    assert [each.value for each in task.run.take_output()] == [b"0-1", b"0-2", b"0-3"]
    assert task.run.take_output() == []
    with pytest.raises(RackassignError, match="only while process, or a function of punctuate, is called"):
        kept[0].send(b"late")
    several = output_of("out", "more")
    several.begin()
    with pytest.raises(ConfigError, match="topic= is needed, as output names several: out, more"):
        several.send(b"")
