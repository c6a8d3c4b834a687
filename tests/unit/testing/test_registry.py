"""Clusters that another process keeps running, by name."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from rackassign.errors import ConfigError
from rackassign.testing.registry import ControlAddress, find_registered, register
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
