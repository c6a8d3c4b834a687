"""Exceptions of callbacks are raised by calls that have nothing else to return."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from rackassign.clients.confluent._delivery import Delivery
from rackassign.clients.confluent._fetcher import UserCallbacks
from rackassign.errors import ConfigError
from tests.helpers.fakes.confluent import ONE, ConsumerHarness, message


class Failing:
    """librdkafka: each call returns what it is told to, after its callback has failed."""

    def __init__(self) -> None:
        self.callbacks = UserCallbacks()
        self.group = ConsumerHarness()
        self.group.give(ONE)
        self.delivery = Delivery(self.group.reader, self.group.stalls, self.callbacks, self.group.member.lost)
        self.call = self.callbacks.guard_all({"error_cb": self.fail, "client.id": "me"})["error_cb"]

    def fail(self, error: str) -> None:
        raise LookupError(error)

    def take(self, *offsets: int) -> None:
        """Have the next call return these records."""
        self.group.source.coming = [[lambda: self.call("down"), *(message(ONE, offset) for offset in offsets)]]


def test_records_that_came_with_a_failed_callback_are_returned_first() -> None:
    play = Failing()
    play.take(3)
    taken = play.delivery.poll(0.5)
    assert taken is not None
    assert taken.offset() == 3
    assert play.callbacks.failed
    with pytest.raises(LookupError, match="down"):
        play.delivery.poll(0.5)
    assert play.delivery.poll(0) is None


def test_so_are_those_of_a_batch() -> None:
    play = Failing()
    play.take(3, 4)
    held = play.delivery.consume([], 10, 0.5)
    # More of the same batch: what was taken must be returned, whatever has failed.
    assert [each.offset() for each in play.delivery.consume(held, 10, 0)] == [3, 4]
    with pytest.raises(LookupError, match="down"):
        play.delivery.consume([], 10, 0.5)
    assert play.delivery.consume([], 10, 0) == []


def test_of_clients_that_were_replaced_nothing_is_kept() -> None:
    callbacks, seen = UserCallbacks(), list[str]()
    kept = callbacks.guard(seen.append)
    for _ in range(100):
        callbacks.guard(seen.append)("of a client that is gone")
    kept("noted")
    callbacks.run()
    assert seen == ["noted"]
    assert len(callbacks._noted) <= 2


def test_a_failure_without_records_is_raised_at_once() -> None:
    play = Failing()
    play.call("no broker")
    with pytest.raises(LookupError, match="no broker"):
        play.delivery.poll(0.5)


def test_of_two_failures_the_second_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    play = Failing()
    play.call("one")
    play.call("two")
    play.callbacks.run()
    assert "a callback failed again" in caplog.text
    assert "LookupError: two" in caplog.text
    play.callbacks.log_error()
    assert "a callback failed while its consumer was closed" in caplog.text
    assert "LookupError: one" in caplog.text
    assert not play.callbacks.failed


def test_nothing_of_python_runs_within_a_call_of_librdkafka() -> None:
    """Python would run the handler of a signal first, and what that raises would go through librdkafka."""
    play = Failing()
    assert inspect.isbuiltin(play.call)
    play.call("noted")
    assert not play.callbacks.failed
    play.callbacks.run()
    assert play.callbacks.failed


def test_a_logger_gets_its_messages_when_librdkafka_has_returned() -> None:
    class Logger:
        """A logger with a filter that fails."""

        def __init__(self) -> None:
            self.messages: list[tuple[Any, ...]] = []

        def log(self, *message: Any) -> None:
            self.messages.append(message)
            raise LookupError(*message[2:])

    callbacks, logger = UserCallbacks(), Logger()
    guarded = callbacks.guard_logger(logger)
    # No function of Python is entered before librdkafka has returned, as with `print` none is.
    assert guarded.log.func is print
    assert inspect.isbuiltin(guarded.log.keywords["file"].write)
    message = "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "line\nanother\n"
    guarded.log(logging.ERROR, *message)
    guarded.log(logging.INFO, "%s [%s] %s", "", "", "")
    assert logger.messages == []
    with pytest.raises(LookupError, match="another"):
        callbacks.raise_error()
    assert logger.messages == [(logging.ERROR, *message), (logging.INFO, "%s [%s] %s", "", "", "")]


def test_a_logger_has_to_be_one() -> None:
    with pytest.raises(ConfigError, match="logger: expected a logger, got"):
        UserCallbacks().guard_logger("rdkafka")
