"""Clusters that another process keeps running, by name.

Racks of a cluster that are killed and started by another process.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing import Broker, LocalCluster
from rackassign.testing import registry as module
from rackassign.testing.registry import (
    KILL,
    START,
    ControlAddress,
    ControlServer,
    RackChange,
    find_registered,
    register,
    send_request,
)
from tests.helpers.processes import up

OWNER = """
import signal, sys, time
from rackassign.testing.registry import ControlAddress, register
def end(*_): sys.exit(0)
signal.signal(signal.SIGTERM, end)
with register("mine") as registration:
    registration.announce(ControlAddress(7, "secret"))
    print("up", flush=True)
    # pause() would not return for a signal that arrives just before it.
    while True:
        time.sleep(0.05)
"""


def files(cache: Path) -> list[str]:
    return [path.name for path in cache.glob("up/*")]


def test_a_registered_cluster_is_found_and_ended(cache: Path) -> None:
    with up(OWNER) as process, find_registered("mine") as found:
        assert found is not None
        assert found.address == ControlAddress(7, "secret")
        found.end()
        assert process.wait(300) == 0
    assert files(cache) == []


def test_what_is_not_there_leaves_no_file(cache: Path) -> None:
    with find_registered("mine") as found:
        assert found is None
    assert not (cache / "up").exists()


def test_a_full_disk_is_reported_and_leaves_no_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    registering = register("mine")
    with monkeypatch.context() as patched:
        patched.setattr("rackassign.testing.registry.os.write", no_space)
        with pytest.raises(ConfigError, match="cannot be used: No space left on device"):
            registering.__enter__()
    assert files(cache) == []


def test_a_name_that_begins_with_a_digit_is_refused_with_the_rule() -> None:
    with pytest.raises(ConfigError, match="begin with no digit, got '2'"), find_registered("2"):
        pass


@pytest.mark.parametrize("name", ["../mine", "", "a b"])
def test_a_wrong_name_is_refused_and_leaves_no_file(name: str, cache: Path) -> None:
    with pytest.raises(ConfigError, match="name must be"), find_registered(name):
        pass
    with pytest.raises(ConfigError, match="name must be"), register(name):
        pass
    assert not cache.exists()


def test_what_a_killed_owner_leaves_counts_as_nothing(cache: Path) -> None:
    with up(OWNER) as process:
        process.send_signal(signal.SIGKILL)
    assert files(cache) == ["mine.json"]
    with register("mine"), find_registered("mine") as found:
        assert found is not None
    assert files(cache) == []
    with up(OWNER) as process:
        process.send_signal(signal.SIGKILL)
    with find_registered("mine") as found:
        assert found is None
    assert files(cache) == []


def test_a_name_is_registered_once_and_only_the_user_reads_its_token(cache: Path) -> None:
    with register("mine") as registration:
        with pytest.raises(ConfigError, match="a cluster 'mine' is up already"), register("mine"):
            pass
        with find_registered("mine") as found:
            assert found is not None
            assert found.address is None
        registration.announce(ControlAddress(7, "secret"))
        file = cache / "up" / "mine.json"
        assert json.loads(file.read_text("ascii")) == {"pid": os.getpid(), "port": 7, "token": "secret"}
        assert file.stat().st_mode & 0o777 == 0o600


def test_an_owner_that_has_written_nothing_yet_is_only_starting(cache: Path) -> None:
    with register("mine"):
        (cache / "up" / "mine.json").write_text("")
        with find_registered("mine") as found:
            assert found is not None
            assert found.address is None
            with pytest.raises(ConfigError, match="only just starting"):
                found.end()


class FakeCluster(LocalCluster):
    """Brokers that are only numbers."""

    def __init__(self) -> None:
        super().__init__(["a", "b", "b"])
        self._brokers = tuple(Broker(n, rack, "127.0.0.1", n) for n, rack in ((1, "a"), (2, "b"), (3, "b")))
        self.up = {1, 2, 3}
        self.broken = False

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self.up)

    def kill_rack(self, rack: str) -> None:
        self.up -= {broker.id for broker in self.rack_brokers(rack)}

    def start_rack(self, rack: str) -> None:
        self.up |= {broker.id for broker in self.rack_brokers(rack)}

    def wait_ready(self, timeout_s: float = 0.0) -> None:
        del timeout_s
        if self.broken:
            raise ClusterError("broker 2 has ended")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[ControlServer]:
    with closing(ControlServer(cluster)) as made:
        yield made


def requested(server: ControlServer, command: str, rack: str) -> RackChange:
    thread = threading.Thread(target=server.serve_one)
    thread.start()
    try:
        return send_request(server.address, command, rack)
    finally:
        thread.join()


def test_a_rack_is_killed_and_started_once(server: ControlServer) -> None:
    assert requested(server, KILL, "b") == RackChange("b", (2, 3), (1,))
    assert requested(server, KILL, "b") == RackChange("b", (), (1,))
    assert requested(server, START, "b") == RackChange("b", (2, 3), (1, 2, 3))
    assert requested(server, START, "b") == RackChange("b", (), (1, 2, 3))


def test_only_brokers_that_are_down_are_started(server: ControlServer, cluster: FakeCluster) -> None:
    cluster.up = {1, 2}
    assert requested(server, START, "b") == RackChange("b", (3,), (1, 2, 3))


def test_a_wrong_rack_is_refused_with_those_that_exist(server: ControlServer) -> None:
    with pytest.raises(ConfigError, match="no rack 'z': the cluster has 'a', 'b'"):
        requested(server, KILL, "z")


def test_a_broker_that_does_not_start_is_reported(server: ControlServer, cluster: FakeCluster) -> None:
    cluster.up, cluster.broken = {1}, True
    with pytest.raises(ClusterError, match="broker 2 has ended"):
        requested(server, START, "b")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"{}\n",
        json.dumps({"token": "other", "command": KILL, "rack": "b"}).encode() + b"\n",
    ],
)
def test_what_is_no_request_of_the_user_changes_nothing(
    server: ControlServer, cluster: FakeCluster, sent: bytes
) -> None:
    thread = threading.Thread(target=server.serve_one)
    thread.start()
    with socket.create_connection(("127.0.0.1", server.address.port)) as stranger:
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        # A connection that is closed with unread bytes in it is reset.
        try:
            answer = stranger.recv(1000)
        except ConnectionResetError:
            answer = b""
    thread.join()
    assert (answer, cluster.up) == (b"", {1, 2, 3})
    assert requested(server, KILL, "a").changed == (1,)


def test_a_stranger_that_sends_nothing_delays_the_next_request_only(server: ControlServer) -> None:
    # For the stranger only: the next request needs its time.
    with pytest.MonkeyPatch.context() as brief:
        brief.setattr(module, "_READ_TIMEOUT_S", 0.05)
        with socket.create_connection(("127.0.0.1", server.address.port)):
            server.serve_one()
    assert requested(server, KILL, "a").changed == (1,)


def test_an_owner_that_has_just_ended_is_reported(server: ControlServer) -> None:
    port = server.address.port
    server.close()
    with pytest.raises(ClusterError, match="the process of the cluster does not respond"):
        send_request(ControlAddress(port, "token"), KILL, "a")


def test_an_owner_that_ends_during_the_request_is_reported_without_a_word_of_json() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ending:

        def end() -> None:
            connection, _ = ending.accept()
            with connection, connection.makefile("rb") as stream:
                stream.readline()

        thread = threading.Thread(target=end)
        thread.start()
        try:
            with pytest.raises(ClusterError, match=r"does not respond: .*the connection has ended") as caught:
                send_request(ControlAddress(ending.getsockname()[1], "token"), KILL, "a")
        finally:
            thread.join()
    assert "JSON" not in str(caught.value)
