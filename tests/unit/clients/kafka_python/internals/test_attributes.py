"""An assignor that finds the consumer that is being constructed.

Producers that can never write again are distinguished from those that can, as far as kafka-python reports it.

What a plan needs is loaded once a member is elected leader, beside the IO thread.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.future import Future
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign import (
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.clients.kafka_python.internals.adapter import Membership
from rackassign.clients.kafka_python.internals.attributes import (
    ConsumerOptions,
    consumer_under_construction,
    has_failed,
    options_of,
)
from rackassign.clients.kafka_python.internals.joins import load_before_leading
from rackassign.errors import ConfigError
from rackassign.text import WarnOnce
from tests.helpers.fakes.kafka_python import FakeCluster

NOT_SET = "the assignor's rack is 'a' but client_rack is not set, so everything is read from the leaders"


class Constructed(KafkaConsumer):  # type: ignore[misc] # kafka-python is untyped
    """Calls its assignors in its constructor, as a consumer does, and connects to nothing."""

    def __init__(self, assignors: Any, **config: Any) -> None:
        self.config = {"partition_assignment_strategy": assignors, **config}
        self.made = [each() if isinstance(each, type) else each for each in assignors]
        for each in self.made:
            self.ask(each)
        self._closed = False

    def ask(self, assignor: Any) -> None:
        assignor.supported_protocols()


class Wrapped(Constructed):
    """A user's own consumer."""

    def __init__(self, assignors: Any, **config: Any) -> None:
        super().__init__(assignors, **config)


@pytest.mark.parametrize("kind", [Constructed, Wrapped])
def test_a_consumer_without_a_rack_is_warned_about_once(
    kind: type[Constructed], warnings: pytest.LogCaptureFixture
) -> None:
    assignors = [RackAwareCooperativeStickyAssignor(rack="a"), RackAwareStickyAssignor(rack="a")]
    consumer = kind(assignors, client_rack="")
    assert [NOT_SET in record.getMessage() for record in warnings.records] == [True]
    consumer.ask(assignors[0])
    assert len(warnings.records) == 1


def test_two_consumers_that_share_an_assignor_are_warned_about(warnings: pytest.LogCaptureFixture) -> None:
    # Each would claim the partitions that the assignor was given last, which may be those of the other one.
    shared = RackAwareCooperativeStickyAssignor(rack="a")
    first = Constructed([shared], client_rack="a")
    first.ask(shared)
    assert not warnings.records
    second = Constructed([shared], client_rack="a")
    (record,) = warnings.records
    assert record.getMessage() == "cooperative-sticky: two consumers use one assignor; create one for each"
    assert second is not first


def test_an_assignor_may_be_used_again_when_its_consumer_is_closed_or_gone(warnings: pytest.LogCaptureFixture) -> None:
    again = RackAwareCooperativeStickyAssignor(rack="a")
    closed = Constructed([again], client_rack="a")
    closed._closed = True
    gone: Constructed | None = Constructed([again], client_rack="a")
    del gone
    gc.collect()
    Constructed([again], client_rack="a")
    assert not warnings.records


def test_an_assignor_that_is_used_again_claims_what_its_new_consumer_owns() -> None:
    # As in a loop that creates a consumer after each error, of one dict of options.
    again = RackAwareCooperativeStickyAssignor(rack="a")
    closed = Constructed([again], client_rack="a")
    former = FakeCluster({}, {})
    again.bind(Membership(former.coordinator))
    again.on_assignment(ConsumerProtocolAssignment(0, [("t", [0, 2])], b""), 7)
    assert again.metadata(["t"]).owned_partitions == [("t", [0, 2])]
    closed._closed = True
    current = Constructed([again], client_rack="a")
    first = again.metadata(["t"])
    assert (list(first.owned_partitions), first.generation_id) == ([], -1)
    cluster = FakeCluster({}, {})
    cluster.coordinator._subscription.assigned_partitions = lambda: {("t", 1)}
    again.bind(Membership(cluster.coordinator))
    assert again.metadata(["t"]).owned_partitions == [("t", [1])]
    assert current is not closed


def test_a_consumer_with_other_attributes_is_none() -> None:
    found: list[ConsumerOptions | None] = []

    class Odd(Constructed):
        def __init__(self) -> None:
            found.append(options_of(consumer_under_construction()))
            self.config: Any = "what it may be one day"
            found.append(options_of(consumer_under_construction()))
            self.config = {}
            found.append(options_of(consumer_under_construction()))

    Odd()
    assert found == [None, None, ConsumerOptions("", ())]


def test_a_consumer_that_cannot_be_constructed_leaves_no_client_open() -> None:
    made: list[Any] = []
    closed: list[Any] = []

    class Client:
        def __init__(self, **_: Any) -> None:
            made.append(self)

        def __getattr__(self, name: str) -> Any:
            raise ValueError(f"{name} is missing")

        def close(self) -> None:
            closed.append(self)

    with pytest.raises(ValueError, match="is missing"):
        RackAwareConsumer("t", group_id="g", kafka_client=Client)
    assert closed == made
    assert len(closed) == 1


@pytest.mark.parametrize("assignors", [None, RackAwareRangeAssignor, "range", ["sticky"], [RackAwareRangeAssignor, 5]])
def test_assignors_that_are_no_list_are_named(assignors: Any) -> None:
    with pytest.raises(ConfigError, match=r"partition_assignment_strategy: expected (a list of )?assignors, "):
        RackAwareConsumer("t", group_id="g", partition_assignment_strategy=assignors)


def producer(**manager: object) -> Any:
    return SimpleNamespace(_transaction_manager=SimpleNamespace(**manager))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (producer(has_fatal_error=lambda: True), True),
        (producer(has_fatal_error=lambda: False), False),
        # Not idempotent; of another version; neither.
        (SimpleNamespace(_transaction_manager=None), False),
        (producer(has_fatal_error=True), False),
        (object(), False),
    ],
)
def test_only_a_producer_that_says_so_has_failed(asked: Any, *, expected: bool) -> None:
    assert has_failed(asked) is expected


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
