"""Admin clients that cannot connect: nothing of them is left, however often that is tried."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaTimeoutError

from rackassign.admin.admin_client import connected
from rackassign.cli.connection import admin_client
from rackassign.errors import KafkaUnavailableError
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
