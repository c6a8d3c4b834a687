"""Signals that end long commands."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.helpers.processes import up

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
