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

from rackassign.errors import ConfigError, RackassignError
from rackassign.stateful import INT, STR, Punctuate, State, StatefulConsumer, StateStore, Store
from rackassign.stateful._processing import LATEST_MS
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.stateful_consumers import FIRST, LOG, count, counted, drain, give, member, polled


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
    kafka: Kafka, tmp_path: Path, process: object, kind: str
) -> None:
    with pytest.raises(ConfigError, match=rf"process is {kind}.*: use a plain function"):
        member(tmp_path, process=process)
    assert not kafka.open
    assert LOG not in kafka.topics


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
    kafka: Kafka, tmp_path: Path, process: Callable[[Any, StateStore], Any], kind: str
) -> None:
    kafka.feed(0, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with member(tmp_path, process=returning(process)) as one:
            give(one, 0)
            with pytest.raises(ConfigError, match=rf"process returned {kind}: .*use a plain function"):
                polled(one)
        gc.collect()
    assert kafka.committed == {}
    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
        assert counted(one) == 3


def test_a_function_that_runs_a_coroutine_or_returns_a_value_is_no_such_thing(kafka: Kafka, tmp_path: Path) -> None:
    def runs(record: Record, store: StateStore) -> object:
        work: Callable[[Record, StateStore], Awaitable[None]] = coroutine
        asyncio.run(work(record, store))  # type: ignore[arg-type]
        return [record.offset]

    kafka.feed(0, 2)
    with member(tmp_path, process=runs) as one:
        give(one, 0)
        drain(one)
        assert counted(one) == 2


@pytest.mark.parametrize("call", ["close", "commit", "poll"])
def test_calls_within_a_poll_are_refused(kafka: Kafka, tmp_path: Path, call: str) -> None:
    """Such a commit, if it failed, would discard the state below the records that follow."""
    members: list[StatefulConsumer] = []

    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        if record.offset == 3 and members:
            getattr(members.pop(), call)()

    with member(tmp_path, process=process, commit_interval_ms=60_000) as one:
        members.append(one)
        give(one, 0)
        kafka.feed(0, 10)
        (error,) = drain(one, RackassignError)
        assert str(error).startswith(f"{call}() was called while poll() is running: by process,")
        one.commit()
        assert counted(one) == 10


HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS

seen = Store("seen", STR, INT, ttl_s=3600)


def see(record: Record, state: State) -> None:
    state[seen].put((record.key or b"").decode(), record.offset)


@pytest.mark.parametrize("wrong_ms", [BEGIN_MS * 1000, BEGIN_MS * 10**6, (1 << 63) - 1, LATEST_MS + 1])
def test_a_timestamp_in_another_unit_does_not_end_expiry_and_functions(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong_ms: int
) -> None:
    called: list[int] = []
    hourly = Punctuate(lambda time_ms, _: called.append(time_ms), 3600, name="hourly")
    with member(tmp_path / "1", process=see, stores=[seen], punctuate=[hourly]) as one:
        give(one, 0)
        kafka.append("t", 0, b"first", b"", timestamp=BEGIN_MS)
        kafka.append("t", 0, b"wrong", b"", timestamp=wrong_ms)
        kafka.append("t", 0, b"wrong", b"", timestamp=wrong_ms)
        drain(one)
        # They are processed at the time of the records before them.
        assert dict(one.store(FIRST)[seen].items()) == {"first": 0, "wrong": 2}
        for hour in (1, 2):
            kafka.append("t", 0, b"%d" % hour, b"", timestamp=BEGIN_MS + hour * HOUR_MS)
        drain(one)
        assert dict(one.store(FIRST)[seen].items()) == {"2": 4}
        assert called == [BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS]
        with one.state(FIRST) as state:
            assert state.time_ms == BEGIN_MS + 2 * HOUR_MS
    assert caplog.text.count(f"t-0: record 1 has the timestamp {wrong_ms}, which is after the year 2200") == 1
    assert "record 2 has" not in caplog.text
    with member(tmp_path / "2", process=see, stores=[seen]) as other:
        give(other, 0)
        drain(other)
        assert dict(other.store(FIRST)[seen].items()) == {"2": 4}


def test_the_latest_time_can_be_stored_with_the_longest_time_to_live(kafka: Kafka, tmp_path: Path) -> None:
    longest = Store("longest", STR, INT, ttl_s=100 * 366 * 86_400)
    with member(tmp_path, process=lambda _, state: state[longest].put("k", 1), stores=[longest]) as one:
        give(one, 0)
        kafka.append("t", 0, b"", b"", timestamp=LATEST_MS)
        drain(one)
        with one.state(FIRST) as state:
            assert (state.time_ms, state[longest].get("k")) == (LATEST_MS, 1)


def test_values_that_were_not_in_the_file_when_later_ones_expired_are_deleted(kafka: Kafka, tmp_path: Path) -> None:
    short, long = Store("short", STR, INT, ttl_s=10), Store("long", STR, INT, ttl_s=3600)

    def process(record: Record, state: State) -> None:
        if record.value:
            state[short if record.value == b"short" else long].put(record.value.decode(), 1)

    with member(tmp_path, process=process, stores=[short, long], commit_interval_ms=60_000) as one:
        give(one, 0)
        kafka.append("t", 0, b"", b"long", timestamp=BEGIN_MS)
        drain(one)
        one.commit()
        # The short one is set just before the long one expires, and is not in the file when that is deleted.
        kafka.append("t", 0, b"", b"short", timestamp=BEGIN_MS + HOUR_MS - 60_000)
        kafka.append("t", 0, b"", b"", timestamp=BEGIN_MS + HOUR_MS + 60_000)
        drain(one)
        kafka.append("t", 0, b"", b"", timestamp=BEGIN_MS + HOUR_MS + 60_000)
        drain(one)
        one.commit()
        for _ in range(3):
            kafka.append("t", 0, b"", b"", timestamp=BEGIN_MS + 2 * HOUR_MS)
            drain(one)
            one.commit()
        assert one._shelf.open(FIRST).expired_keys(1 << 62, 9) == []
