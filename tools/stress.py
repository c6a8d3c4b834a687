"""`make test-stress`: the tests on brokers beside busy processes, some rounds; every failure is a defect of a test.

python -m tools.stress [--rounds 3] [--busy 8] [--workers 5] [--select EXPRESSION] [PATH ..]

Each round measures the machine again, so that its timeouts are those of a busy one. It prints the load, the failures,
and the guards against hanging that ended a wait: with such a guard something was waited for that did not happen.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.helpers.machine_speed import FACTOR

ROOT = Path(__file__).parents[1]

# It ends with its input, so also when the process that started it is killed.
_BUSY = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""

_LOOK_S = 5.0

_GUARDS = re.compile(
    r"waited [\d.]+ s for [^\n;]*|TimeoutExpired: [^\n]*|did not \w+ in [\d.]+ s[^\n]*|\bin time\b[^\n]*"
)
"""What a guard against hanging reports."""


@dataclass(frozen=True, slots=True)
class Round:
    """Result of a round.

    Args:
        passed: Number of tests that passed.
        failed: Names of the tests that failed, or had an error.
        guards: Reports of guards against hanging, by the name of the test.
        load: Greatest load average over a minute.
        seconds: Duration.
        code: Exit code of pytest.
    """

    passed: int
    failed: tuple[str, ...]
    guards: tuple[tuple[str, str], ...]
    load: float
    seconds: float
    code: int

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.failed and self.passed > 0

    @property
    def lines(self) -> list[str]:
        """Return what is printed of it."""
        counts = f"{self.passed} passed, {len(self.failed)} failed"
        return [
            f"{counts} in {self.seconds:.0f} s; load up to {self.load:.1f}; pytest ended with {self.code}",
            *(f"  failed: {name}" for name in self.failed),
            *(f"  a guard against hanging: {name}: {report}" for name, report in self.guards),
        ]


@contextmanager
def busy_processes(count: int) -> Iterator[list[int]]:
    """Run processes that use all processors while the block lasts; yield their process IDs."""
    with ExitStack() as opened:
        yield [opened.enter_context(_busy_process()) for _ in range(count)]


@contextmanager
def _busy_process() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", _BUSY], stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def watched_load() -> Iterator[list[float]]:
    """Yield a list of the load averages over a minute, which grows while the block lasts."""
    seen, over = [os.getloadavg()[0]], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            seen.append(os.getloadavg()[0])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def read_report(file: Path) -> tuple[int, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return what a report in JUnit's format has: tests that passed, names of those that failed, and guards.

    Args:
        file: The report; without one no test has passed.
    """
    passed, failed, guards = 0, dict[str, None](), []
    if file.exists():
        for case in ET.parse(file).iter("testcase"):  # noqa: S314 - written by the pytest that was started
            name = f"{case.get('classname')}::{case.get('name')}"
            problems = [*case.findall("failure"), *case.findall("error")]
            if problems:
                failed[name] = None
            elif case.find("skipped") is None:
                passed += 1
            text = "\n".join(f"{problem.get('message')}\n{problem.text}" for problem in problems)
            guards += [(name, found) for found in dict.fromkeys(_GUARDS.findall(text))]
    return passed, tuple(failed), tuple(guards)


def play(paths: Sequence[str], select: str, workers: int) -> Round:
    """Run the tests once."""
    # Measured by each round.
    environment = {name: value for name, value in os.environ.items() if name != FACTOR}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, watched_load() as load:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-v", "-m", select, f"--junitxml={report}"]
        command += ["-n", str(workers), "--dist", "worksteal"] if workers else []
        code = subprocess.run([*command, *paths], check=False, cwd=ROOT, env=environment).returncode
        passed, failed, guards = read_report(report)
    return Round(passed, failed, guards, max(load), time.monotonic() - begun, code)


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
    rounds = []
    for number in range(1, given.rounds + 1):
        with busy_processes(given.busy):
            rounds.append(play(given.paths, given.select, given.workers))
        print(f"round {number} of {given.rounds}: " + "\n".join(rounds[-1].lines), flush=True)
    return 0 if rounds and all(each.ok for each in rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
