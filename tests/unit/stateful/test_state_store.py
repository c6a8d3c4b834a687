"""What `process` may do with a state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.stateful import State, StateStore, StoreError
from rackassign.stateful.changelog.replay import ChangelogRecord
from rackassign.stateful.files.state_file import StateFile
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import drain, give, member

keys = st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"a\xff", b"a\xff\xff", b"b"])


def filled(file: StateFile, state: dict[bytes, bytes]) -> None:
    file.apply(
        [ChangelogRecord("last", 1, at, b"\1" + key, value) for at, (key, value) in enumerate(state.items())],
        len(state),
    )


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
    file.apply([ChangelogRecord("last", 1, 2000, b"\1" + b"0500", None)], 1001)
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
