"""Run environments: a virtual environment for each, and pytest in it."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rackassign.testing._broker_config import KAFKA_VERSION
from tools.matrix.environments import SUITES, Environment
from tools.matrix.results import Result, Verdict, versions

ROOT = Path(__file__).resolve().parents[2]

HANG_S = 1800.0
"""No suite takes as long; one that does is hung."""

# What has no wheel for a Python is no install to wait for: the compiler would fail half an hour later.
_WHEELS_ONLY = "--only-binary=aiokafka,confluent-kafka,highspy,numpy,pandas,pyarrow"

_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)\b")
_SUMMARY = re.compile(r"^(?:=+ )?(?:\d+ [a-z]+, )*\d+ [a-z]+ in [\d.]+s")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (?P<text>.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^E +(\w*(?:Error|Exception)\b.*)$", re.MULTILINE)
_SKIP = re.compile(r"^SKIPPED \[(\d+)\] (.+)$", re.MULTILINE)
_NEEDS = re.compile(r"^.*: needs ((?:kafka-python|aiokafka|confluent-kafka|pyspark) [\d.]+)$")
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Report:
    """What pytest reports.

    Args:
        passed: Number of tests that passed.
        verdict: Yes only if at least one test passed and none failed or was skipped; a test of what a later version of
            a client has may be skipped.
        reason: Of another answer, one line; with yes, the tests that need a later version.
    """

    passed: int
    verdict: Verdict
    reason: str


def read_report(output: str, code: int) -> Report:
    """Read the output of pytest.

    A skipped test proves nothing, so it makes the cell "not run", unless it needs a later version of a client.

    Args:
        output: All that pytest printed; the last summary counts.
        code: Exit code of pytest.
    """
    summaries = [line for line in output.splitlines() if _SUMMARY.match(line)]
    counts = {name.rstrip("s"): int(number) for number, name in _COUNT.findall(summaries[-1])} if summaries else {}
    passed = counts.get("passed", 0)
    if code or counts.get("failed") or counts.get("error"):
        failures = _FAILURE.findall(output)
        number = counts.get("failed", 0) + counts.get("error", 0)
        first = _with_cause(failures[0], output) if failures else _last_line(output) or f"pytest exits with {code}"
        return Report(passed, Verdict.NO, one_line(f"{number} failed, the first: {first}" if number else first))
    skips = _SKIP.findall(output)
    if missing := [text for _, text in skips if not _NEEDS.search(text)]:
        return Report(passed, Verdict.NOT_RUN, one_line(f"skipped: {missing[0]}"))
    if not passed:
        return Report(0, Verdict.NO, "no test ran")
    needs = Counter[str]()
    for number, text in skips:
        needs[_NEEDS.sub(r"\1", text)] += int(number)
    return Report(
        passed,
        Verdict.YES,
        ", ".join(f"skipped, since they need {what}: {number} tests" for what, number in needs.items()),
    )


def _with_cause(failure: str, output: str) -> str:
    """Add the error to a failure that pytest names without one: a module that cannot be imported."""
    causes = _CAUSE.findall(output)
    return f"{failure} - {causes[0]}" if causes and " - " not in failure else failure


def one_line(text: str) -> str:
    """Return a text as one line that a table can have."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _last_line(output: str) -> str:
    lines = output.split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Runner:
    """Runs environments in a folder of virtual environments and logs."""

    def __init__(self, cache: Path, *, keep: bool = False) -> None:
        self._venvs = cache / "venvs"
        self._logs = cache / "logs"
        self._keep = keep

    def run(self, environment: Environment, interpreter: Path, suites: tuple[str, ...]) -> Iterator[tuple[str, Result]]:
        """Run suites of an environment, and yield the result of each.

        The virtual environment is removed if all suites pass: together they take gigabytes, and pip keeps the wheels.
        """
        python, problem = self._install(environment, interpreter)
        if problem:
            missing = Result(Verdict.NO, problem, 0, 0, today(), versions(environment), "")
            yield from ((suite, missing) for suite in suites)
            return
        verdicts = set()
        for suite in suites:
            result = self._test(environment, suite, python)
            verdicts.add(result.verdict)
            yield suite, result
        if verdicts == {Verdict.YES} and not self._keep:
            shutil.rmtree(self._venvs / environment.name)

    def _install(self, environment: Environment, interpreter: Path) -> tuple[Path, str]:
        """Make the virtual environment, unless it is there; return its Python and what failed."""
        venv = self._venvs / environment.name
        python = venv / "bin" / "python"
        requirements = environment.requirements(str(ROOT))
        stamp, made_for = venv / "matrix-stamp", "\n".join([str(interpreter), *requirements, _project()])
        if stamp.exists() and stamp.read_text(encoding="utf-8") == made_for:
            return python, ""
        shutil.rmtree(venv, ignore_errors=True)
        pip = [
            str(python),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "--use-pep517",
            _WHEELS_ONLY,
        ]
        for command in ([str(interpreter), "-m", "venv", str(venv)], [*pip, *requirements]):
            code, output = self._logged(command, f"{environment.name}-install", HANG_S)
            if code:
                error = re.search(r"^ERROR: (.+)$", output, re.MULTILINE)
                return python, one_line(f"not installable: {error[1] if error else _last_line(output)}")
        stamp.write_text(made_for, encoding="utf-8")
        return python, ""

    def _test(self, environment: Environment, suite: str, python: Path) -> Result:
        began = time.monotonic()
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES[suite].tests]
        code, output = self._logged(command, f"{environment.name}-{suite}", HANG_S)
        report, seconds = read_report(output, code), round(time.monotonic() - began)
        of = versions(environment)
        return Result(report.verdict, report.reason, report.passed, seconds, today(), of, KAFKA_VERSION)

    def _logged(self, command: list[str], name: str, limit: float) -> tuple[int, str]:
        """Run a command with its output in a log file; return its exit code and the output."""
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        # What the caller's shell imports from is not what is tested.
        env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        with log.open("w", encoding="utf-8") as out:
            try:
                code = subprocess.run(
                    command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT, check=False, timeout=limit
                ).returncode
            except subprocess.TimeoutExpired:
                code = 1
                out.write(f"\nstopped after {limit:.0f} s\n")
        return code, log.read_text(encoding="utf-8", errors="replace").replace(f"{ROOT}/", "")


def _project() -> str:
    return (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def today() -> str:
    """Return the day in UTC, as in `2026-11-23`."""
    return dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
