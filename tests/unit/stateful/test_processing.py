"""A `process` whose body does not run when it is called is refused, before anything is committed.

Stream time, which a timestamp in a wrong unit does not move.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.stateful import INT, STR, Punctuate, State, StatefulConsumer, StateStore, Store
from rackassign.stateful._processing import LATEST_MS
from tests.helpers.tasks import Record, Task


def count(_: object, store: StateStore) -> None:
    store.put(b"n", b"%d" % (int(store.get(b"n") or 0) + 1))


async def coroutine(record: Record, store: StateStore) -> None:
    count(record, store)


def generator(record: Record, store: StateStore) -> Iterator[None]:
    count(record, store)
    yield


async def asynchronous_generator(record: Record, store: StateStore) -> AsyncIterator[None]:
    count(record, store)
    yield


class Deferred:
    async def __call__(self, record: Record, store: StateStore) -> None:
        count(record, store)

    def yields(self, record: Record, store: StateStore) -> Iterator[None]:
        count(record, store)
        yield


def returning(process: Callable[[Any, StateStore], Any]) -> Callable[[Any, StateStore], Any]:
    """Return a plain function around another, which nothing shows before it is called."""

    def plain(record: Any, store: StateStore) -> Any:
        return process(record, store)

    return plain


class Later:
    def __await__(self) -> Generator[None, None, None]:
        yield


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        (coroutine, "a coroutine function"),
        (generator, "a generator function"),
        (asynchronous_generator, "an asynchronous generator function"),
        (Deferred(), "a coroutine function"),
        (Deferred().yields, "a generator function"),
        (partial(coroutine), "a coroutine function"),
        (partial(partial(Deferred())), "a coroutine function"),
    ],
)
def test_functions_whose_body_would_not_run_are_refused_at_construction(
    tmp_path: Path, process: Any, kind: str
) -> None:
    with pytest.raises(ConfigError, match=rf"process is {kind}.*: use a plain function"):
        StatefulConsumer("t", process=process, state_dir=tmp_path, group_id="g")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        (coroutine, "a coroutine"),
        (generator, "a generator"),
        (asynchronous_generator, "an asynchronous generator"),
        (lambda *_: Later(), r"an awaitable \(Later\)"),
    ],
)
def test_what_they_return_is_refused_before_anything_is_committed(
    tmp_path: Path, process: Callable[[Any, StateStore], Any], kind: str
) -> None:
    task = Task(tmp_path / "1", returning(process))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match=rf"process returned {kind}: .*use a plain function"):
            task.play([Record(0)])
        gc.collect()
    assert (task.run.changed, task.run.next_offset("t"), list(task.state.items())) == (False, 0, [])


def test_a_function_that_runs_a_coroutine_or_returns_a_value_is_no_such_thing(tmp_path: Path) -> None:
    def runs(record: Record, store: StateStore) -> object:
        work: Callable[[Record, StateStore], Awaitable[None]] = coroutine
        asyncio.run(work(record, store))  # type: ignore[arg-type]
        return [record.offset]

    task = Task(tmp_path / "1", runs)
    task.play([Record(0), Record(1)])
    assert task.state.get(b"n") == b"2"


HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS

seen = Store("seen", STR, INT, ttl_s=3600)


def see(record: Record, state: State) -> None:
    state[seen].put((record.key or b"").decode(), record.offset)


@pytest.mark.parametrize("wrong_ms", [BEGIN_MS * 1000, BEGIN_MS * 10**6, (1 << 63) - 1, LATEST_MS + 1])
def test_a_timestamp_in_another_unit_does_not_end_expiry_and_functions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong_ms: int
) -> None:
    called: list[int] = []
    hourly = Punctuate(lambda time_ms, _: called.append(time_ms), 3600, name="hourly")
    task = Task(tmp_path / "1", see, [seen], [hourly])
    times = [BEGIN_MS, wrong_ms, wrong_ms, *(BEGIN_MS + hour * HOUR_MS for hour in (1, 2))]
    keys = (b"first", b"wrong", b"wrong", b"1", b"2")
    records = [Record(n, key, b"", at_ms) for n, (key, at_ms) in enumerate(zip(keys, times, strict=True))]
    task.play(records[:3])
    # They are processed at the time of the records before them.
    assert dict(task.state[seen].items()) == {"first": 0, "wrong": 2}
    task.play(records)
    assert dict(task.state[seen].items()) == {"2": 4}
    assert called == [BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS]
    assert caplog.text.count(f"t-0: record 1 has the timestamp {wrong_ms}, which is after the year 2200") == 1
    assert "record 2 has" not in caplog.text
    assert dict(task.successor(tmp_path / "2", see, [seen]).state[seen].items()) == {"2": 4}


def test_the_latest_time_can_be_stored_with_the_longest_time_to_live(tmp_path: Path) -> None:
    longest = Store("longest", STR, INT, ttl_s=100 * 366 * 86_400)
    task = Task(tmp_path / "1", lambda _, state: state[longest].put("k", 1), [longest])
    task.play([Record(0, timestamp=LATEST_MS)])
    assert task.state[longest].get("k") == 1


def test_values_that_were_not_in_the_file_when_later_ones_expired_are_deleted(tmp_path: Path) -> None:
    short, long = Store("short", STR, INT, ttl_s=10), Store("long", STR, INT, ttl_s=3600)

    def process(record: Record, state: State) -> None:
        if record.value:
            state[short if record.value == b"short" else long].put(record.value.decode(), 1)

    task = Task(tmp_path / "1", process, [short, long])
    minute_ms = 60_000
    # The short one is set just before the long one expires, and is not in the file when that is deleted.
    for number, (value, at_ms, commits) in enumerate(
        [
            (b"long", 0, True),
            (b"short", HOUR_MS - minute_ms, False),
            (b"", HOUR_MS + minute_ms, False),
            (b"", HOUR_MS + minute_ms, True),
            *[(b"", 2 * HOUR_MS, True)] * 3,
        ]
    ):
        task.play([Record(number, None, value, BEGIN_MS + at_ms)], commits=commits)
    assert task.file.expired_keys(1 << 62, 9) == []
