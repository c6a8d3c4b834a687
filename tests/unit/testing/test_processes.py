"""Processes that are kept, and ended with their owner."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rackassign.errors import ClusterError
from rackassign.testing import _machine as ports
from rackassign.testing import cache_dir
from rackassign.testing._machine import reserve_ports
from rackassign.testing._processes import ClusterDirectory, ProcessSupervisor, create_cluster_directory
from tests.helpers.processes import DEADLINE_S, alive, eventually


@contextmanager
def keeping(*, inherit: tuple[int, ...] = ()) -> Iterator[tuple[ProcessSupervisor, ClusterDirectory]]:
    home = create_cluster_directory()
    supervisor = ProcessSupervisor(home, inherit)
    os.close(home.descriptor)
    try:
        yield supervisor, home
    finally:
        supervisor.close()


def test_closing_ends_processes_paused_ones_too_and_removes_the_directory() -> None:
    with keeping() as (supervisor, home):
        pids = [supervisor.start(name, ["sleep", "600"], home.directory / name) for name in ("1", "2")]
        supervisor.signal("2", signal.SIGSTOP)
        assert all(map(alive, pids))
    assert not any(map(alive, pids))
    assert not home.directory.exists()
    assert not home.lock.exists()
    supervisor.close()


def test_a_forked_child_of_the_owner_does_not_keep_a_cluster_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.testing._processes._CLOSE_TIMEOUT_S", DEADLINE_S)
    with ExitStack() as ended:
        with keeping() as (supervisor, home):
            pid = supervisor.start("1", ["sleep", "600"], home.directory / "1")
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            child.start()
            ended.callback(child.join)
            ended.callback(child.kill)
        assert child.is_alive()
        assert not alive(pid)
        assert not home.directory.exists()


def test_the_end_of_a_process_is_known_at_once() -> None:
    with keeping() as (supervisor, home):
        supervisor.start("1", ["sh", "-c", "echo word; echo last >&2; exit 7"], home.directory / "log")
        assert supervisor.wait_exit(["1"], DEADLINE_S)
        assert supervisor.exit_code("1") == 7
        assert supervisor.running() == {}
        assert (home.directory / "log").read_text("utf-8") == "word\nlast\n"
        supervisor.signal("1", signal.SIGTERM)


def test_a_process_may_be_started_again_under_its_name() -> None:
    with keeping() as (supervisor, home):
        first = supervisor.start("1", ["sleep", "600"], home.directory / "log")
        with pytest.raises(ClusterError, match="1 is already running"):
            supervisor.start("1", ["sleep", "600"], home.directory / "log")
        supervisor.signal("1", signal.SIGKILL)
        assert supervisor.wait_exit(["1"], DEADLINE_S)
        assert supervisor.exit_code("1") == -signal.SIGKILL
        assert supervisor.start("1", ["sleep", "600"], home.directory / "log") != first
        assert not supervisor.wait_exit(["1"], 0.05)


def test_a_program_that_is_not_there_is_an_error() -> None:
    with keeping() as (supervisor, home), pytest.raises(ClusterError, match="No such file"):
        supervisor.start("1", ["/no/such/program"], home.directory / "log")


def test_reservations_last_as_long_as_the_keeper() -> None:
    reserved = reserve_ports(1)
    reservation = cache_dir() / "ports" / str(reserved.numbers[0])
    with keeping(inherit=reserved.descriptors):
        reserved.close()
        assert ports._reserve(reservation, reserved.numbers[0]) == "another test cluster has it"
    again = ports._reserve(reservation, reserved.numbers[0])
    assert isinstance(again, int)
    os.close(again)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel has no such service elsewhere")
def test_processes_die_with_a_killed_keeper_and_the_next_start_sweeps() -> None:
    home = create_cluster_directory()
    supervisor = ProcessSupervisor(home)
    os.close(home.descriptor)
    pid = supervisor.start("1", ["sleep", "600"], home.directory / "log")
    os.kill(supervisor.pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    with pytest.raises(ClusterError, match="supervisor process has ended"):
        eventually(lambda: supervisor.running() and False)
    with pytest.raises(ClusterError, match="supervisor process ended with -9"):
        supervisor.close()
    assert home.directory.exists()
    with keeping() as (_, other):
        assert not home.directory.exists()
        assert not home.lock.exists()
        with keeping():
            assert other.directory.exists()


OWNER = """
import os, signal, sys, time
from rackassign.testing._processes import create_cluster_directory
from rackassign.testing._processes import ProcessSupervisor

# What runs in the background of a shell ignores it, and so would this, and sleep to its end.
signal.signal(signal.SIGINT, signal.default_int_handler)
home = create_cluster_directory()
supervisor = ProcessSupervisor(home)
pid = supervisor.start("1", ["sleep", "600"], home.directory / "log")
if "fork" in sys.argv and os.fork() == 0:
    time.sleep(600)
print(pid, supervisor.pid, home.directory, flush=True)
if "exit" in sys.argv:
    os._exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None], ids=str)
def test_nothing_outlives_its_owner(ending: signal.Signals | None) -> None:
    arguments = [sys.executable, "-c", OWNER] + (["exit"] if ending is None else [])
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout
        pid, supervisor, directory = owner.stdout.readline().split(maxsplit=2)
        if ending is not None:
            os.killpg(owner.pid, ending)
    assert eventually(lambda: not alive(int(pid)) and not alive(int(supervisor)))
    assert not Path(directory.strip()).exists()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the kernel has no such service")
def test_a_forked_worker_of_a_dead_owner_keeps_nothing_alive() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, "fork"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as owner:
        assert owner.stdout
        pid, supervisor, directory = owner.stdout.readline().split(maxsplit=2)
        owner.kill()
        owner.wait()
        assert eventually(lambda: not alive(int(pid)) and not alive(int(supervisor)))
        assert not Path(directory.strip()).exists()
        # The worker that the script has forked.
        os.killpg(owner.pid, signal.SIGKILL)
