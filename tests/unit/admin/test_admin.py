"""Admin clients that cannot connect: nothing of them is left, however often that is tried.

Requests to coordinators that move: how long they are sent again.

Topics that a request may have created although its response was lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import (
    CoordinatorLoadInProgressError,
    InvalidPartitionsError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownError,
)
from kafka.protocol.metadata import CoordinatorType

from rackassign.admin import alter
from rackassign.admin.admin_client import connected
from rackassign.admin.alter import RequestRejectedError, TopicAdmin
from rackassign.admin.describe import DescribedTopic
from rackassign.admin.raw_requests import GroupCoordinators
from rackassign.cli.connection import admin_client
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Partition
from rackassign.monitoring.byte_rates import ByteRates
from rackassign.testing import _topics as topics
from rackassign.testing.harness import GroupHarness, KafkaPythonMember, wait_until

# It is never connected to: with a time limit of 0 the constructor gives up at once.
NOWHERE = "127.0.0.1:1"


def io_threads(client_id: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == f"kafka-io-{client_id}"]


def test_a_client_that_cannot_connect_leaves_no_thread() -> None:
    config = {"bootstrap_servers": NOWHERE, "bootstrap_timeout_ms": 0, "client_id": "nobody-responds"}
    with pytest.raises(KafkaTimeoutError):
        connected(KafkaAdminClient, config)
    assert io_threads("nobody-responds") == []


def test_neither_does_a_command_that_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.cli.connection._FIRST_CONTACT_MS", 0)
    for _ in range(3):
        with pytest.raises(KafkaUnavailableError), admin_client(NOWHERE):
            pass
    assert io_threads("rackassign") == []


def test_neither_does_a_weigher(caplog: pytest.LogCaptureFixture) -> None:
    weigher = ByteRates(bootstrap_servers=NOWHERE, bootstrap_timeout_ms=0, interval_s=0.01)
    weigher.weigh({"t": 1})
    wait_until(lambda: "byte rates cannot be measured" in caplog.text, "an attempt")
    weigher.close()
    assert io_threads("rackassign-byte-rates") == []


class Client:
    """What an admin client sends requests with; it notes those that are open."""

    def __init__(self, opened: list[Client], **config: Any) -> None:
        self.config, self.opened = config, opened
        opened.append(self)

    def close(self) -> None:
        self.opened.remove(self)
        raise RuntimeError("cannot be closed properly")


class Admin:
    DEFAULT_CONFIG = {"kafka_client": Client}  # noqa: RUF012 - as kafka-python's

    def __init__(
        self, *, opened: list[Client], fails: bool, kafka_client: Callable[..., Client] = Client, **_: Any
    ) -> None:
        self.client = kafka_client(opened=opened, name="x")
        if fails:
            raise ValueError("no broker responds")


def test_the_reason_is_kept_and_a_client_that_is_connected_stays_open() -> None:
    opened: list[Client] = []
    with pytest.raises(ValueError, match="no broker responds"):
        connected(Admin, {"opened": opened, "fails": True})
    assert opened == []
    assert connected(Admin, {"opened": opened, "fails": False}).client.config == {"name": "x"}
    assert len(opened) == 1


def test_nothing_is_left_of_the_clients_of_test_clusters_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Client] = []
    for module in ("kafka", "rackassign.testing.harness"):
        monkeypatch.setattr(f"{module}.KafkaAdminClient", Admin)
    config = {"opened": opened, "fails": True}
    with pytest.raises(ValueError, match="no broker responds"), topics.admin_client(config, 1.0):
        pass
    with pytest.raises(ValueError, match="no broker responds"), GroupHarness[KafkaPythonMember](config, "g", {"t": 1}):
        pass
    assert opened == []


def test_a_client_of_the_users_is_used() -> None:
    class Own(Client):
        pass

    assert isinstance(connected(Admin, {"opened": [], "fails": False, "kafka_client": Own}).client, Own)


MOVED, LOADING, WRONG = (e.errno for e in (NotCoordinatorError, CoordinatorLoadInProgressError, UnknownError))


class Answering:
    """Stands in for kafka-python's admin client: one answer for each request, an error code or an exception."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answers: Iterator[int | Exception] = iter(())
        self.sent = 0
        self.lookups = 0
        self.known: dict[Any, int] = {}
        cluster = SimpleNamespace(_coordinators=self.known, broker_metadata=lambda _: True)
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
def admin() -> Answering:
    return Answering()


@pytest.fixture
def coordinators(admin: Answering) -> GroupCoordinators:
    return GroupCoordinators(admin, clock=lambda: admin.now, sleep=admin.sleep)


def forever(answer: int | Exception) -> Iterator[int | Exception]:
    while True:
        yield answer


def test_a_coordinator_that_moved_is_looked_up_again(admin: Answering, coordinators: GroupCoordinators) -> None:
    admin.answers = iter([MOVED, NodeNotReadyError(), LOADING, 0])
    assert coordinators.ask("g", "request").error_code == 0
    assert (admin.sent, admin.lookups) == (4, 4)
    admin.answers = iter([0])
    coordinators.ask("g", "request")
    # It is the one that has answered, without a further request.
    assert (coordinators.coordinator("g"), admin.lookups) == (4, 4)


@pytest.mark.parametrize("timeout", [RequestTimedOutError, KafkaTimeoutError])
def test_a_coordinator_that_hangs_is_looked_up_again(
    admin: Answering, coordinators: GroupCoordinators, timeout: type[Exception]
) -> None:
    def answers() -> Iterator[int | Exception]:
        # As long as the request is not answered; by then another broker coordinates the group.
        admin.now += 30
        yield timeout()
        yield 0

    admin.answers = answers()
    assert coordinators.ask("g", "request").error_code == 0
    assert (admin.sent, admin.lookups) == (2, 2)


def test_other_errors_are_returned_at_once(admin: Answering, coordinators: GroupCoordinators) -> None:
    admin.answers = iter([WRONG])
    assert coordinators.ask("g", "request").error_code == WRONG
    assert admin.now == 0


def test_the_limit_is_ten_seconds_for_all_groups_together(admin: Answering, coordinators: GroupCoordinators) -> None:
    admin.answers = forever(MOVED)
    assert coordinators.ask("g", "request").error_code == MOVED
    assert 10 <= admin.now < 11
    admin.answers = forever(NodeNotReadyError())
    for number in range(100):
        with pytest.raises(NodeNotReadyError):
            coordinators.ask(f"other-{number}", "request")
    # Two attempts for each: the first may have gone to a broker that is no longer the coordinator.
    assert admin.now < 11 + 100 * 0.1 + 0.1


def test_a_failure_of_long_ago_does_not_count(admin: Answering, coordinators: GroupCoordinators) -> None:
    admin.answers = iter([MOVED, 0])
    coordinators.ask("g", "request")
    admin.now += 60
    admin.answers = iter([*[MOVED] * 50, 0])
    assert coordinators.ask("g", "request").error_code == 0


def test_another_kafka_python_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka-python [\d.]+ differs"):
        GroupCoordinators(object())


class Controller:
    """An admin client whose first response is lost, and whose second one is that the request was executed already."""

    _controller_id: int | None = 1

    def __init__(self) -> None:
        self.requests = 0

    def create_topics(self, *_: object, **__: object) -> Any:
        return {"topics": [{"error_code": self._executed(TopicAlreadyExistsError.errno), "error_message": None}]}

    def create_partitions(self, *_: object, **__: object) -> Any:
        code = self._executed(InvalidPartitionsError.errno)
        return SimpleNamespace(results=[SimpleNamespace(error_code=code, error_message=None)])

    def _executed(self, code: int) -> int:
        self.requests += 1
        if self.requests == 1:
            raise KafkaConnectionError
        return code


Ask = Callable[[TopicAdmin], None]

LISTS: list[tuple[int, ...]] = [(1, 2), (2, 3)]
BOTH = [
    pytest.param(lambda admin: admin.create("t", {}, LISTS), id="create"),
    pytest.param(lambda admin: admin.add("t", 2, LISTS[1:]), id="add"),
]


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """What brokers report, one after the other; the last one for ever. Time passes only in pauses."""
    found: list[list[tuple[int, ...]]] = []
    now = 0.0

    def described(_: object, names: Iterable[str]) -> dict[str, DescribedTopic]:
        rows = found.pop(0) if len(found) > 1 else found[0]
        return {name: DescribedTopic(tuple(Partition(row, row[0]) for row in rows)) for name in names}

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(alter, "described", described)
    monkeypatch.setattr(alter, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    return found


@pytest.mark.parametrize("ask", BOTH)
def test_a_request_whose_response_was_lost_is_no_error_although_a_broker_lags(
    views: list[list[tuple[int, ...]]], ask: Ask
) -> None:
    views[:] = [[], LISTS[:1], LISTS]
    ask(TopicAdmin(Controller()))
    assert len(views) == 1


@pytest.mark.parametrize("ask", BOTH)
def test_a_topic_that_is_another_one_is_an_error(views: list[list[tuple[int, ...]]], ask: Ask) -> None:
    views[:] = [[(1, 2), (3, 2)]]
    with pytest.raises(RequestRejectedError):
        ask(TopicAdmin(Controller()))


@pytest.mark.usefixtures("views")
def test_an_election_of_the_controller_is_waited_for_and_one_without_end_is_one_line() -> None:
    admin, left = TopicAdmin(Controller()), 5

    def ask() -> int:
        nonlocal left
        left -= 1
        if left:
            # As kafka-python raises it.
            raise RuntimeError("Failed to find active controller id!")
        return 1

    assert admin.send(ask) == 1
    with pytest.raises(KafkaUnavailableError, match="no broker is the controller: Failed to find"):
        admin.send(ask)


def test_another_error_of_the_client_is_no_election() -> None:
    def ask() -> int:
        raise RuntimeError("another")

    with pytest.raises(RuntimeError, match="another"):
        TopicAdmin(Controller()).send(ask)
