"""Transactions: results, changes of state and input offsets are committed together, or none of them is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)

from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.stateful import Output, Punctuate, State, StatefulConsumer
from rackassign.stateful import _active_tasks as active_tasks
from rackassign.stateful import _changelog_client as changelog_client
from rackassign.stateful._output import LARGEST
from rackassign.stateful._processing import Progress
from rackassign.stateful._stores import PROGRESS
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Coordinator, Kafka, Record, committed_values
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import FIRST, LOG, counted, drain, give, member, together

MINUTE_MS = 60_000


@pytest.fixture
def coordinator(kafka: Kafka) -> Coordinator:
    kafka.make("out")
    return kafka.coordinator


def number(record: Record, state: State, output: Output) -> None:
    """Write the number of a record, which is that of the state."""
    count = int(state.get(b"n") or 0) + 1
    state.put(b"n", b"%d" % count)
    output.send(b"%d-%d" % (record.partition, count), record.key, topic="out")


def writer(folder: Path, name: str, process: Any = number, **more: Any) -> StatefulConsumer:
    return member(folder / name, process=process, output="out", transactional_id=name, **more)


def has_all_once(kafka: Kafka, *sizes: int) -> bool:
    """Return whether each record of each partition has its number, once."""
    expected = [b"%d-%d" % (partition, count + 1) for partition, size in enumerate(sizes) for count in range(size)]
    return Counter(committed_values(kafka, "out")) == Counter(expected)


def test_results_state_and_offsets_are_committed_together(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    with writer(tmp_path, "one") as one:
        give(one, 0, 1)
        drain(one)
        kafka.feed(0, 3)
        kafka.feed(1, 2)
        drain(one)
        assert has_all_once(kafka, 3, 2)
        assert kafka.committed == {KafkaPythonPartition("t", 0): 3, KafkaPythonPartition("t", 1): 2}
        assert coordinator.open == {}
    with writer(tmp_path, "other") as other:
        give(other, 0, 1)
        drain(other)
        assert (counted(other), counted(other, 1)) == (3, 2)
        kafka.feed(0, 1)
        drain(other)
    assert has_all_once(kafka, 4, 2)


def test_nothing_is_visible_before_the_interval_is_over(kafka: Kafka, coordinator: Coordinator, tmp_path: Path) -> None:
    with writer(tmp_path, "one", commit_interval_ms=MINUTE_MS) as one:
        give(one, 0)
        drain(one)
        kafka.feed(0, 1)
        drain(one)
        kafka.feed(0, 5)
        drain(one)
        # The first commit is due at once.
        assert (committed_values(kafka, "out"), kafka.committed) == ([b"0-1"], {KafkaPythonPartition("t", 0): 1})
        one.commit()
        assert has_all_once(kafka, 6)
        kafka.feed(0, 1)
        drain(one)
        assert has_all_once(kafka, 6)
    assert has_all_once(kafka, 7)
    assert coordinator.open == {}


@pytest.mark.parametrize("refused", ["answer", "transaction offsets", "transaction end", "transaction answer"])
def test_after_a_failure_anywhere_records_are_processed_again_and_visible_once(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: str
) -> None:
    with writer(tmp_path, "one") as one:
        give(one, 0)
        drain(one)
        kafka.feed(0, 2)
        drain(one)
        kafka.feed(0, 2)
        kafka.refuse.append(refused)
        for _ in range(50):
            drain(one)
            if has_all_once(kafka, 4) and counted(one) == 4:
                break
        assert has_all_once(kafka, 4)
        assert "a transaction failed, its records are processed again" in caplog.text
    assert (kafka.refuse, coordinator.open) == ([], {})


def test_a_former_owner_cannot_commit_and_its_results_are_never_visible(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    assert coordinator.epochs == {}
    with writer(tmp_path, "former", commit_interval_ms=MINUTE_MS) as former, writer(tmp_path, "next") as successor:
        give(former, 0)
        drain(former)
        kafka.feed(0, 1)
        drain(former)
        kafka.feed(0, 3)
        drain(former)
        give(successor, 0)
        drain(successor)
        assert has_all_once(kafka, 4)
        # It has not noticed yet.
        former.commit()
        assert has_all_once(kafka, 4)
        kafka.feed(0, 1)
        for _ in range(50):
            drain(successor)
            drain(former)
            if has_all_once(kafka, 5):
                break
        assert has_all_once(kafka, 5)
        assert counted(successor) == 5


def test_a_new_owner_waits_for_the_open_transaction_of_the_former_one_and_processes_others_meanwhile(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    with writer(tmp_path, "former") as former, writer(tmp_path, "next") as successor:
        give(former, 0)
        drain(former)
        kafka.feed(0, 2)
        # It dies there: no producer of its ID begins again.
        kafka.refuse += ["transaction end", "init"]
        former.poll(0)
        assert list(coordinator.open) == ["former"]
        give(successor, 0, 1)
        kafka.feed(1, 3)
        drain(successor)
        assert committed_values(kafka, "out") == [b"1-1", b"1-2", b"1-3"]
        kafka.end_transaction("former", "committed")
        drain(successor)
        assert has_all_once(kafka, 2, 3)
        assert counted(successor) == 2


def test_results_of_a_record_that_fails_are_dropped(kafka: Kafka, coordinator: Coordinator, tmp_path: Path) -> None:
    fails = [True]

    def process(record: Record, state: State, output: Output) -> None:
        number(record, state, output)
        if record.offset == 1 and fails:
            fails.clear()
            raise ValueError("not now")

    with writer(tmp_path, "one", process) as one:
        give(one, 0)
        kafka.feed(0, 3)
        assert [str(each) for each in drain(one, ValueError)] == ["not now"]
        drain(one)
        assert has_all_once(kafka, 3)
    assert coordinator.open == {}


def test_functions_at_intervals_write_too_also_before_the_first_record(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    def tick(_: int, state: State, output: Output) -> None:
        output.send(b"tick %d" % int(state.get(b"n") or 0))

    kafka.feed(0, 2)
    kafka.committed[KafkaPythonPartition("t", 0)] = 2
    with writer(tmp_path, "one", punctuate=[Punctuate(tick, 0.05, time="wall")], auto_offset_reset="latest") as one:
        give(one, 0)
        while not committed_values(kafka, "out"):
            one.poll(0)
        assert committed_values(kafka, "out")[0] == b"tick 0"
        # Where it reads is not moved by it.
        assert kafka.committed == {KafkaPythonPartition("t", 0): 2}
    assert coordinator.open == {}


def test_what_many_records_write_is_committed_in_parts_and_no_task_waits_for_ever(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_tasks, "COMMIT_BYTES", 5000)

    def process(record: Record, state: State, output: Output) -> None:
        number(record, state, output)
        output.send(b"x" * 1000, topic="other")

    kafka.make("other")
    with member(
        tmp_path / "one", process=process, output=["out", "other"], transactional_id="one", commit_interval_ms=MINUTE_MS
    ) as one:
        give(one, 0, 1)
        drain(one)
        kafka.feed(0, 100)
        kafka.feed(1, 100)
        before, seen = coordinator.committed, 0
        for _ in range(1000):
            one.poll(0)
            other = sum(value.startswith(b"1-") for value in committed_values(kafka, "out") if value)
            seen = seen or other
            if has_all_once(kafka, 100, 100):
                break
        assert has_all_once(kafka, 100, 100)
        # The second task has its first results long before the first one has all of its.
        assert seen < 20
        assert 25 <= coordinator.committed - before <= 100


def test_a_record_that_brokers_do_not_take_is_an_error_of_each_poll(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    coordinator.largest = 100
    with writer(tmp_path, "one", lambda _, __, output: output.send(b"x" * 101)) as one:
        give(one, 0)
        drain(one)
        kafka.feed(0, 1)
        raised = 0
        for _ in range(30):
            try:
                one.poll(0)
            except MessageSizeTooLargeError as error:
                raised += 1
                told = str(error)
        assert raised > 1
        assert "a record of the transaction of one for one of g-t-changelog, out" in told
        coordinator.largest = 101
        drain(one)
        assert committed_values(kafka, "out") == [b"x" * 101]
    assert coordinator.open == {}


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize(
    ("refusal", "raised", "why"),
    [
        (InvalidRecordError(), InvalidRecordError, "out$"),
        (InvalidRecordError("Timestamp 9 is out of range"), InvalidRecordError, "out: .*the clock of this machine"),
        (InvalidTimestampError(), InvalidTimestampError, "out: .*the clock of this machine"),
        (PolicyViolationError(), PolicyViolationError, "out$"),
        (TopicAuthorizationFailedError("out"), AuthorizationError, "out"),
    ],
)
def test_a_record_that_brokers_refuse_for_good_is_an_error_and_no_endless_repetition(
    kafka: Kafka,
    coordinator: Coordinator,
    tmp_path: Path,
    refusal: KafkaError,
    raised: type[Exception],
    why: str,
    records: int,
) -> None:
    def process(_: object, __: object, output: Output) -> None:
        for _ in range(records):
            output.send(b"x")

    coordinator.refused = refusal
    with writer(tmp_path, "one", process) as one:
        give(one, 0)
        drain(one)
        kafka.feed(0, 1)
        with pytest.raises(raised, match=why):
            drain(one)
        coordinator.refused = None
        drain(one)
        assert committed_values(kafka, "out") == records * [b"x"]
    assert coordinator.open == {}


def test_a_member_that_was_removed_and_rejoins_in_the_same_rebalance_hands_nothing_over(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    with writer(tmp_path, "a", commit_interval_ms=MINUTE_MS) as former, writer(tmp_path, "b") as successor:
        give(former, 0)
        drain(former)
        kafka.feed(0, 1)
        drain(former)
        former.commit()
        kafka.feed(0, 5)
        drain(former)
        # It has another ID then, and claims nothing, so the partition is given to another member at once.
        former.consumer.member_id = "another"
        give(former)
        successor.consumer.give(0)
        successor._assignor._standby_codec.generation = successor.consumer.generation_id = kafka.generation
        drain(successor)
        drain(former)
        assert has_all_once(kafka, 6)
    assert coordinator.open == {}


def test_a_timeout_that_brokers_do_not_allow_is_refused_at_once(coordinator: Coordinator, tmp_path: Path) -> None:
    assert coordinator.longest_ms == 900_000
    with pytest.raises(ConfigError, match=r"transaction_timeout_ms of 900001 is more than brokers allow"):
        writer(tmp_path, "one", transaction_timeout_ms=900_001)


@given(
    st.lists(st.sampled_from(["feed", "poll", "poll both", "swap", "share", "fail", "lose"]), min_size=8, max_size=30)
)
@settings(max_examples=examples(1000), deadline=None)
def test_whatever_happens_each_record_is_visible_once(steps: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka = Kafka().installed(patch)
        kafka.make("t")
        kafka.make("out")
        fed = [0, 0]
        with writer(Path(folder), "one") as one, writer(Path(folder), "two") as two:
            give(one, 0, 1)
            drain(one)
            owners = [(one, (0, 1)), (two, ())]
            for turn, step in enumerate(steps):
                if step == "feed":
                    kafka.feed(turn % 2, 2)
                    fed[turn % 2] += 2
                elif step.startswith("poll"):
                    # So many are needed from an assignment to the first record.
                    for each in (one, two) if step == "poll both" else (one,):
                        for _ in range(3):
                            each.poll(0)
                elif step == "fail":
                    kafka.refuse.append(("answer", "transaction offsets", "transaction end")[turn % 3])
                elif step == "lose":
                    kafka.refuse.append("transaction answer")
                else:
                    # The other one has not noticed: it is still in the generation before.
                    owners.reverse()
                    give(owners[0][0], *((0, 1) if step == "swap" else (0,)))
                    owners[0] = (owners[0][0], ())
            kafka.refuse.clear()
            kafka.generation += 1
            for each, partition in ((one, 0), (two, 1)):
                each.consumer.give(partition)
                each._assignor._standby_codec.generation = each.consumer.generation_id = kafka.generation
            for _ in range(200):
                drain(one)
                drain(two)
                if has_all_once(kafka, *fed):
                    break
            assert has_all_once(kafka, *fed), (fed, committed_values(kafka, "out"))
            assert (counted(one), counted(two, 1)) == tuple(fed)
        assert kafka.coordinator.open == {}


def test_records_of_the_changelog_that_readers_see_are_those_of_committed_transactions(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    with writer(tmp_path, "one") as one:
        give(one, 0)
        drain(one)
        for _ in range(3):
            kafka.feed(0, 1)
            drain(one)
        log = kafka.topics[LOG].logs[0]
        kinds = ["marker" if each.marker else "progress" if each.key == PROGRESS else "change" for each in log]
    assert kinds == ["change", "progress", "marker"] * 3
    assert coordinator.epochs == {"one": 0}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"output": "out", "transactional_id": ""}, 'transactional_id must be a name, got ""'),
        ({"output": [], "transactional_id": "one"}, "output must be the name of a topic, or a list of names, got"),
        ({"output": ["out", "out"], "transactional_id": "one"}, "each topic of output can be given once"),
        (
            {"output": "out", "transactional_id": "one", "transaction_timeout_ms": 999},
            "transaction_timeout_ms must be an integer from 1000, got 999",
        ),
        ({"output": ["out", "no"], "transactional_id": "one"}, "topic no of output does not exist"),
        ({"output": LOG, "transactional_id": "one"}, f"topic {LOG} of output is a changelog of this group"),
        (
            {"output": "out", "transactional_id": "one", "process": lambda _, __: None},
            r"with output=\.\., process is called with 3 arguments \(record, state, output\)",
        ),
        ({"process": number}, r"without output=\.\., process is called with 2 arguments \(record, state\)"),
    ],
)
def test_options_that_cannot_work_are_refused(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path, more: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        member(tmp_path, **{"process": number, **more})
    assert (kafka.open, coordinator.epochs) == (set(), {})


def test_output_that_must_not_be_written_is_refused_before_a_record_is_processed(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path
) -> None:
    kafka.denied.add("WRITE")
    with pytest.raises(AuthorizationError, match="not allowed: WRITE on topic out"):
        member(tmp_path, process=number, output="out", transactional_id="one")
    assert (kafka.open, coordinator.epochs) == (set(), {})


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
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path, send: Callable[[Any], None], problem: str
) -> None:
    with writer(tmp_path, "one", lambda _, __, output: send(output)) as one:
        give(one, 0)
        kafka.feed(0, 1)
        with pytest.raises(ConfigError, match=problem):
            drain(one)
    assert committed_values(kafka, "out") == []
    assert coordinator.open == {}


def test_output_is_of_no_use_once_process_has_returned(kafka: Kafka, coordinator: Coordinator, tmp_path: Path) -> None:
    kept: list[Output] = []
    with writer(tmp_path, "one", lambda _, __, output: kept.append(output)) as one:
        give(one, 0)
        kafka.feed(0, 1)
        drain(one)
        with pytest.raises(RackassignError, match="only while process, or a function of punctuate, is called"):
            kept[0].send(b"late")
    assert coordinator.open == {}


def test_a_start_without_a_response_is_an_error_within_a_limit(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackassign.stateful._transactions._BEGIN_S", 0.5)
    kafka.refuse += ["init"] * 1000
    with pytest.raises(KafkaUnavailableError, match=r"transactions of one cannot be begun: .*init is refused"):
        writer(tmp_path, "one")
    assert coordinator.open == {}


def test_a_close_within_process_writes_nothing_twice(kafka: Kafka, coordinator: Coordinator, tmp_path: Path) -> None:
    """What a record has written so far would be committed without its effects on the state."""
    members: list[StatefulConsumer] = []

    def stops(record: Record, state: State, output: Output) -> None:
        number(record, state, output)
        if record.offset == 2 and members:
            members.pop().close()

    kafka.feed(0, 4)
    with writer(tmp_path, "one", stops, commit_interval_ms=60_000) as one:
        members.append(one)
        give(one, 0)
        (error,) = drain(one, RackassignError)
        assert str(error).startswith("close() was called while poll() is running")
    with writer(tmp_path, "other") as other:
        give(other, 0)
        drain(other)
        assert counted(other) == 4
    assert has_all_once(kafka, 4)
    assert coordinator.open == {}


def test_a_member_has_the_same_transactional_id_when_it_is_started_again_and_no_other_has_it(
    kafka: Kafka, tmp_path: Path
) -> None:
    names: list[set[str]] = []
    for folder in ("1", "1", "2"):
        before = set(kafka.coordinator.epochs)
        member(tmp_path / folder).close()
        names.append(set(kafka.coordinator.epochs) - before)
    assert [len(each) for each in names] == [1, 0, 1]
    (name,) = names[0]
    assert re.fullmatch("g-[0-9a-f]{32}", name)
    (tmp_path / "1" / "member-id").write_text("damaged")
    member(tmp_path / "1").close()
    assert len(kafka.coordinator.epochs) == 3


def test_a_commit_on_a_changelog_that_has_lost_records_is_aborted_and_the_state_is_built_again(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as copy:
        give(one, 0)
        for _ in range(3):
            kafka.feed(0, 1)
            drain(one)

        def cut(*_: object) -> None:
            kafka.before_send = None
            # A leader without the last two commits, while the third is under way.
            del kafka.topics[LOG].logs[0][3:]

        kafka.before_send = cut
        kafka.feed(0, 1)
        drain(one)
        assert counted(one) == 4
        give(copy, 0)
        drain(copy)
        assert counted(copy) == 4
    assert "t-0: its changelog has lost records: discarding and rebuilding the local state" in caplog.text


def test_a_changelog_of_the_earlier_format_is_refused_with_what_to_do(kafka: Kafka, tmp_path: Path) -> None:
    kafka.make(LOG)
    kafka.append(LOG, 0, b"\0fence", b"", [("rackassign", bytes(17))])
    with member(tmp_path) as one:
        give(one, 0)
        with pytest.raises(ConfigError, match=r"g-t-changelog was written by a version before .* state reset"):
            drain(one)


def test_a_commit_is_read_whole_or_not_at_all(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog_client, "_AT_ONCE", 2)

    def process(record: Record, state: State) -> None:
        for key in range(7):
            state.put(b"%d" % key, b"%d" % record.offset)

    with member(tmp_path / "1", process=process) as one, member(tmp_path / "2") as copy:
        give(one, 0)
        copy._assignor._copies.kept = frozenset({FIRST})
        give(copy)
        together(one)
        seen = set()
        for offset in range(3):
            kafka.feed(0, 1)
            drain(one)
            for _ in range(9):
                copy.poll(0)
                seen.add(tuple(set(dict(copy.store(FIRST).items()).values())))
            assert dict(copy.store(FIRST).items()) == {b"%d" % key: b"%d" % offset for key in range(7)}
    assert seen == {(), (b"0",), (b"1",), (b"2",)}


def test_a_file_that_ends_within_a_commit_is_used_and_completed(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a commit that is larger than what is held back."""
    monkeypatch.setattr(changelog_client, "_AT_ONCE", 3)
    changes: dict[bytes, bytes | None] = {b"\1%d" % key: b"v" for key in range(9)}
    kafka.make(LOG)
    kafka.commit_records(LOG, 0, {**changes, PROGRESS: Progress({"t": 1}).encode()})
    monkeypatch.setattr(changelog_client, "_LARGEST_COMMIT", 5)
    with member(tmp_path) as copy:
        copy._assignor._copies.kept = frozenset({FIRST})
        give(copy)
        while copy._shelf.open(FIRST).position < 6:
            copy.poll(0)
        assert copy._shelf.open(FIRST).position < 10
    monkeypatch.setattr(changelog_client, "_LARGEST_COMMIT", 25_000)
    with member(tmp_path) as copy:
        copy._assignor._copies.kept = frozenset({FIRST})
        give(copy)
        drain(copy)
        assert len(dict(copy.store(FIRST).items())) == 9
    assert "discarding" not in caplog.text


def test_a_file_that_its_owner_has_written_last_has_nothing_to_restore(kafka: Kafka, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    for _ in range(2):
        with member(tmp_path, on_restore=lambda _, *read: seen.append(read)) as one:
            give(one, 0)
            drain(one)
            kafka.feed(0, 3)
            drain(one)
    assert set(seen) <= {(0, 0)}


def test_a_stale_end_of_the_changelog_is_found_by_the_commit_and_nothing_counts_twice(
    kafka: Kafka, coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a leader that stood still and does not know yet that it is none."""
    with writer(tmp_path, "former") as former, writer(tmp_path, "next") as successor:
        give(former, 0)
        for _ in range(3):
            kafka.feed(0, 1)
            drain(former)
        give(successor, 0)
        kafka.feed(0, 1)
        with monkeypatch.context() as patch:
            for client in (successor._logs._ends, successor._logs._reader):
                patch.setattr(client, "_end", lambda _: 3)
            for _ in range(5):
                successor.poll(0)
        drain(successor)
        assert counted(successor) == 4
        assert has_all_once(kafka, 4)
    assert coordinator.open == {}
