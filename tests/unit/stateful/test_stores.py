"""Named stores: typed keys and values, values that expire, and functions that are called at intervals."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.stateful import (
    BYTES,
    INT,
    JSON,
    STR,
    Punctuate,
    Serde,
    State,
    StatefulConsumer,
    Store,
    msgpack,
    open_state,
    pair,
)
from rackassign.stateful._state_directory import StateDirectory
from rackassign.stateful._stores import LONGEST_NAME, expires, is_state_key
from tests.helpers.examples import examples
from tests.helpers.memory_directory import memory_directory
from tests.helpers.tasks import Record, Task

counts = Store("counts", STR, INT)
orders = Store("orders", pair(STR, INT), JSON)
seen = Store("seen", STR, ttl_s=10)

S_MS = 1000


def at(*times_s: float) -> list[Record]:
    """Return a record for each of these times."""
    return [Record(number, timestamp=round(time_s * S_MS)) for number, time_s in enumerate(times_s)]


def nothing(*_: object) -> None:
    pass


def test_stores_are_apart_and_have_the_types_they_were_declared_with(tmp_path: Path) -> None:
    def process(record: Record, state: State) -> None:
        name = f"käse-{record.offset % 2}"
        state[counts].put(name, (state[counts].get(name) or 0) + 1)
        state[orders].put((name, record.offset), {"at": record.offset, "name": name})
        state.put(name.encode(), b"default")
        if record.offset == 5:
            state[orders].delete((name, 1))

    task = Task(tmp_path / "1", process, [counts, orders])
    task.play(at(*range(7)))
    for moves in (False, True):
        task = task.successor(tmp_path / "2", process, [counts, orders]) if moves else task
        state = task.state
        assert dict(state[counts].items()) == {"käse-0": 4, "käse-1": 3}
        assert [key for key, _ in state[orders].items()] == [
            *(("käse-0", number) for number in (0, 2, 4, 6)),
            *(("käse-1", number) for number in (3, 5)),
        ]
        assert [v["at"] for _, v in state[orders].range(("käse-0", 1), ("käse-0", 5))] == [2, 4]
        assert dict(state["counts"].prefix("käse-1")) == {"käse-1": 3}
        assert [key.decode() for key, _ in state.items()] == ["käse-0", "käse-1"]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("orders", 'store "orders" is not declared in stores=: declared are counts'),
        (orders, 'store "orders" is not declared in stores=: declared are counts'),
        (Store("counts", STR, JSON), "store counts is declared in stores= with other options"),
    ],
)
def test_a_store_that_is_not_declared_is_named(tmp_path: Path, asked: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Task(tmp_path / "1", lambda _, state: state[asked], [counts]).play(at(0))
    assert str(raised.value) == problem


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Store(""), "the name of a store has up to 100 letters"),
        (lambda: Store("a b"), "the name of a store has"),
        (lambda: Store("x" * (LONGEST_NAME + 1)), "the name of a store has"),
        (lambda: Store(5), "the name of a store has"),  # type: ignore[arg-type]
        (lambda: Store("x", key=str), "key of store x must be a Serde, got .*; call it"),  # type: ignore[arg-type]
        (lambda: Store("x", value=None), "value of store x must be a Serde"),  # type: ignore[arg-type]
        (
            lambda: Store("x", ttl_s=0),
            "ttl_s of store x must be a number of seconds, more than 0 and up to 3162240000, got 0",
        ),
        (lambda: Store("x", ttl_s=10**400), "ttl_s of store x must be a number of seconds, more than 0 and up to"),
        (lambda: pair(STR, int), "pair takes two of Serde, got <class 'int'>"),  # type: ignore[arg-type]
        (lambda: Store("x", ttl_s=-1), "ttl_s of store x"),
        (lambda: Store("x", ttl_s=math.nan), "ttl_s of store x"),
        (lambda: Store("x", ttl_s=math.inf), "ttl_s of store x"),
        (lambda: Store("x", ttl_s=True), "ttl_s of store x"),
        (lambda: Store("x", ttl_s="1"), "ttl_s of store x"),  # type: ignore[arg-type]
        (lambda: Serde(1, 2), "serialize of a serde must be a function, got 1"),  # type: ignore[arg-type]
        (lambda: Punctuate(nothing, 0), "interval_s of punctuate must be a number"),
        (lambda: Punctuate(nothing, math.nan), "interval_s of punctuate must be a number"),
        (lambda: Punctuate(nothing, 1, "clock"), "time of punctuate must be stream or wall"),  # type: ignore[arg-type]
        (lambda: Punctuate(lambda *_: None, 1), "needs name="),
        (lambda: Punctuate(5, 1), "the function of punctuate must be"),  # type: ignore[arg-type]
    ],
)
def test_declarations_are_checked(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"stores": counts}, "stores must be a list of Store"),
        ({"stores": ["counts"]}, 'stores must be a list of Store, got "counts" in it'),
        ({"stores": [counts, Store("counts")]}, "two stores have the name counts"),
        ({"punctuate": Punctuate(nothing, 1)}, "punctuate must be a list of Punctuate"),
        ({"punctuate": [nothing]}, "punctuate must be a list of Punctuate, got .* in it"),
        ({"punctuate": [Punctuate(nothing, 1), Punctuate(nothing, 2)]}, "two functions of punctuate have the name"),
    ],
)
def test_options_are_checked(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        StatefulConsumer("t", process=nothing, state_dir=tmp_path, group_id="g", **given)
    assert not list(tmp_path.iterdir())


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9),
    st.lists(st.text(max_size=9), max_size=9),
    st.lists(st.tuples(st.text(max_size=9), st.integers(0, 9)), max_size=9),
)
def test_keys_are_in_the_order_of_what_they_stand_for(
    numbers: list[int], texts: list[str], pairs: list[tuple[str, int]]
) -> None:
    every: list[tuple[Serde[Any], list[Any]]] = [(INT, numbers), (STR, texts), (pair(STR, INT), pairs)]
    for serde, keys in every:
        assert [serde.deserialize(serde.serialize(key)) for key in keys] == keys
    assert sorted(numbers) == sorted(numbers, key=INT.serialize)
    assert sorted(texts) == sorted(texts, key=STR.serialize)
    assert sorted(pairs) == sorted(pairs, key=pair(STR, INT).serialize)


@given(st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=2)), max_size=8))
def test_pairs_of_bytes_are_ordered_as_pairs(pairs: list[tuple[bytes, bytes]]) -> None:
    serde = pair(BYTES, BYTES)
    assert [serde.deserialize(serde.serialize(each)) for each in pairs] == pairs
    assert sorted(pairs) == sorted(pairs, key=serde.serialize)


@pytest.mark.parametrize(
    ("serde", "wrong", "error"),
    [
        (STR, b"x", TypeError),
        (STR, 1, TypeError),
        (INT, "1", TypeError),
        (INT, True, TypeError),
        (INT, 1.0, TypeError),
        (INT, 2**63, ValueError),
        (INT, -(2**63) - 1, ValueError),
        (JSON, math.nan, ValueError),
        (JSON, b"x", TypeError),
    ],
)
def test_what_a_serde_cannot_store_is_refused(serde: Serde[Any], wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        serde.serialize(wrong)


def test_equal_objects_have_equal_json_and_msgpack_and_any_functions_can_be_a_serde() -> None:
    assert JSON.serialize({"b": 1, "a": "ä"}) == JSON.serialize({"a": "ä", "b": 1}) == '{"a":"ä","b":1}'.encode()
    packed = msgpack()
    assert packed.deserialize(packed.serialize({"a": [1, b"x", None]})) == {"a": [1, b"x", None]}
    assert packed.deserialize(packed.serialize({5: 1, "a": {6: 2}})) == {5: 1, "a": {6: 2}}
    own: Serde[list[int]] = Serde(bytes, list)
    assert own.deserialize(own.serialize([1, 2])) == [1, 2]


@pytest.mark.parametrize("returned", [None, "text", 5])
def test_what_a_serde_of_the_user_returns_is_checked_where_it_is_stored(tmp_path: Path, returned: Any) -> None:
    wrong: Serde[Any] = Serde(lambda _: returned, lambda stored: stored)
    for number, odd in enumerate((Store("odd", STR, wrong), Store("odd", wrong, STR))):
        task = Task(tmp_path / f"{number}", lambda _, state, odd=odd: state[odd].put("k", "v"), [odd])
        with pytest.raises(TypeError, match="keys and values of a state are bytes, got"):
            task.play(at(0))
        assert list(task.state[odd].items()) == []


@pytest.mark.parametrize(
    ("before", "after", "read", "cause"),
    [
        (Store("s", STR, STR), Store("s", STR, JSON), lambda store: store.get("ann"), "Expecting value"),
        (Store("s", STR, STR), Store("s", STR, INT), lambda store: store.get("ann"), "unpack requires"),
        (Store("s", STR, STR), Store("s", STR, JSON), lambda store: list(store.items()), "Expecting value"),
        (Store("s", STR, STR), Store("s", INT, STR), lambda store: list(store.items()), "unpack requires"),
        (Store("s", STR, STR, 60), Store("s", STR, JSON, 60), lambda store: list(store.prefix("a")), "Expecting value"),
    ],
)
def test_what_another_serde_has_stored_is_named_with_its_store_and_key(
    tmp_path: Path, before: Store[Any, Any], after: Store[Any, Any], read: Any, cause: str
) -> None:
    task = Task(tmp_path / "1", lambda _, state: state[before].put("ann", "new"), [before])
    task.play(at(0))
    with pytest.raises(ValueError, match=rf"store s: its serdes cannot read the key b'ann' .*{cause}"):
        task.successor(tmp_path / "2", lambda _, state: read(state[after]), [after]).play(at(0, 1))


def test_a_buffer_that_a_serde_uses_again_is_copied(tmp_path: Path) -> None:
    buffer = bytearray(1)

    def packed(value: int) -> Any:
        buffer[0] = value
        return buffer

    numbers = Store("numbers", INT, Serde(packed, lambda stored: stored[0]))
    task = Task(tmp_path / "1", lambda record, state: state[numbers].put(record.offset, record.offset), [numbers])
    task.play(at(*range(4)))
    assert dict(task.state[numbers].items()) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_stores_have_defaults_and_open_ranges_and_refuse_what_they_are_not(tmp_path: Path) -> None:
    pairs = Store("pairs", key=pair(STR, INT), value=INT)

    def process(_: Record, state: State) -> None:
        for number, key in enumerate((("ann", 1), ("ann", 2), ("bob", 1))):
            state[pairs].put(key, number)

    task = Task(tmp_path / "1", process, [pairs])
    task.play(at(0))
    store = task.state[pairs]
    assert (store.get(("ann", 2), 7), store.get(("eve", 1), 7), store.get(("eve", 1))) == (1, 7, None)
    assert [value for _, value in store.range(start=("ann", 2))] == [1, 2]
    assert [value for _, value in store.range(end=("ann", 2))] == [0]
    assert [value for _, value in store.range()] == [0, 1, 2]
    for wrong in ("ann", "ab", ("ann",), 5):
        with pytest.raises(TypeError, match=r"expected a pair .*range\(\(first, lowest\)"):
            store.prefix(wrong)  # type: ignore[arg-type]
    for iterated in (store, task.state):
        with pytest.raises(TypeError, match=r"iterated with items\(\)"):
            list(iterated)


def test_keys_name_their_store() -> None:
    assert is_state_key(counts.prefix() + b"x")
    assert (expires(counts.prefix()), expires(seen.prefix())) == (False, True)
    assert not any(map(is_state_key, (b"", b"\0fence", b"\4x")))


def test_values_expire_with_stream_time_here_and_in_the_changelog(tmp_path: Path) -> None:
    found: list[str | None] = []

    def process(record: Record, state: State) -> None:
        value = state[seen].get("k")
        found.append(None if value is None else value.decode())
        if record.offset in {0, 2}:
            state[seen].put("k", b"%d" % record.offset)
            state[seen].put(f"only-{record.offset}", b"")

    records = at(0, 9, 9, 18, 19, 100, 50)
    task = Task(tmp_path / "1", process, [seen])
    for record in records:
        # A successor knows the time of the stream, and what has expired.
        task = task.successor(tmp_path / f"{record.offset + 2}", process, [seen])
        task.play([record])
    # Set again at 9, so that it expires at 19; a record that is late does not set the time back.
    assert found == [None, "0", "0", "2", None, None, None]
    assert list(task.state[seen].items()) == []
    assert task.file.stored_value(seen.prefix() + b"k") is None
    assert task.file.expired_keys(10**9, 10) == []


@pytest.mark.parametrize("ttl_s", [None, 10])
def test_a_time_to_live_that_an_existing_store_gets_or_loses_hides_no_values(tmp_path: Path, ttl_s: int | None) -> None:
    before = Store("visits", STR, ttl_s=ttl_s)
    after = Store("visits", STR, ttl_s=None if ttl_s else 10)
    folder = StateDirectory(tmp_path)
    folder.open_existing({"t": "id"})
    file = folder.open(TopicPartition("t", 0)).file
    folder.close()
    task = Task(file, lambda _, state: state[before].put("ann", b"1"), [before])
    task.play(at(0))
    written = "with a ttl_s" if ttl_s else "without ttl_s"
    problem = f"store visits has values that were written {written}, .*declare it {written}, .*delete its keys"
    for opened in (lambda: Task(file, nothing, [after]), lambda: open_state(tmp_path, ("t", 0), [after])):
        with pytest.raises(ConfigError, match=problem):
            opened()
    task = Task(file, lambda _, state: state[before].delete("ann"), [before])
    task.play(at(0, 1))
    assert list(Task(file, nothing, [after]).state[after].items()) == []


def test_expired_values_are_deleted_a_few_at_a_time(tmp_path: Path) -> None:
    def process(record: Record, state: State) -> None:
        for number in range(2500) if record.offset == 0 else ():
            state[seen].put(f"{number}", b"")

    task = Task(tmp_path / "1", process, [seen])
    records, left = at(0, 20, 21, 22, 23), []
    task.play(records[:1])
    # So that the values that were set count no more: twice as many as these may be deleted at once.
    task = task.successor(tmp_path / "2", process, [seen])
    for number in range(2, 6):
        task.play(records[:number])
        left.append(len(task.file.expired_keys(10**9, 10_000)))
        # They are gone for `process` all the same.
        assert list(task.state[seen].items()) == []
    assert left == [2500, 1500, 500, 0]


@pytest.mark.parametrize("each", [1, 9])
def test_values_that_expire_faster_than_they_are_committed_do_not_accumulate(tmp_path: Path, each: int) -> None:
    def process(record: Record, state: State) -> None:
        for number in range(300):
            state[seen].put(f"{record.offset}-{number}", b"")

    task = Task(tmp_path / "1", process, [seen])
    for number, record in enumerate(at(*(number * 2 for number in range(40)))):
        # What expires before it is committed is in the file for a while.
        task.play([record], commits=number % each == 0 or number > 25)
    # 300 values every two seconds, which last for ten; and those of the last sweep.
    assert len(list(task.file.between(seen.prefix(), None))) <= 300 * 7


def windows(folder: Path, calls: list[int], number: int, records: Sequence[Record]) -> Task:
    def close_windows(time_ms: int, state: State) -> None:
        calls.append(time_ms)
        state.put(b"closed", b"%d" % (int(state.get(b"closed") or 0) + 1))

    task = Task(folder / f"{number}", nothing, (), [Punctuate(close_windows, 10)])
    task.play(records)
    return task


def test_functions_of_stream_time_are_called_once_for_each_interval_whoever_owns_the_task(tmp_path: Path) -> None:
    calls: list[int] = []
    records = at(3, 9, 10, 11, 5, 19, 20, 47, 49, 50)
    for number in range(len(records)):
        # Each record has another owner, which continues where the last one was.
        task = windows(tmp_path, calls, number, records[: number + 1])
        closed = task.state.get(b"closed")
        task.successor(tmp_path / f"{number + 1}").file.close()
    # Of the intervals from 20 to 40, in which nothing came, there is one call.
    assert calls == [10_000, 20_000, 40_000, 50_000]
    assert closed == b"4"


def test_a_function_that_raises_is_called_again_and_the_records_before_it_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fail = True
    calls: list[int] = []

    def boundary(time_ms: int, state: State) -> None:
        state.put(b"half", b"")
        if fail:
            raise ZeroDivisionError
        calls.append(time_ms)
        state.delete(b"half")

    def process(record: Record, state: State) -> None:
        state.put(b"n", b"%d" % record.offset)

    # Whether other records come behind it or not.
    for more in ((12,), ()):
        fail = True
        calls.clear()
        task = Task(tmp_path / f"{more}", process, (), [Punctuate(boundary, 10)])
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                task.play(at(1, 11, *more))
            assert dict(task.state.items()) == {b"n": b"1"}
        fail = False
        task.play(at(1, 11, *more))
        assert (calls, dict(task.state.items())) == ([10_000], {b"n": b"%d" % (1 + len(more))})
    assert len(re.findall(r"boundary of punctuate raised at 10000 in .*: ZeroDivisionError\(\)", caplog.text)) == 2


def test_functions_of_wall_clock_time_are_called_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    calls: list[int] = []

    def tick(time_ms: int, state: State) -> None:
        calls.append(time_ms)
        state.put(b"ticks", b"%d" % len(calls))

    ticking = Punctuate(tick, 10, "wall")
    task = Task(tmp_path / "0", nothing, (), [ticking])
    for number in range(1, 3):
        task.play(())
        for _ in range(3):
            now += 4
            task.play(())
        task = task.successor(tmp_path / f"{number}", nothing, (), [ticking])
    assert calls == [1_000_012_000, 1_000_024_000]
    now -= 100_000
    task.play(())
    # The clock was set back: the interval begins anew.
    now += 11
    task.play(())
    assert calls[2:] == [int(now * 1000)]
    assert task.state.get(b"ticks") == b"3"
    # The same function at intervals of stream time, which is far behind the clock.
    calls.clear()
    task.successor(tmp_path / "stream", nothing, (), [Punctuate(tick, 10)]).play(at(5, 15, 25, 35))
    assert calls == [10_000, 20_000, 30_000]


moves = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "read"]), st.sampled_from("abc"), st.integers(0, 40))
    | st.sampled_from(["commit", "move"]),
    max_size=30,
)


@given(moves)
@settings(max_examples=examples(80), deadline=None)
def test_what_has_not_expired_is_that_of_a_map_with_times(moves: list[Any]) -> None:
    model: dict[str, tuple[int, int]] = {}
    now_s = -1
    store = Store("s", STR, INT, ttl_s=10)

    def process(record: Record, state: State) -> None:
        nonlocal now_s
        kind, key, at_s = json.loads(record.value or b"")
        now_s = max(now_s, at_s)
        living = {key: value for key, (value, until_s) in model.items() if until_s > now_s}
        assert dict(state[store].items()) == living
        assert state[store].get(key) == living.get(key)
        if kind == "put":
            state[store].put(key, record.offset)
            model[key] = (record.offset, now_s + 10)
        elif kind == "delete":
            state[store].delete(key)
            model.pop(key, None)

    with memory_directory() as folder:
        task = Task(Path(folder) / "0", process, [store])
        for number, move in enumerate(moves):
            if isinstance(move, tuple):
                task.play([Record(number, None, json.dumps(move).encode(), move[2] * S_MS)], commits=False)
            else:
                task.commit()
                if move == "move":
                    task = task.successor(Path(folder) / f"{number + 1}", process, [store])
        task.file.close()
