"""Requests to coordinators that move: how long they are sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorError,
    RequestTimedOutError,
    UnknownError,
)
from kafka.protocol.metadata import CoordinatorType

from rackassign.admin.raw_requests import GroupCoordinators
from rackassign.errors import ConfigError

MOVED, LOADING, WRONG = (e.errno for e in (NotCoordinatorError, CoordinatorLoadInProgressError, UnknownError))


class Admin:
    """Stands in for kafka-python's admin client: one answer for each request, an error code or an exception."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answers: Iterator[int | Exception] = iter(())
        self.sent = 0
        self.lookups = 0
        self.known: dict[Any, int] = {}
        cluster = SimpleNamespace(_coordinators=self.known)
        self._manager = SimpleNamespace(run=self.run, send=self.send, cluster=cluster)

    def run(self, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return asyncio.run(call(*arguments))  # type: ignore[arg-type] # it is a coroutine

    async def _find_coordinator_id(self, group: str) -> int:
        key = (CoordinatorType.GROUP, group)
        if key not in self.known:
            self.lookups += 1
            self.known[key] = self.lookups
        return self.known[key]

    async def send(self, _request: Any, node_id: int) -> Any:
        assert node_id == self.lookups
        self.sent += 1
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(error_code=answer)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def coordinators(admin: Admin) -> GroupCoordinators:
    return GroupCoordinators(admin, clock=lambda: admin.now, sleep=admin.sleep)


def forever(answer: int | Exception) -> Iterator[int | Exception]:
    while True:
        yield answer


def test_a_coordinator_that_moved_is_looked_up_again(admin: Admin, coordinators: GroupCoordinators) -> None:
    admin.answers = iter([MOVED, NodeNotReadyError(), LOADING, 0])
    assert coordinators.ask("g", "request").error_code == 0
    assert (admin.sent, admin.lookups) == (4, 4)
    admin.answers = iter([0])
    coordinators.ask("g", "request")
    assert admin.lookups == 4


@pytest.mark.parametrize("timeout", [RequestTimedOutError, KafkaTimeoutError])
def test_a_coordinator_that_hangs_is_looked_up_again(
    admin: Admin, coordinators: GroupCoordinators, timeout: type[Exception]
) -> None:
    def answers() -> Iterator[int | Exception]:
        # As long as the request is not answered; by then another broker coordinates the group.
        admin.now += 30
        yield timeout()
        yield 0

    admin.answers = answers()
    assert coordinators.ask("g", "request").error_code == 0
    assert (admin.sent, admin.lookups) == (2, 2)


def test_other_errors_are_returned_at_once(admin: Admin, coordinators: GroupCoordinators) -> None:
    admin.answers = iter([WRONG])
    assert coordinators.ask("g", "request").error_code == WRONG
    assert admin.now == 0


def test_the_limit_is_ten_seconds_for_all_groups_together(admin: Admin, coordinators: GroupCoordinators) -> None:
    admin.answers = forever(MOVED)
    assert coordinators.ask("g", "request").error_code == MOVED
    assert 10 <= admin.now < 11
    admin.answers = forever(NodeNotReadyError())
    for number in range(100):
        with pytest.raises(NodeNotReadyError):
            coordinators.ask(f"other-{number}", "request")
    # Two attempts for each: the first may have gone to a broker that is no longer the coordinator.
    assert admin.now < 11 + 100 * 0.1 + 0.1


def test_a_failure_of_long_ago_does_not_count(admin: Admin, coordinators: GroupCoordinators) -> None:
    admin.answers = iter([MOVED, 0])
    coordinators.ask("g", "request")
    admin.now += 60
    admin.answers = iter([*[MOVED] * 50, 0])
    assert coordinators.ask("g", "request").error_code == 0


def test_another_kafka_python_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka-python [\d.]+ differs"):
        GroupCoordinators(object())
