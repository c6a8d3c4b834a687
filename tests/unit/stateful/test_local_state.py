"""What `process` may do with a state.

Whatever storage does in between, at each of its steps: each record counts once, here and in the changelog.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.stateful import State, StatefulConsumer, StateStore, StoreError
from rackassign.stateful._local_state import StateFile
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.faulty_files import FULL, FaultyFiles
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import FIRST, count, counted, drain, give, member, pause, settle

keys = st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"a\xff", b"a\xff\xff", b"b"])


def filled(file: StateFile, state: dict[bytes, bytes]) -> None:
    file.apply({b"\1" + key: value for key, value in state.items()}, len(state))


@given(
    st.dictionaries(keys, st.binary(max_size=2), max_size=12),
    st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=2), max_size=6), max_size=3),
    keys,
    keys,
)
@settings(max_examples=examples(60), deadline=None)
def test_iterations_are_those_of_a_sorted_map(
    stored: dict[bytes, bytes], records: list[dict[bytes, bytes | None]], start: bytes, end: bytes
) -> None:
    with memory_directory() as folder:
        file = StateFile(Path(folder) / "x.sqlite")
        filled(file, stored)
        store, model = State(file), dict(stored)
        for changes in records:
            file.begin()
            for key, value in changes.items():
                if value is None:
                    store.delete(key)
                    model.pop(key, None)
                else:
                    store.put(key, value)
                    model[key] = value
            assert list(store.items()) == sorted(model.items())
            assert list(store.range(start, end)) == sorted(each for each in model.items() if start <= each[0] < end)
            assert list(store.prefix(start)) == sorted(each for each in model.items() if each[0].startswith(start))
            file.commit_record()
        file.close()


def test_an_iteration_shows_the_state_at_its_beginning_while_process_writes(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "x.sqlite")
    state = {b"%04d" % number: b"v" for number in range(1000)}
    filled(file, state)
    store = State(file)
    file.begin()
    seen = []
    for key, value in store.range(b"0100", b"0900"):
        seen.append((key, value))
        store.delete(key)
        store.put(b"0899x" + key, b"new")
    assert seen == [each for each in sorted(state.items()) if b"0100" <= each[0] < b"0900"]
    assert len(list(store.range(b"0100", b"0900"))) == 800
    file.close()


def test_an_iteration_is_lazy_and_ends_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StateFile(tmp_path / "x.sqlite")
    filled(file, {b"%04d" % number: b"v" for number in range(1000)})
    reads: list[tuple[bytes, ...]] = []
    read = file._read

    def counted(statement: str, values: tuple[bytes, ...]) -> list[Any]:
        reads.append(values)
        return read(statement, values)

    monkeypatch.setattr(file, "_read", counted)
    rows = State(file).items()
    assert [key for key, _ in islice(rows, 10)] == [b"%04d" % number for number in range(10)]
    assert len(reads) == 1
    file.apply({b"\1" + b"0500": None}, 1001)
    with pytest.raises(StoreError, match="was changed since this iteration began"):
        list(rows)
    file.close()


@pytest.mark.parametrize("wrong", ["x", 5, None, [1]])
def test_what_is_not_bytes_is_refused_by_each_method(kafka: Kafka, tmp_path: Path, wrong: Any) -> None:
    problem = f"keys and values of a state are bytes, got {type(wrong).__name__}"
    calls: tuple[Callable[[Any], object], ...] = (
        lambda store: store.get(wrong),
        lambda store: store.put(wrong, b""),
        lambda store: store.put(b"", wrong),
        lambda store: store.delete(wrong),
        lambda store: store.prefix(wrong),
    )
    if wrong is not None:
        # None is no bound.
        calls += (lambda store: store.range(wrong, b""), lambda store: store.range(b"", wrong))
    refused = 0

    def process(_: object, store: StateStore) -> None:
        nonlocal refused
        for call in calls:
            with pytest.raises(TypeError, match=problem):
                call(store)
            refused += 1

    kafka.feed(0, 1)
    with member(tmp_path, process=process) as one:
        give(one, 0)
        drain(one)
    assert refused == len(calls)


def test_process_receives_nothing_but_what_it_may_call(kafka: Kafka, tmp_path: Path) -> None:
    names: set[str] = set()
    kafka.feed(0, 1)
    with member(tmp_path, process=lambda _, store: names.update(dir(store))) as one:
        give(one, 0)
        drain(one)
    assert {name for name in names if not name.startswith("_")} == {"get", "put", "delete", "items", "range", "prefix"}


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which would end the test run if it came where it is not expected."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "full": lambda: sqlite3.OperationalError(FULL),
    "malformed": lambda: sqlite3.DatabaseError("database disk image is malformed"),
    "io": lambda: sqlite3.OperationalError("disk I/O error"),
    "files": lambda: sqlite3.OperationalError("unable to open database file"),
    "interrupt": Interrupted,
}


class Faults:
    """Errors at steps that are counted from now on."""

    def __init__(self) -> None:
        self.at: dict[int, str] = {}
        self.step = 0

    def __call__(self, _: str, __: str) -> BaseException | None:
        self.step += 1
        kind = self.at.pop(self.step, None)
        return None if kind is None else ERRORS[kind]()

    def plan(self, steps: dict[int, str]) -> None:
        self.at, self.step = dict(steps), 0


def process(record: Record, store: StateStore) -> None:
    count(record, store)
    previous = b"%d" % (record.offset - 1)
    if store.get(previous) is not None:
        store.delete(previous)
    store.put(b"%d" % record.offset, b"")
    assert len(list(store.items())) == 2


def expected(records: int) -> dict[bytes, bytes]:
    return {b"%d" % (records - 1): b"", b"n": b"%d" % records} if records else {}


moves = st.lists(
    st.sampled_from(["feed", "pause", "restart", "rebalance", "poll"])
    | st.tuples(
        st.sampled_from(["before", "after"]),
        st.dictionaries(st.integers(1, 40), st.sampled_from(list(ERRORS)), min_size=1, max_size=4),
    ),
    max_size=14,
)


@given(moves)
@settings(max_examples=examples(150), deadline=None)
def test_the_state_is_that_of_the_input(moves: list[str | tuple[str, dict[int, str]]]) -> None:
    fed = [0, 0]
    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka, files = Kafka().installed(patch), FaultyFiles().installed(patch)
        kafka.make("t")
        files.before, files.after = before, after = Faults(), Faults()
        one = started(Path(folder) / "1", Faults())
        for move in [*moves, "feed"]:
            if move == "feed":
                for partition in range(2):
                    kafka.feed(partition, 2)
                    fed[partition] += 2
            elif move == "pause":
                pause(one)
            elif move == "restart":
                # A fault that was planned may come with the end: everything is closed all the same.
                with suppress(Interrupted):
                    one.close()
                one = started(Path(folder) / "1", before)
            elif move == "rebalance":
                give(one, 1)
                drain(one, Interrupted)
                give(one, 0, 1)
            elif isinstance(move, tuple):
                (before if move[0] == "before" else after).plan(move[1])
            settle(one, Interrupted)
        for fault in (before, after):
            fault.plan({})
        settle(one)
        assert [counted(one, partition) for partition in range(2)] == fed
        assert dict(one.store(FIRST).items()) == expected(fed[0])
        one.close()
        other = started(Path(folder) / "2", before)
        settle(other)
        assert dict(other.store(FIRST).items()) == expected(fed[0])
        other.close()


def started(folder: Path, faults: Faults) -> StatefulConsumer:
    """Start a member, again if its files could not be opened."""
    while True:
        try:
            one = member(folder, process=process)
        except (StoreError, Interrupted):
            assert faults.step
            continue
        give(one, 0, 1)
        return one


@pytest.mark.parametrize("step", range(1, 16))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["full", "io"])
def test_a_state_whose_clearing_fails_after_a_pause_is_used_only_once_that_succeeds(
    kafka: Kafka, tmp_path: Path, files: FaultyFiles, step: int, when: str, kind: str
) -> None:
    fault = Faults()
    with member(tmp_path) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        kafka.feed(1, 3)
        drain(one)
        pause(one)
        fault.plan({step: kind})
        setattr(files, when, fault)
        kafka.feed(0, 2)
        kafka.feed(1, 2)
        settle(one)
        assert [counted(one, partition) for partition in range(2)] == [5, 5]
    with member(tmp_path / "2") as other:
        give(other, 0, 1)
        settle(other)
        assert [counted(other, partition) for partition in range(2)] == [5, 5]


def test_a_partition_whose_clearing_fails_is_neither_processed_nor_taken_over_and_others_are(
    kafka: Kafka, tmp_path: Path, files: FaultyFiles
) -> None:
    with member(tmp_path) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        kafka.feed(1, 3)
        drain(one)
        pause(one)
        files.before = lambda file, text: (
            sqlite3.OperationalError(FULL) if file.startswith("t-0") and text.startswith("BEGIN;") else None
        )
        kafka.feed(0, 2)
        kafka.feed(1, 2)
        settle(one)
        assert {tp.partition for tp in one.active_partitions()} == {1}
        assert FIRST not in one._known.positions
        assert counted(one, 1) == 5
        with pytest.raises(StoreError, match="no local state"):
            one.store(FIRST).get(b"n")
        files.before = lambda *_: None
        settle(one)
        assert counted(one) == 5
