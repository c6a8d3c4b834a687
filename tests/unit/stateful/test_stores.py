"""Named stores: typed keys and values, values that expire, and functions that are called at intervals."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition as KafkaPythonPartition

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
from rackassign.stateful import _processing as task_run
from rackassign.stateful._changelog import LARGEST_BYTES
from rackassign.stateful._stores import LONGEST_NAME, expires, is_state_key
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import FIRST, LOG, drain, give, member, polled

counts = Store("counts", STR, INT)
orders = Store("orders", pair(STR, INT), JSON)
seen = Store("seen", STR, ttl_s=10)

S_MS = 1000


def feed_at(kafka: Kafka, *times_s: float, partition: int = 0) -> None:
    for time_s in times_s:
        kafka.append("t", partition, None, b"x", timestamp=round(time_s * S_MS))


def nothing(*_: object) -> None:
    pass


def test_stores_are_apart_and_have_the_types_they_were_declared_with(kafka: Kafka, tmp_path: Path) -> None:
    def process(record: Record, state: State) -> None:
        name = f"käse-{record.offset % 2}"
        state[counts].put(name, (state[counts].get(name) or 0) + 1)
        state[orders].put((name, record.offset), {"at": record.offset, "name": name})
        state.put(name.encode(), b"default")
        if record.offset == 5:
            state[orders].delete((name, 1))

    kafka.feed(0, 7)
    for folder in ("1", "2"):
        with member(tmp_path / folder, process=process, stores=[counts, orders]) as one:
            give(one, 0)
            drain(one)
            state = one.store(FIRST)
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
def test_a_store_that_is_not_declared_is_named(kafka: Kafka, tmp_path: Path, asked: Any, problem: str) -> None:
    kafka.feed(0, 1)
    with member(tmp_path, process=lambda _, state: state[asked], stores=[counts]) as one:
        give(one, 0)
        with pytest.raises(ConfigError) as raised:
            drain(one)
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
def test_options_are_checked(kafka: Kafka, tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        member(tmp_path, **given)
    assert not kafka.open


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.text()), st.lists(st.tuples(st.text(), st.integers(0, 9)))
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
def test_what_a_serde_of_the_user_returns_is_checked_where_it_is_stored(
    kafka: Kafka, tmp_path: Path, returned: Any
) -> None:
    wrong: Serde[Any] = Serde(lambda _: returned, lambda stored: stored)
    for number, odd in enumerate((Store("odd", STR, wrong), Store("odd", wrong, STR))):
        kafka.feed(number, 1)

        def process(_: Record, state: State, store: Store[Any, Any] = odd) -> None:
            state[store].put("k", "v")

        with member(tmp_path / f"{number}", process=process, stores=[odd]) as one:
            give(one, number)
            with pytest.raises(TypeError, match="keys and values of a state are bytes, got"):
                drain(one)
            assert list(one.store(TopicPartition("t", number))[odd].items()) == []


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
    kafka: Kafka, tmp_path: Path, before: Store[Any, Any], after: Store[Any, Any], read: Any, cause: str
) -> None:
    kafka.feed(0, 1)
    with member(tmp_path, process=lambda _, state: state[before].put("ann", "new"), stores=[before]) as one:
        give(one, 0)
        drain(one)
    kafka.feed(0, 1)
    with member(tmp_path, process=lambda _, state: read(state[after]), stores=[after]) as one:
        give(one, 0)
        with pytest.raises(ValueError, match=rf"store s: its serdes cannot read the key b'ann' .*{cause}"):
            polled(one)


def test_a_buffer_that_a_serde_uses_again_is_copied(kafka: Kafka, tmp_path: Path) -> None:
    buffer = bytearray(1)

    def packed(value: int) -> Any:
        buffer[0] = value
        return buffer

    numbers = Store("numbers", INT, Serde(packed, lambda stored: stored[0]))
    kafka.feed(0, 4)
    with member(
        tmp_path, process=lambda record, state: state[numbers].put(record.offset, record.offset), stores=[numbers]
    ) as one:
        give(one, 0)
        drain(one)
        assert dict(one.store(FIRST)[numbers].items()) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_stores_have_defaults_and_open_ranges_and_refuse_what_they_are_not(kafka: Kafka, tmp_path: Path) -> None:
    pairs = Store("pairs", key=pair(STR, INT), value=INT)

    def process(_: Record, state: State) -> None:
        for number, key in enumerate((("ann", 1), ("ann", 2), ("bob", 1))):
            state[pairs].put(key, number)

    kafka.feed(0, 1)
    with member(tmp_path, process=process, stores=[pairs]) as one:
        give(one, 0)
        drain(one)
        store = one.store(FIRST)[pairs]
        assert (store.get(("ann", 2), 7), store.get(("eve", 1), 7), store.get(("eve", 1))) == (1, 7, None)
        assert [value for _, value in store.range(start=("ann", 2))] == [1, 2]
        assert [value for _, value in store.range(end=("ann", 2))] == [0]
        assert [value for _, value in store.range()] == [0, 1, 2]
        for wrong in ("ann", "ab", ("ann",), 5):
            with pytest.raises(TypeError, match=r"expected a pair .*range\(\(first, lowest\)"):
                store.prefix(wrong)  # type: ignore[arg-type]
        for iterated in (store, one.store(FIRST)):
            with pytest.raises(TypeError, match=r"iterated with items\(\)"):
                list(iterated)


def test_keys_name_their_store() -> None:
    assert is_state_key(counts.prefix() + b"x")
    assert (expires(counts.prefix()), expires(seen.prefix())) == (False, True)
    assert not is_state_key(b"")
    assert not is_state_key(b"\0fence")
    assert not is_state_key(b"\4x")


@pytest.mark.parametrize(("limit", "largest"), [("1048588", LARGEST_BYTES), ("9999999", LARGEST_BYTES), ("6024", 5000)])
def test_what_the_changelog_does_not_take_fails_with_its_record_alone(
    kafka: Kafka, tmp_path: Path, limit: str, largest: int
) -> None:
    def process(record: Record, state: State) -> None:
        state.put(b"n", b"%d" % record.offset)
        if record.offset == 3:
            state.put(b"large", bytes(largest - 6 + too_many))

    too_many = 1
    kafka.make("g-t-changelog", configs={"max.message.bytes": limit})
    kafka.feed(0, 5)
    problem = f"a key of 6 bytes and its value have {largest + 1:,} bytes, of which the changelog takes {largest:,} "
    with member(tmp_path, process=process) as one:
        give(one, 0)
        for _ in range(3):
            with pytest.raises(ValueError, match=re.escape(problem)):
                drain(one)
            assert dict(one.store(FIRST).items()) == {b"n": b"2"}
        too_many = 0
        drain(one)
        assert dict(one.store(FIRST).items())[b"n"] == b"4"


def test_values_expire_with_stream_time_here_and_in_the_changelog(kafka: Kafka, tmp_path: Path) -> None:
    found: list[str | None] = []

    def process(record: Record, state: State) -> None:
        value = state[seen].get("k")
        found.append(None if value is None else value.decode())
        if record.offset in {0, 2}:
            state[seen].put("k", b"%d" % record.offset)
            state[seen].put(f"only-{record.offset}", b"")

    feed_at(kafka, 0, 9, 9, 18, 19, 100)
    with member(tmp_path / "1", process=process, stores=[seen], max_poll_records=1) as one:
        give(one, 0)
        drain(one)
        # Set again at 9, so that it expires at 19; a record that is late does not set the time back.
        assert found == [None, "0", "0", "2", None, None]
        assert list(one.store(FIRST)[seen].items()) == []
        feed_at(kafka, 50)
        drain(one)
        assert one._shelf.open(FIRST).stored_value(seen.prefix() + b"k") is None
        assert one._shelf.open(FIRST).expired_keys(10**9, 10) == []
    with member(tmp_path / "2", process=process, stores=[seen]) as heir:
        give(heir, 0)
        drain(heir)
        assert list(heir._shelf.open(FIRST).between(seen.prefix(), None))[:-1] == []
        assert found[-1] is None


@pytest.mark.parametrize("ttl_s", [None, 10])
def test_a_time_to_live_that_an_existing_store_gets_or_loses_hides_no_values(
    kafka: Kafka, tmp_path: Path, ttl_s: int | None
) -> None:
    before = Store("visits", STR, ttl_s=ttl_s)
    after = Store("visits", STR, ttl_s=None if ttl_s else 10)
    kept = Store("kept", STR, ttl_s=after.ttl_s)

    def process(_: Record, state: State) -> None:
        state[before].put("ann", b"1")

    def drop(_: Record, state: State) -> None:
        for key, value in state[before].items():
            state[kept].put(key, value)
            state[before].delete(key)

    feed_at(kafka, 0)
    with member(tmp_path / "1", process=process, stores=[before]) as one:
        give(one, 0)
        drain(one)
    written = "with a ttl_s" if ttl_s else "without ttl_s"
    problem = f"store visits has values that were written {written}, .*declare it {written}, .*delete its keys"
    feed_at(kafka, 1)
    with member(tmp_path / "1", process=nothing, stores=[after]) as one:
        give(one, 0)
        for _ in range(2):
            with pytest.raises(ConfigError, match=problem):
                polled(one)
    with pytest.raises(ConfigError, match=problem):
        open_state(tmp_path / "1", FIRST, [after])
    with member(tmp_path / "1", process=drop, stores=[before, kept]) as one:
        give(one, 0)
        drain(one)
    with member(tmp_path / "1", process=nothing, stores=[after, kept]) as one:
        give(one, 0)
        drain(one)
        assert list(one.store(FIRST)[after].items()) == []
        assert dict(one.store(FIRST)[kept].items()) == {"ann": b"1"}


def test_expired_values_are_deleted_a_few_at_a_time(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_run, "_EXPIRED_AT_ONCE", 10)

    def process(record: Record, state: State) -> None:
        for number in range(100) if record.offset == 0 else ():
            state[seen].put(f"{number}", b"")

    with member(tmp_path, process=process, stores=[seen]) as one:
        give(one, 0)
        feed_at(kafka, 0)
        drain(one)
        left = []
        for at_s in (20, 21, 22):
            feed_at(kafka, at_s)
            one.poll(0)
            one.poll(0)
            left.append(len(one._shelf.open(FIRST).expired_keys(10**9, 1000)))
            # They are gone for `process` all the same.
            assert list(one.store(FIRST)[seen].items()) == []
        assert left == [100, 90, 80]


@pytest.mark.parametrize("commit_interval_ms", [0, 60_000])
def test_values_that_expire_faster_than_they_are_committed_do_not_accumulate(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit_interval_ms: int
) -> None:
    monkeypatch.setattr(task_run, "_EXPIRED_AT_ONCE", 10)

    def process(record: Record, state: State) -> None:
        for number in range(5):
            state[seen].put(f"{record.offset}-{number}", b"")

    with member(tmp_path, process=process, stores=[seen], commit_interval_ms=commit_interval_ms) as one:
        give(one, 0)
        for at_s in range(0, 400, 2):
            feed_at(kafka, at_s, at_s, at_s, at_s)
            one.poll(0)
            # What expires before it is committed is in the file for a while.
            if not at_s % 40 or at_s > 360:
                one.commit()
        # Four records with five values each every two seconds, which last for ten; and those of the last sweep.
        rows = list(one._shelf.open(FIRST).between(seen.prefix(), None))
        assert len(rows) <= 20 * 7


def test_an_heir_knows_the_time_of_the_stream(kafka: Kafka, tmp_path: Path) -> None:
    def process(record: Record, state: State) -> None:
        if record.offset == 0:
            state[seen].put("k", b"")

    feed_at(kafka, 0, 100)
    with member(tmp_path / "1", process=process, stores=[seen]) as one:
        give(one, 0)
        drain(one)
    with member(tmp_path / "2", process=process, stores=[seen]) as heir:
        give(heir, 0)
        drain(heir)
        assert heir.store(FIRST)[seen].get("k") is None


def windows(kafka: Kafka, folder: Path, calls: list[int], **more: Any) -> StatefulConsumer:
    def close_windows(time_ms: int, state: State) -> None:
        calls.append(time_ms)
        state.put(b"closed", b"%d" % (int(state.get(b"closed") or 0) + 1))

    del kafka
    return member(folder, process=nothing, punctuate=[Punctuate(close_windows, 10)], **more)


def test_functions_of_stream_time_are_called_once_for_each_interval_whoever_owns_the_task(
    kafka: Kafka, tmp_path: Path
) -> None:
    calls: list[int] = []
    at = (3, 9, 10, 11, 5, 19, 20, 47, 49, 50)
    for number, time_s in enumerate(at):
        feed_at(kafka, time_s)
        # Each record has another owner, which continues where the last one was.
        with windows(kafka, tmp_path / f"{number}", calls) as one:
            give(one, 0)
            drain(one)
            closed = one.store(FIRST).get(b"closed")
    # Of the intervals from 20 to 40, in which nothing came, there is one call.
    assert calls == [10_000, 20_000, 40_000, 50_000]
    assert closed == b"4"


def test_a_function_of_wall_clock_time_that_becomes_one_of_stream_time_is_called(kafka: Kafka, tmp_path: Path) -> None:
    calls: list[int] = []

    def tick(time_ms: int, state: State) -> None:
        calls.append(time_ms)
        state.put(b"t", b"")

    with member(tmp_path, process=nothing, punctuate=[Punctuate(tick, 0.05, "wall")]) as one:
        give(one, 0)
        feed_at(kafka, 1)
        drain(one)
        time.sleep(0.1)
        drain(one)
    assert calls
    calls.clear()
    with member(tmp_path, process=nothing, punctuate=[Punctuate(tick, 10)]) as one:
        give(one, 0)
        feed_at(kafka, 5, 15, 25, 35)
        drain(one)
    assert calls == [10_000, 20_000, 30_000]


def test_a_function_that_raises_is_called_again_and_the_records_before_it_count(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
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
    for more, folder in (((12,), "1"), ((), "2")):
        kafka.make("t")
        kafka.topics.pop(LOG, None)
        fail = True
        calls.clear()
        feed_at(kafka, 1, 11, *more)
        with member(tmp_path / folder, process=process, punctuate=[Punctuate(boundary, 10)]) as one:
            give(one, 0)
            for _ in range(3):
                with pytest.raises(ZeroDivisionError):
                    drain(one)
                assert dict(one.store(FIRST).items()) == {b"n": b"1"}
            fail = False
            drain(one)
            assert (calls, dict(one.store(FIRST).items())) == ([10_000], {b"n": b"%d" % (1 + len(more))})
    assert len(re.findall(r"boundary of punctuate raised at 10000 in t-0@.*: ZeroDivisionError\(\)", caplog.text)) == 2


def test_functions_of_wall_clock_time_are_called_without_records(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(task_run, "_now_ms", lambda: int(now * 1000))
    calls: list[int] = []

    def tick(time_ms: int, state: State) -> None:
        calls.append(time_ms)
        state.put(b"ticks", b"%d" % len(calls))

    for folder in ("1", "2"):
        with member(tmp_path / folder, process=nothing, punctuate=[Punctuate(tick, 10, "wall")]) as one:
            give(one, 0)
            drain(one)
            assert one._active.wait_ms(60_000) == 10_000
            for _ in range(3):
                now += 4
                one.poll(0)
    assert calls == [1_000_012_000, 1_000_024_000]
    now -= 100_000
    with member(tmp_path / "3", process=nothing, punctuate=[Punctuate(tick, 10, "wall")]) as one:
        give(one, 0)
        drain(one)
        # The clock was set back: the interval begins anew.
        now += 11
        drain(one)
        assert calls[2:] == [int(now * 1000)]
        assert one.store(FIRST).get(b"ticks") == b"3"
    assert kafka.end(KafkaPythonPartition(*FIRST)) == 0


moves = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "read"]), st.sampled_from("abc"), st.integers(0, 40))
    | st.sampled_from(["move", "fresh"]),
    max_size=30,
)


@given(moves)
@settings(max_examples=examples(80), deadline=None)
def test_what_has_not_expired_is_that_of_a_map_with_times(moves: list[Any]) -> None:
    model: dict[str, tuple[int, int]] = {}
    now_s = -1
    shown: list[tuple[dict[str, int], dict[str, int]]] = []
    store = Store("s", STR, INT, ttl_s=10)

    def process(record: Record, state: State) -> None:
        nonlocal now_s
        kind, key, at_s = json.loads(record.value or b"")
        now_s = max(now_s, at_s)
        living = {key: value for key, (value, until_s) in model.items() if until_s > now_s}
        shown.append((dict(state[store].items()), living))
        assert state[store].get(key) == living.get(key)
        if kind == "put":
            state[store].put(key, record.offset)
            model[key] = (record.offset, now_s + 10)
        elif kind == "delete":
            state[store].delete(key)
            model.pop(key, None)

    def started(number: int) -> StatefulConsumer:
        one = member(Path(folder) / f"{number}", process=process, stores=[store], max_poll_records=2)
        give(one, 0)
        return one

    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka = Kafka().installed(patch)
        kafka.make("t")
        number = 0
        one = started(number)
        for move in moves:
            if isinstance(move, tuple):
                kafka.append("t", 0, None, json.dumps(move).encode(), timestamp=move[2] * S_MS)
                continue
            drain(one)
            one.close()
            number += move == "fresh"
            one = started(number)
        drain(one)
        one.close()
    assert all(found == living for found, living in shown)


def test_the_time_of_this_machine_is_in_milliseconds() -> None:
    assert abs(task_run._now_ms() / 1000 - time.time()) < 60
