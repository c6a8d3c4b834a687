"""A `process` whose body does not run when it is called is refused, before anything is committed."""

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
from rackassign.stateful import StatefulConsumer, StateStore
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.stateful_consumers import LOG, count, counted, drain, give, member, polled


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
