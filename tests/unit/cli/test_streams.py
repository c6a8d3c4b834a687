"""Output that cannot be encoded or written: no traceback, and an exit code that shows it.

Signals that end long commands.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rackassign.cli import ExitCode
from tests.helpers.processes import up

NAMES = "größe"
SCENARIO = {
    "format": "rackassign/1",
    "name": NAMES,
    "brokers": [{"id": 1, "rack": "a"}],
    "topics": {"t": [[1]]},
    "members": [{"id": "m1\ud800", "rack": "a", "topics": ["t"]}],
}
COMMANDS = ["plan", "plan --output table", "plan --output jsonl", "--help", "plan --help", "--version"]
RACKASSIGN = [sys.executable, "-m", "rackassign"]


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "group.json"
    file.write_text(json.dumps(SCENARIO))
    return str(file)


def words(command: str, scenario: str) -> list[str]:
    given = [scenario] if command.startswith("plan") and "--help" not in command else []
    return [*RACKASSIGN, *command.split(), *given]


ASCII = [
    pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.long),
    pytest.param({"PYTHONIOENCODING": "latin-1:strict"}, marks=pytest.mark.long),
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("variables", ASCII)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_stdout_cannot_encode_is_escaped(variables: dict[str, str], command: str, scenario: str) -> None:
    done = subprocess.run(
        words(command, scenario), capture_output=True, check=False, env={**os.environ, **variables}, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout
    if command == "plan --output table":
        shown = NAMES.encode("latin-1") if "latin" in str(variables) else NAMES.encode("ascii", "backslashreplace")
        assert shown in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_device_is_one_line_and_an_exit_code(command: str, scenario: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words(command, scenario), stdout=full, stderr=subprocess.PIPE, check=False, timeout=300)
    assert done.returncode == ExitCode.NOT_WRITTEN
    assert done.stderr == b"rackassign: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_ended_is_no_problem_to_report(command: str, scenario: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words(command, scenario), stdout=writer, stderr=subprocess.PIPE, check=False, timeout=300)
    os.close(writer)
    assert (done.returncode, done.stderr) == (ExitCode.PIPE_CLOSED, b"")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_stdout_is_one_line_and_an_exit_code(command: str, scenario: str) -> None:
    shell = ["sh", "-c", '"$@" >&-', "sh", *words(command, scenario)]
    done = subprocess.run(shell, stderr=subprocess.PIPE, check=False, timeout=300)
    assert done.returncode == ExitCode.NOT_WRITTEN
    assert done.stderr == b"rackassign: the output cannot be written: standard output is closed\n"


STEPS = """
import sys
from rackassign.cli import app
from rackassign.cli.terminal import progress_display

def work(*words, **options):
    with progress_display() as display:
        display.show_step("Describing groups")
        display.show_step("Measuring", 1, 2)
    print("done")

app.app = work
sys.exit(app.run(["inspect"]))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("where", [">&-", "> /dev/full"])
def test_steps_that_stderr_cannot_show_do_not_end_a_command(where: str, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    shell = ["sh", "-c", f'"$@" 2{where}', "sh", sys.executable, "-c", STEPS]
    done = subprocess.run(shell, stdout=subprocess.PIPE, check=False, env=environment, timeout=300)
    assert (done.returncode, done.stdout) == (0, b"done\n")


SEVERAL_LINES = """
import sys
from rackassign.cli import app
from rackassign.errors import ClusterError

def fail(*words, **options):
    raise ClusterError("a broker has ended\\nits log\\nand its end")

app.app = fail
sys.exit(app.run(["cluster"]))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("where", [">&-", "> /dev/full"])
def test_problems_that_stderr_cannot_show_keep_their_exit_code(where: str, unbuffered: str) -> None:
    # Only with a buffer has the interpreter something left to write when it ends.
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    shell = ["sh", "-c", f'"$@" 2{where}', "sh", *RACKASSIGN, "no-such-command"]
    assert subprocess.run(shell, check=False, env=environment, timeout=300).returncode == ExitCode.BAD_INPUT


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("where", [">&-", "> /dev/full"])
def test_the_end_of_a_log_that_stderr_cannot_show_keeps_its_exit_code(where: str, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    shell = ["sh", "-c", f'"$@" 2{where}', "sh", sys.executable, "-c", SEVERAL_LINES]
    assert subprocess.run(shell, check=False, env=environment, timeout=300).returncode == ExitCode.NO_ANSWER


def test_a_terminal_is_still_recognized(scenario: str) -> None:
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    with subprocess.Popen(words("plan --output table", scenario), stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                chunk = os.read(master, 4096)
            except OSError:
                # Linux reports the end of the other side in this way.
                break
            if not chunk:
                break
            shown += chunk
        assert process.wait(300) == 0
    os.close(master)
    assert b"\x1b[" in shown


CODE = """
import signal, time
from rackassign.cli.terminal import {name}
# Under nohup, which the tests may be run with, it would be ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with {name}():
    print("up", flush=True)
    # pause() would not return for a signal that arrives just before it.
    while True:
        time.sleep(0.05)
"""
ENDS = {"terminate_as_interrupt": -signal.SIGINT, "terminate_as_exit": 0}


@pytest.mark.parametrize("name", sorted(ENDS))
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command(name: str, number: signal.Signals) -> None:
    with up(CODE.format(name=name)) as process:
        process.send_signal(number)
        assert process.wait(300) == ENDS[name]


@pytest.mark.parametrize("name", [*sorted(ENDS), "stop_requested"])
def test_under_nohup_the_end_of_the_terminal_stays_ignored(name: str) -> None:
    code = f"""
import signal
from rackassign.cli.terminal import {name}
with {name}():
    print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
    done = subprocess.run(
        ["/usr/bin/env", "nohup", sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True
    )
    assert done.stdout == "True False\n"
