"""Run the matrix, or a part of it, and write its tables into docs/reference/clients.md.

Exits 1 if a supported cell fails or, with --strict or CI=true, could not be run; 2 if the input is bad.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.tables import write_markdown
from tools.matrix import newer, results
from tools.matrix.environments import SUITES, Environment, environments
from tools.matrix.interpreters import find_interpreter
from tools.matrix.results import Cell, Result, Verdict
from tools.matrix.runner import ROOT, Runner, today
from tools.matrix.versions import BELOW, CLIENTS, UNSUPPORTED

RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "reference" / "clients.md"

COVERS = """\
This page covers versions of Python and of the client libraries. [Compatibility](compatibility.md) covers versions of
Kafka's brokers.
"""
"""What the page has above its tables."""


class Runs(Protocol):
    """What runs suites of an environment."""

    def run(self, environment: Environment, interpreter: Path, suites: tuple[str, ...]) -> Iterable[tuple[str, Result]]:
        """Return each suite with its result."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the options name, and return the exit code."""
    options = _options(arguments)
    if options.newer:
        return _show_newer()
    chosen = [e for e in environments() if not options.only or e.name in options.only]
    if unknown := {*options.only} - {e.name for e in environments()}:
        print(f"no such environment: {', '.join(sorted(unknown))}; --list shows all", file=sys.stderr)
        return 2
    if options.table:
        write_page(results.read(options.results), options.page)
        return 0
    if options.list:
        for environment in chosen:
            print(f"{environment.name:24}{results.versions(environment)}")
        return 0
    found: dict[Cell, Result] = {}
    for environment in chosen:
        suites = tuple(suite for suite in environment.suites if not options.suite or suite in options.suite)
        found |= run_environment(environment, suites, Runner(options.cache, keep=options.keep), find_interpreter)
        record(found, options.results, options.page)
    print(f"Logs are in {options.cache / 'logs'}, tables in {options.page}")
    return exit_code(found, strict=options.strict or os.environ.get("CI", "").lower() == "true")


def run_environment(
    environment: Environment, suites: tuple[str, ...], runner: Runs, find: Callable[[str], Path | None]
) -> dict[Cell, Result]:
    """Run suites of an environment and print a line for each; suites that are not supported are left out."""
    suites = tuple(suite for suite in suites if (environment.name, suite) not in UNSUPPORTED)
    if not suites:
        return {}
    interpreter = find(environment.python)
    if interpreter is None:
        reason = f"no interpreter of Python {environment.python}"
        print(f"{environment.name}: not run: {reason}", flush=True)
        missing = Result(Verdict.NOT_RUN, reason, 0, 0, today(), results.versions(environment), "")
        return {(environment.name, suite): missing for suite in suites}
    done: dict[Cell, Result] = {}
    for suite, result in runner.run(environment, interpreter, suites):
        print(f"{environment.name} {suite}: {result.text()} ({result.passed} tests, {result.seconds} s)", flush=True)
        done[environment.name, suite] = result
    return done


def record(found: Mapping[Cell, Result], file: Path, page: Path) -> None:
    """Add results to those of earlier runs, and write the page; a cell that was not run keeps its earlier result."""
    known = results.read(file)
    kept = {
        cell: result
        for cell, result in found.items()
        if result.verdict is not Verdict.NOT_RUN or cell not in known or known[cell].versions != result.versions
    }
    results.write(file, known | kept)
    write_page(known | kept, page)


def write_page(known: Mapping[Cell, Result], page: Path) -> None:
    """Write the tables into the page, between their marks."""
    write_markdown(page, "matrix", results.sheets(environments(), known), above=COVERS)


def exit_code(found: Mapping[Cell, Result], *, strict: bool) -> int:
    """Return 1 if a cell failed or, with strict, was not run."""
    bad = {Verdict.NO, Verdict.NOT_RUN} if strict else {Verdict.NO}
    return int(any(result.verdict in bad for result in found.values()))


def _show_newer() -> int:
    for client, pinned in CLIENTS.items():
        missing, outside = newer.newer(pinned, newer.available(client), BELOW[client])
        print(f"{client} {pinned[-1]}: newer: {', '.join(missing) or 'none'}", end="")
        print(f"; not supported: {', '.join(outside)}" if outside else "")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tools.matrix", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="environment to run; repeatable")
    parser.add_argument("--suite", choices=list(SUITES), action="append", help="suite to run in it; repeatable")
    parser.add_argument("--list", action="store_true", help="list the environments and exit")
    parser.add_argument("--newer", action="store_true", help="list newer versions on the package index and exit")
    parser.add_argument("--table", action="store_true", help="write the tables from earlier results and exit")
    parser.add_argument("--strict", action="store_true", help="fail if a cell is not run; the default with CI=true")
    parser.add_argument("--keep", action="store_true", help="keep the virtual environments of cells that work")
    parser.add_argument("--cache", type=Path, default=ROOT / ".matrix", help="folder of environments and logs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of the results of all runs")
    parser.add_argument("--page", type=Path, default=PAGE, help="page with the tables")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
