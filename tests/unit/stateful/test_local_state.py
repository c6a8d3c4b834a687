"""What `process` may do with a state, and files that fail at any step: none is used before it is what it should be."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.model import TopicPartition
from rackassign.stateful import State, StateStore, StoreError
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._state_directory import StateDirectory
from tests.helpers.examples import examples
from tests.helpers.faulty_files import FULL, FaultyFiles
from tests.helpers.kafka.state_disks import damage_page
from tests.helpers.memory_directory import memory_directory
from tests.helpers.tasks import Record, Task

FIRST = TopicPartition("t", 0)

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


def test_an_iteration_ends_when_the_file_changes(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "x.sqlite")
    filled(file, {b"%04d" % number: b"v" for number in range(1000)})
    rows = State(file).items()
    assert [key for key, _ in islice(rows, 10)] == [b"%04d" % number for number in range(10)]
    file.apply({b"\1" + b"0500": None}, 1001)
    with pytest.raises(StoreError, match="was changed since this iteration began"):
        list(rows)
    file.close()


@pytest.mark.parametrize("wrong", ["x", 5, None, [1]])
def test_what_is_not_bytes_is_refused_by_each_method(tmp_path: Path, wrong: Any) -> None:
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
            with pytest.raises(TypeError, match=f"keys and values of a state are bytes, got {type(wrong).__name__}"):
                call(store)
            refused += 1

    Task(tmp_path / "1", process).play([Record(0)])
    assert refused == len(calls)


def test_process_receives_nothing_but_what_it_may_call(tmp_path: Path) -> None:
    names: set[str] = set()
    Task(tmp_path / "1", lambda _, store: names.update(dir(store))).play([Record(0)])
    assert {name for name in names if not name.startswith("_")} == {"get", "put", "delete", "items", "range", "prefix"}


def test_a_state_is_changed_by_input_records_alone_and_in_limits(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "1", largest_bytes=6)
    file.begin()
    file.change(b"\1key", b"12")
    with pytest.raises(ValueError, match="a key of 4 bytes and its value have 7 bytes, of which the changelog takes 6"):
        file.change(b"\1key", b"123")
    file.commit_record()
    assert file.uncommitted == {b"\1key": b"12"}
    with pytest.raises(StoreError, match="is changed by input records alone, in process"):
        file.change(b"\1key", b"1")
    file.close()


ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: sqlite3.OperationalError(FULL),
    lambda: sqlite3.DatabaseError("database disk image is malformed"),
    lambda: sqlite3.OperationalError("disk I/O error"),
    lambda: sqlite3.OperationalError("unable to open database file"),
    KeyboardInterrupt,
)

VALUES: dict[bytes, bytes | None] = {b"\1a": b"1", b"\1b": b"2"}


def steps_failing(files: FaultyFiles, when: str, error: Callable[[], BaseException], step: int) -> None:
    """Let one of the next statements fail, before or after it has had its effect."""
    left = step

    def fault(*_: str) -> BaseException | None:
        nonlocal left
        left -= 1
        return None if left else error()

    setattr(files, when, fault)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("clears", [False, True], ids=["applied", "cleared"])
def test_a_file_that_fails_at_any_step_is_used_again_as_of_before_or_behind_it(
    tmp_path: Path, files: FaultyFiles, when: str, error: Callable[[], BaseException], *, clears: bool
) -> None:
    """A state that is too old is gone whatever fails, and one that was damaged is restored from its first record."""
    for step in range(1, 16):
        folder = StateDirectory(tmp_path / f"{step}")
        folder.open_existing({"t": "id"})
        folder.open(FIRST).apply(VALUES, 5, 4)
        steps_failing(files, when, error, step)
        try:
            if clears:
                folder.expire()
                folder.available(FIRST)
            else:
                folder.open(FIRST).apply({b"\1a": None, b"\1c": b"3"}, 9, 8)
        except StoreError as failed:
            folder.failed(FIRST, failed)
        except KeyboardInterrupt:
            pass
        if clears:
            # Nobody is told that it has a state before that is gone.
            assert folder.positions().get(FIRST, 0) == 0
        found = None
        while found is None:
            try:
                found = folder.available(FIRST)
            except KeyboardInterrupt:
                continue
        files.before = files.after = lambda *_: None
        assert (found.position, dict(found.between(b"", None))) in [
            *([] if clears else [(5, VALUES), (9, {b"\1b": b"2", b"\1c": b"3"})]),
            (0, {}),
        ]
        folder.close()


@pytest.mark.parametrize(("rows", "seed"), [(8, 995), (300, 273), (300, 377), (300, 535)])
def test_a_page_that_has_lost_rows_or_their_order_is_damage(tmp_path: Path, rows: int, seed: int) -> None:
    """All rows that are found in such a file are what was written."""
    state = {b"\1word-%d" % i: b"value-%d" % i for i in range(rows)}
    file = StateFile(tmp_path / "1")
    file.apply(state, 5, 4)
    file.close()
    damage_page(tmp_path / "1", random.Random(seed))

    with pytest.raises(StoreError):
        StateFile(tmp_path / "1")
