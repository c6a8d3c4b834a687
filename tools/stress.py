"""`make test-stress`: the tests on brokers beside busy processes, some rounds; every failure is a defect of a test.

python -m tools.stress [--rounds 3] [--busy 8] [--workers 5] [--select EXPRESSION] [PATH ..]

Each round measures the machine again, so that its timeouts are those of a busy one. What fails is shown by pytest: with
a guard against hanging, something was waited for that did not happen.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers.machine_speed import FACTOR

ROOT = Path(__file__).parents[1]

# It ends with its input, so also when the process that started it is killed.
_BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""


@contextmanager
def busy_processes(count: int) -> Iterator[list[int]]:
    """Run processes that use all processors while the block lasts; yield their process IDs."""
    with ExitStack() as opened:
        processes = []
        for _ in range(count):
            process = opened.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY], stdin=subprocess.PIPE))
            opened.callback(process.kill)
            processes.append(process)
        yield [process.pid for process in processes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all rounds passed, else 1."""
    parser = argparse.ArgumentParser(description="Run tests on brokers beside busy processes.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=8, help="number of busy processes")
    # With more of them a round takes less time: beside eight busy processes two get a fifth of the processors.
    parser.add_argument("--workers", type=int, default=5, help="tests that run at the same time; 0 for no pytest-xdist")
    parser.add_argument("--select", default="", help="expression of markers, as for `pytest -m`")
    parser.add_argument("paths", nargs="*", default=["integration"])
    given = parser.parse_args(arguments)
    # Without this a SIGTERM would leave pytest running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    command = [sys.executable, "-m", "pytest", "-v", "-m", given.select, *given.paths]
    command += ["-n", str(given.workers), "--dist", "worksteal"] if given.workers else []
    # Measured by each round.
    environment = {name: value for name, value in os.environ.items() if name != FACTOR}
    codes = []
    for number in range(1, given.rounds + 1):
        with busy_processes(given.busy):
            codes.append(subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode)
        print(f"round {number} of {given.rounds}: pytest ended with {codes[-1]}", flush=True)
    return int(any(codes) or not codes)


if __name__ == "__main__":
    sys.exit(main())
