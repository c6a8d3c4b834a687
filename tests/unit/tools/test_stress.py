"""Rounds beside busy processes: these end, and a failure of pytest is one of all rounds."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.machine_speed import FACTOR
from tests.helpers.processes import alive, eventually
from tools.stress import busy_processes, main

TESTS = """
import os
def test_good():
    assert "{factor}" not in os.environ
def test_depends(): assert {holds}
"""


LONG = """
def test_long():
    pathlib.Path({pid!r}).write_text(str(os.getpid()))
    time.sleep(600)
"""


def test_busy_processes_end_with_the_block_whatever_ends_it() -> None:
    pids: list[int] = []

    def fail() -> None:
        with busy_processes(3) as started:
            pids.extend(started)
            assert all(alive(pid) for pid in started)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len({*pids}) == 3
    assert not any(alive(pid) for pid in pids)


def test_busy_processes_end_when_the_one_that_started_them_is_killed() -> None:
    code = "from tools.stress import busy_processes\nwith busy_processes(2) as p: print(*p, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as own:
        assert own.stdout is not None
        pids = [int(word) for word in own.stdout.readline().split()]
        assert len(pids) == 2
        own.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_a_run_that_is_told_to_end_leaves_no_process(tmp_path: Path) -> None:
    pid, file = tmp_path / "pid", tmp_path / "test_long.py"
    file.write_text(f"import os, pathlib, time\n{LONG.format(pid=str(pid))}", "utf-8")
    command = [sys.executable, "-m", "tools.stress", "--rounds", "1", "--busy", "1", "--workers", "0", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        assert eventually(lambda: pid.exists() and pid.read_text("utf-8"))
        run.terminate()
    assert run.returncode == 128 + signal.SIGTERM
    assert eventually(lambda: not alive(int(pid.read_text("utf-8"))))


@pytest.mark.release
@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
def test_rounds_are_played_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *, holds: bool, code: int
) -> None:
    monkeypatch.setenv(FACTOR, "3")
    file = tmp_path / "test_two.py"
    file.write_text(TESTS.format(factor=FACTOR, holds=holds), "utf-8")
    assert main(["--rounds", "2", "--busy", "1", "--workers", "0", str(file)]) == code
    printed = capfd.readouterr().out
    for number in (1, 2):
        assert f"round {number} of 2: pytest ended with {code}" in printed
    assert ("test_two.py::test_depends FAILED" in printed) is not holds


def test_a_round_without_a_test_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "test_none.py"
    file.touch()
    assert main(["--rounds", "1", "--busy", "1", "--workers", "0", str(file)]) == 1
