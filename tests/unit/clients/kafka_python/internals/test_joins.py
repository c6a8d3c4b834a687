"""What a plan needs is loaded once a member is elected leader, beside the IO thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.future import Future

from rackassign.clients.kafka_python.internals.joins import load_before_leading
from rackassign.text import WarnOnce

HANG_S = 60.0


class JoinGroupRequest:
    """Known by its name, as kafka-python's is."""


class Manager:
    """As much of kafka-python's connection manager as is used; what is called soon runs when a test wants it."""

    def __init__(self) -> None:
        self.sent: list[Future] = []
        self.soon: list[Callable[[], None]] = []
        self.called = threading.Event()

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: Any = None) -> Future:
        del request, node_id, request_timeout_ms
        self.sent.append(Future())
        return self.sent[-1]

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)
        self.called.set()


class Loading:
    """A `load` that returns, or raises, when a test lets it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.threads: list[threading.Thread] = []
        self.go = threading.Event()
        self._error = error

    def __call__(self) -> None:
        self.threads.append(threading.current_thread())
        assert self.go.wait(HANG_S)
        if self._error is not None:
            raise self._error


def consumer_of(manager: Any) -> Any:
    return SimpleNamespace(_coordinator=SimpleNamespace(_manager=manager))


def install(manager: Any, load: Callable[[], None], *protocols: str) -> None:
    load_before_leading(consumer_of(manager), protocols, load, WarnOnce(logging.getLogger("test")))


def response(*, leader: bool, protocol: str = "range") -> Any:
    return SimpleNamespace(leader="m" if leader else "n", member_id="m", protocol_name=protocol)


def joined(manager: Manager, answer: Any) -> Future:
    """Send a join and respond to it."""
    result = manager.send(JoinGroupRequest(), "coordinator-1", request_timeout_ms=1)
    assert not result.is_done
    manager.sent[-1].success(answer)
    return result


@pytest.mark.parametrize("error", [None, ImportError("broken")])
def test_the_response_of_an_election_is_passed_on_behind_the_load_and_only_once(error: Exception | None) -> None:
    manager, load = Manager(), Loading(error)
    install(manager, load, "range")
    elected = response(leader=True)
    result = joined(manager, elected)
    assert not result.is_done
    # Meanwhile the IO thread goes on.
    assert not manager.send("heartbeat").is_done
    assert manager.sent[-1].success("ok").value == "ok"
    load.go.set()
    assert manager.called.wait(HANG_S)
    assert not result.is_done
    manager.soon.pop()()
    assert result.value is elected
    assert load.threads != [threading.current_thread()]
    assert joined(manager, elected).value is elected
    assert len(load.threads) == 1


@pytest.mark.parametrize(
    "answer",
    [response(leader=False), response(leader=True, protocol="roundrobin"), SimpleNamespace(error_code=25)],
    ids=["follower", "another assignor", "unknown format"],
)
def test_nothing_is_loaded_for_others(answer: Any) -> None:
    manager, load = Manager(), Loading()
    install(manager, load, "range")
    assert joined(manager, answer).value is answer
    assert not load.threads


def test_a_join_that_fails_fails() -> None:
    manager = Manager()
    install(manager, Loading(), "range")
    result = manager.send(JoinGroupRequest())
    manager.sent[-1].failure(OSError("gone"))
    assert isinstance(result.exception, OSError)


def test_a_closed_consumer_is_not_waited_for() -> None:
    class Closed(Manager):
        def call_soon(self, call: Callable[[], None]) -> None:
            del call
            raise RuntimeError("closed")

    manager, load = Closed(), Loading()
    install(manager, load, "range")
    result = joined(manager, response(leader=True))
    load.go.set()
    load.threads[0].join(HANG_S)
    assert not load.threads[0].is_alive()
    assert not result.is_done


def test_a_consumer_has_it_once_and_only_with_assignors_that_need_it() -> None:
    manager = Manager()
    plain = manager.send
    install(manager, Loading())
    assert manager.send == plain
    consumer = consumer_of(manager)
    for _ in range(2):
        load_before_leading(consumer, ["range"], Loading(), WarnOnce(logging.getLogger("test")))
        first = manager.send
    assert manager.send is first
    assert manager.send != plain


def test_another_kafka_python_goes_on_without_it(caplog: pytest.LogCaptureFixture) -> None:
    other = SimpleNamespace(send=lambda request: request, call_soon=print)
    for manager in (other, SimpleNamespace(), None):
        install(manager, Loading(), "range")
    assert other.send("x") == "x"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "is loaded on its IO thread" in caplog.text


def test_without_a_thread_the_join_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    manager, load = Manager(), Loading()
    install(manager, load, "range")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        elected = response(leader=True)
        assert joined(manager, elected).value is elected
