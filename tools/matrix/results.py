"""Results of cells: the file that keeps them, and the tables of the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from benchmarks.tables import Sheet
from tools.matrix.environments import SUITES, Environment
from tools.matrix.versions import CLIENTS, UNSUPPORTED


class Verdict(str, Enum):
    """The answer of a cell."""

    YES = "yes"
    NO = "no"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a suite in an environment.

    Args:
        verdict: Whether it works.
        reason: One line; empty if it works, unless some tests need a later version of the client.
        passed: Number of tests that passed.
        seconds: How long the tests ran.
        date: Day of the run, as in `2026-11-23`.
        versions: Python and pins of the environment, as `versions` returns them.
        kafka: Version of the brokers, as in `4.4.0`; empty if no test ran.
    """

    verdict: Verdict
    reason: str
    passed: int
    seconds: int
    date: str
    versions: str
    kafka: str

    def __post_init__(self) -> None:
        if self.verdict is not Verdict.YES and not self.reason:
            raise ValueError(f"a result needs a reason if it is {self.verdict.value!r}")
        if "\n" in self.reason:
            raise ValueError(f"a reason is one line: {self.reason!r}")

    def text(self) -> str:
        """Return the answer with its reason, as a cell of a Markdown table has it."""
        return f"{self.verdict.value}: {self.reason}".replace("|", "\\|") if self.reason else self.verdict.value


Cell = tuple[str, str]
"""Names of an environment and a suite."""


def versions(environment: Environment) -> str:
    """Return the Python and the pins in one line: results of other versions do not count."""
    return ", ".join([f"Python {environment.python}", *(f"{client} {v}" for client, v in environment.pins)])


def read(file: Path) -> dict[Cell, Result]:
    """Read the results of earlier runs; none if there is no file."""
    if not file.exists():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))
    return {
        (row.pop("environment"), row.pop("suite")): Result(verdict=Verdict(row.pop("verdict")), **row) for row in rows
    }


def write(file: Path, results: Mapping[Cell, Result]) -> None:
    """Write results, sorted, so that a run changes the lines of its own cells only."""
    rows = [{"environment": cell[0], "suite": cell[1], **asdict(result)} for cell, result in sorted(results.items())]
    lines = ",\n".join(json.dumps(row) for row in rows)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def result_of(environment: Environment, suite: str, results: Mapping[Cell, Result]) -> Result:
    """Return the result of a cell: "not run" if there is none with the versions of the environment."""
    of = versions(environment)
    if reason := UNSUPPORTED.get((environment.name, suite)):
        return Result(Verdict.NO, reason, 0, 0, "", of, "")
    result = results.get((environment.name, suite))
    if result is None or result.versions != of:
        return Result(Verdict.NOT_RUN, "no run yet", 0, 0, "", of, "")
    return result


def sheets(environments: list[Environment], results: Mapping[Cell, Result]) -> list[Sheet]:
    """Return the tables: Pythons with the oldest or newest clients, and versions of each client."""
    everything = [e for e in environments if len(e.suites) > 1]
    return [
        Sheet(
            "Python versions, with the oldest clients and with the newest",
            ("Python", *SUITES, "Kafka", "date", "command"),
            [_python_row(environment, results) for environment in everything],
        ),
        *(_client_sheet(client, environments, results) for client in CLIENTS),
    ]


def _python_row(environment: Environment, results: Mapping[Cell, Result]) -> tuple[str, ...]:
    found = {suite: result_of(environment, suite, results) for suite in SUITES}
    cells = [
        f"{version} {result.text()}" if (version := environment.version(suite)) else result.text()
        for suite, result in found.items()
    ]
    kafka = ", ".join(sorted({result.kafka for result in found.values()} - {""}))
    return (environment.python, *cells, kafka, max(result.date for result in found.values()), command(environment))


def _client_sheet(client: str, environments: list[Environment], results: Mapping[Cell, Result]) -> Sheet:
    """Return one row for each version of a client: the first environment with it is its proof, if it ran."""
    rows = []
    for version in CLIENTS[client]:
        having = [e for e in environments if client in e.suites and e.version(client) == version]
        having.sort(key=lambda e: result_of(e, client, results).verdict is Verdict.NOT_RUN)
        result = result_of(having[0], client, results)
        seconds = f"{result.seconds} s" if result.seconds else ""
        ran = (str(result.passed), seconds, result.date, command(having[0]))
        rows.append((version, having[0].python, result.kafka, result.text(), *ran))
    return Sheet(client, ("version", "Python", "Kafka", "works", "tests passed", "time", "date", "command"), rows)


def command(environment: Environment) -> str:
    """Return the command that runs an environment."""
    return f"`make matrix ONLY={environment.name}`"
