"""Which processes have a port."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from rackassign.testing.port_users import port_users
from rackassign.testing.ports import reserve_ports

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_a_process_that_listens_and_one_that_is_connected_are_named() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert port_users(port).startswith(f"process {os.getpid()} (")
        assert port_users(port).endswith(") listens on it")
        client.connect(("127.0.0.1", port))
        assert port_users(client.getsockname()[1]).endswith(") has a connection from it")


def test_a_port_without_a_socket_has_no_user() -> None:
    reserved = reserve_ports(1)
    assert port_users(reserved.numbers[0]) == "no socket has it any more"
    reserved.close()


def test_what_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    assert port_users(9092, tmp_path) == "no socket has it any more"
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 1"
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address\n   {row}\n", "ascii")
    assert port_users(9092, tmp_path) == "a process of another user has it"
    (tmp_path / "12" / "fd").mkdir(parents=True)
    (tmp_path / "12" / "fd" / "3").symlink_to("socket:[4711]")
    assert port_users(9092, tmp_path) == "process 12 (unknown command) listens on it"
