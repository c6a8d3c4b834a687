"""Where the cache is.

Which processes have a port.

Ports that are reserved.
"""

from __future__ import annotations

import socket
from pathlib import Path

import platformdirs
import pytest

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing import _machine as ports
from rackassign.testing import cache_dir
from rackassign.testing._machine import reserve_ports


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    assert cache_dir() == cache


def test_the_cache_is_the_users_own_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RACKASSIGN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir().name == "rackassign"
    assert cache_dir().is_absolute()


def test_a_home_directory_of_nobody_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKASSIGN_CACHE", "~no-such-user/cache")
    with pytest.raises(ConfigError, match=r'RACKASSIGN_CACHE: the home directory in "~no-such-user/cache" is unknown'):
        cache_dir()


def test_a_user_without_a_home_directory_is_referred_to_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: object, **__: object) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("RACKASSIGN_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_dir", no_home)
    with pytest.raises(ConfigError, match="set RACKASSIGN_CACHE"):
        cache_dir()


def test_reserved_ports_are_not_given_twice() -> None:
    first, second = reserve_ports(3), reserve_ports(3)
    assert len({*first.numbers, *second.numbers}) == 6
    first.close()
    second.close()


def test_ports_lie_outside_the_ephemeral_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    (tmp_path / "range").write_text("32768\t60999\n", "ascii")
    assert ports._candidates() == range(20_000, 32_000)
    (tmp_path / "range").write_text("25000\t60999\n", "ascii")
    assert ports._candidates() == range(20_000, 25_000)
    (tmp_path / "range").write_text("15000\t60999\n", "ascii")
    assert ports._candidates() == range(1_024, 15_000)
    (tmp_path / "range").unlink()
    assert ports._candidates() == range(20_000, 32_000)


def test_a_port_that_a_stranger_uses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        monkeypatch.setattr(ports, "_candidates", lambda: range(taken, taken + 1))
        with pytest.raises(ClusterError, match="only 0 of 1 ports"):
            reserve_ports(1)


def test_preferred_ports_come_first_and_a_free_one_takes_the_place_of_each_that_is_not() -> None:
    first = reserve_ports(4)
    mine, theirs, unused, over = first.numbers
    first.close()
    held = reserve_ports(1, [theirs])
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", unused))
        stranger.listen()
        second = reserve_ports(5, [mine, theirs, unused, over])
    assert held.refused == {}
    assert (second.numbers[0], second.numbers[3]) == (mine, over)
    assert len(set(second.numbers)) == 5
    assert not {theirs, unused} & set(second.numbers)
    assert second.refused == {theirs: "another test cluster has it", unused: "another program uses it"}
    second.close()
    held.close()
    again = reserve_ports(2, [mine, theirs])
    assert (again.numbers, again.refused) == ((mine, theirs), {})
    again.close()
