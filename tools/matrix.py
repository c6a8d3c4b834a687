"""`make matrix`: what runs with each version of Python and of the clients, and the page with the results.

`noxfile.py` runs it. `python -m tools.matrix` writes the tables again from the results of all runs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from benchmarks.tables import Sheet, write_markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tools" / "matrix.json"
PAGE = ROOT / "docs" / "reference" / "clients.md"
COVERS = """\
This page covers versions of Python and of the client libraries. [Compatibility](compatibility.md) covers versions of
Kafka's brokers.
"""
"""What the page has above its tables."""

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PYTHON_OF_CLIENTS = "3.12"
"""The Python with which the versions between the oldest and the newest of a client run."""

CLIENTS: Mapping[str, tuple[str, ...]] = {
    "kafka-python": ("3.0.9", "3.0.10", "3.0.11", "3.0.12"),
    "aiokafka": ("0.14.0",),
    "confluent-kafka": ("2.8.0", "2.9.0", "2.10.1", "2.11.1", "2.12.2", "2.13.2", "2.14.2", "2.15.1", "2.16.1"),
    "pyspark": ("4.0.0", "4.1.4", "4.2.1", "4.3.0"),
}
"""Versions, oldest first.

Each client has the oldest version that pyproject.toml admits, and the newest patch release of each later minor version.
Of kafka-python each release is listed: the patches use private names, which a patch release may change.
"""


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of a client."""

    extras: tuple[str, ...]
    tests: tuple[str, ...]


_PRODUCERS = "integration/clients/test_producers.py::test_records_without_a_key_are_written_in_the_rack"

SUITES = {
    "core": Suite(
        ("cli",),
        (
            "tests/unit/test_racks.py",
            "tests/unit/solver/test_solver.py",
            "tests/unit/strategies/test_range.py",
            "tests/unit/test_model.py",
            "tests/unit/test_scenario.py",
            "tests/unit/cli/test_app.py",
        ),
    ),
    "kafka-python": Suite(
        # The helpers of tests with state write with confluent-kafka, and a module has the producers of all clients.
        ("aiokafka", "cli", "confluent"),
        (
            "tests/unit/clients/kafka_python",
            "tests/unit/wire/test_consumer_protocol.py",
            "integration/clients/test_kafka_python.py::test_each_way_in_reads_at_home",
            "integration/clients/test_kafka_python.py::test_a_member_with_a_listener_reads_again_what_it_keeps",
            "integration/clients/test_cooperative.py::test_a_group_lives_through_joins_leaves_and_a_kill",
            "integration/clients/test_patches.py::test_join_finished_between_polls_is_kept",
            "integration/clients/test_patches.py::test_group_goes_on_beside_a_broken_member",
            "integration/clients/test_follower_fetching.py::test_a_follower_is_not_left_after_each_answer",
            f"{_PRODUCERS}[2-kafka_python]",
            "integration/placement/test_placement.py::test_an_audit_finds_what_was_planted",
            "integration/stateful/test_copartitioned.py::test_one_member_has_both_partitions_and_its_successor_is_warm",
        ),
    ),
    "aiokafka": Suite(
        ("aiokafka", "confluent"),
        (
            "tests/unit/clients/aiokafka",
            "integration/clients/test_aiokafka.py::test_three_members_read_at_home_with_nothing_but_a_strategy",
            "integration/clients/test_aiokafka.py::test_every_byte_comes_from_the_own_rack_through_followers",
            "integration/clients/test_aiokafka.py::test_aiokafka_leads_cooperative_members_through_both_rounds",
            f"{_PRODUCERS}[2-asynchronous]",
        ),
    ),
    "confluent-kafka": Suite(
        ("aiokafka", "confluent"),
        (
            "tests/unit/clients/confluent",
            "integration/clients/test_confluent.py::test_three_members_read_everything_once_and_at_home",
            "integration/clients/test_confluent.py::test_a_mixed_group_with_kafka_python",
            "integration/clients/test_confluent_statistics.py",
            f"{_PRODUCERS}[2-librdkafka]",
        ),
    ),
    "pyspark": Suite(
        ("cli", "msk", "spark"),
        (
            "tests/unit/spark",
            "integration/spark/test_source.py::test_a_batch_has_the_rows_and_columns_of_the_jvm_source",
            "integration/spark/test_source.py::test_options_that_cannot_work_are_told_in_spark",
        ),
    ),
}
"""The suites by their client; `core` uses no client."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with versions of clients."""

    name: str
    python: str
    pins: Mapping[str, str]
    suites: tuple[str, ...]

    @property
    def versions(self) -> str:
        """The Python and the pins in one line: results of other versions do not count."""
        return ", ".join([f"Python {self.python}", *(f"{client} {v}" for client, v in self.pins.items())])

    @property
    def command(self) -> str:
        """How the page names the command that runs it."""
        return f"`make matrix ONLY={self.name}`"

    @property
    def requirements(self) -> list[str]:
        """The arguments of pip that install rackassign with the clients and what the tests need."""
        extras = sorted({"testing", *(extra for suite in self.suites for extra in SUITES[suite].extras)})
        named = {client: "kafka-python[crc32c]" if client == "kafka-python" else client for client in self.pins}
        pins = [f"{named[client]}=={version}" for client, version in self.pins.items()]
        return ["--editable", f".[{','.join(extras)}]", "hypothesis>=6.100", "jsonschema>=4.20", *pins]


def environments() -> list[Environment]:
    """Return all environments: the corners and Pythons first, then each remaining version of a client alone."""
    newest = {client: versions[-1] for client, versions in CLIENTS.items()}
    return [
        Environment("oldest", PYTHONS[0], {client: versions[0] for client, versions in CLIENTS.items()}, (*SUITES,)),
        *(Environment(f"python-{python}", python, newest, (*SUITES,)) for python in reversed(PYTHONS[1:])),
        *(
            Environment(f"{client}-{version}", PYTHON_OF_CLIENTS, {client: version}, (client,))
            for client, versions in CLIENTS.items()
            for version in versions[1:-1]
        ),
    ]


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter that can make virtual environments: `python3.12` on the PATH, or one that pyenv has."""
    installed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    found = [*([Path(on_path)] if on_path else []), *installed.glob(f"{version}.*/bin/python{version}")]
    question = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    for path in found:
        # A shim of pyenv is there also for versions that it does not start.
        answer = subprocess.run([path, "-c", question], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return path
    return None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a suite in an environment."""

    # Whether it works; a skipped test proves nothing, unless it needs a later version of a client.
    verdict: Literal["yes", "no", "not run"]
    # One line; empty if it works, unless some tests need a later version of the client.
    reason: str
    passed: int = 0
    seconds: int = 0
    # Day of the run in UTC, as in `2026-11-23`.
    date: str = ""
    versions: str = ""
    # Version of the brokers, as in `4.4.0`; empty if no test ran.
    kafka: str = ""

    @property
    def text(self) -> str:
        """The answer with its reason, as a cell of a Markdown table has it."""
        return f"{self.verdict}: {self.reason}".replace("|", "\\|") if self.reason else self.verdict


Cell = tuple[str, str]
"""Names of an environment and a suite."""

_NEEDS = re.compile(r"needs ((?:kafka-python|aiokafka|confluent-kafka|pyspark) [\d.]+)$")
_LONGEST = 160


def read_report(report: Path) -> Result:
    """Read what pytest reports in JUnit's format."""
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - written by the pytest that was started
    failures = [(case, problem) for case in cases for problem in (*case.findall("failure"), *case.findall("error"))]
    skips = [skip.get("message", "") for case in cases for skip in case.findall("skipped[@type='pytest.skip']")]
    passed = sum(case.find("failure") is case.find("error") is case.find("skipped") is None for case in cases)
    if failures:
        case, problem = failures[0]
        # What cannot be imported is named by the last line that pytest marks as the error.
        causes = re.findall(r"^E +(.+)$", problem.text or "", re.MULTILINE)
        said = causes[-1] if "collection" in problem.get("message", "") and causes else problem.get("message", "")
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        return Result("no", _one_line(f"{len(failures)} failed, the first: {name} - {said}"), passed)
    if missing := [skip for skip in skips if not _NEEDS.search(skip)]:
        return Result("not run", _one_line(f"skipped: {missing[0]}"), passed)
    if not passed:
        return Result("no", "no test ran")
    later = Counter(needed[1] for skip in skips if (needed := _NEEDS.search(skip)))
    told = (f"skipped, since they need {what}: {number} tests" for what, number in later.items())
    return Result("yes", ", ".join(told), passed)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def read(file: Path = RESULTS) -> dict[Cell, Result]:
    """Read the results of earlier runs."""
    rows = json.loads(file.read_text("utf-8"))
    return {(row.pop("environment"), row.pop("suite")): Result(**row) for row in rows}


def record(cell: Cell, result: Result, file: Path = RESULTS) -> None:
    """Add a result to those of earlier runs; "not run" does not replace a result of the same versions."""
    known = read(file)
    if result.verdict != "not run" or cell not in known or known[cell].versions != result.versions:
        known[cell] = result
    # Sorted, so that a run changes the lines of its own cells only.
    rows = [{"environment": name, "suite": suite, **asdict(r)} for (name, suite), r in sorted(known.items())]
    lines = ",\n".join(map(json.dumps, rows))
    file.write_text(f"[\n{lines}\n]\n", "utf-8")


def today() -> str:
    """Return the day in UTC."""
    return datetime.now(tz=timezone.utc).date().isoformat()


def result_of(environment: Environment, suite: str, results: Mapping[Cell, Result]) -> Result:
    """Return the result of a cell: "not run" if there is none with the versions of the environment."""
    result = results.get((environment.name, suite))
    if result is None:
        return Result("not run", "no run yet")
    if result.versions == environment.versions:
        return result
    others = [each for each in result.versions.split(", ") if each not in environment.versions.split(", ")]
    return Result("not run", f"last run on {result.date} with {', '.join(others) or result.versions}")


def sheets(results: Mapping[Cell, Result]) -> Iterator[Sheet]:
    """Yield the tables: Pythons with the oldest or newest clients, and versions of each client."""
    rows = [_python_row(environment, results) for environment in environments() if len(environment.suites) > 1]
    headings = ("Python", *SUITES, "Kafka", "date", "command")
    yield Sheet("Python versions, with the oldest clients and with the newest", headings, rows)
    headings = ("version", "Python", "Kafka", "works", "tests passed", "time", "date", "command")
    for client, versions in CLIENTS.items():
        yield Sheet(client, headings, [_client_row(client, version, results) for version in versions])


def _python_row(environment: Environment, results: Mapping[Cell, Result]) -> tuple[str, ...]:
    found = {suite: result_of(environment, suite, results) for suite in SUITES}
    cells = [f"{environment.pins.get(suite, '')} {result.text}".strip() for suite, result in found.items()]
    kafka = ", ".join(sorted({result.kafka for result in found.values()} - {""}))
    return (environment.python, *cells, kafka, max(result.date for result in found.values()), environment.command)


def _client_row(client: str, version: str, results: Mapping[Cell, Result]) -> tuple[str, ...]:
    """Return the row of a version: the first environment with it is its proof, if it ran."""
    having = [e for e in environments() if client in e.suites and e.pins.get(client) == version]
    proof = min(having, key=lambda e: result_of(e, client, results).verdict == "not run")
    result = result_of(proof, client, results)
    seconds = f"{result.seconds} s" if result.seconds else ""
    tested = (result.kafka, result.text, str(result.passed), seconds, result.date)
    return (version, proof.python, *tested, proof.command)


def write_page(results: Mapping[Cell, Result], page: Path = PAGE) -> None:
    """Write the tables into the page, between their marks."""
    write_markdown(page, "matrix", sheets(results), above=COVERS)


if __name__ == "__main__":
    write_page(read())
