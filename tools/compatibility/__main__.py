"""Runs the checks on a cluster of each version, and writes what works into the documentation."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.tables import write_between
from rackassign.testing import VERSIONS, LocalCluster
from rackassign.testing._broker_config import resolve_version
from rackassign.testing.spark import session

from .checks import CHECKS, Cell, Check, Place

COVERS = """\
This page covers versions of Kafka's brokers. [Clients and Python versions](clients.md) covers versions of Python and of
the client libraries.
"""
"""What the page has above its tables."""


DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"


def last_patches() -> list[str]:
    """Return the last patch release of each minor version."""
    return list(dict.fromkeys(resolve_version(version.rpartition(".")[0]) for version in VERSIONS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; the exit code is 1 if a check failed for another reason than a missing feature of Kafka."""
    parser = argparse.ArgumentParser(prog="python -m tools.compatibility", description=__doc__)
    parser.add_argument(
        "--kafka-version", nargs="*", default=last_patches(), help="versions; the last patches if left out"
    )
    parser.add_argument("--check", nargs="*", choices=[check.name for check in CHECKS], help="checks; all if left out")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}, which needs all checks")
    chosen = parser.parse_args(arguments)
    if chosen.write and chosen.check:
        parser.error("--write needs all checks")
    checks = [check for check in CHECKS if not chosen.check or check.name in chosen.check]
    # What kafka-python logs about brokers that stop is not of interest here.
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    results: dict[str, Mapping[str, Cell]] = {}
    with ExitStack() as opened:
        # One session for all versions, from the first check that needs it.
        spark = cache(lambda: opened.enter_context(session("local[2]")))
        for version in chosen.kafka_version:
            results[resolve_version(version)] = checked(version, checks, spark)
    if chosen.write:
        write_between(DOCUMENT, "compatibility", markdown(checks, results))
    return int(any(cell.is_defect for cells in results.values() for cell in cells.values()))


def checked(version: str, checks: Sequence[Check], spark: Callable[[], Any]) -> dict[str, Cell]:
    """Run checks on a cluster of a version and show each result."""
    found = {}
    with LocalCluster(["a", "b", "c"], kafka_version=version) as cluster:
        for check in checks:
            begun = time.monotonic()
            found[check.name] = cell = check.result(lambda name, home: Place(cluster, name, home, spark))
            took = time.monotonic() - begun
            sys.stdout.write(f"{version} {check.name}: {'yes' if cell.works else 'no'}, {cell.reason} ({took:.1f} s)\n")
            sys.stdout.flush()
    return found


def markdown(checks: Sequence[Check], results: Mapping[str, Mapping[str, Cell]]) -> str:
    """Return the table of all results, with what the page covers above it and the reasons below it."""
    versions = list(results)
    rows = [["feature", *versions], ["---", *["---"] * len(versions)]]
    rows += [[c.feature, *("yes" if results[v][c.name].works else "no" for v in versions)] for c in checks]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    reasons = "\n".join(
        f"| {check.feature} | {span} | {'yes' if cell.works else 'no'} | {_cell_text(cell.reason)} |"
        for check in checks
        for span, cell in _spans(versions, [results[version][check.name] for version in versions])
    )
    headings = "| feature | Kafka | works | observed |\n| --- | --- | --- | --- |"
    return f"{COVERS}\n{table}\n\n## Reasons\n\n{headings}\n{reasons}\n"


def _spans(versions: Sequence[str], cells: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Return adjacent versions with equal results as one entry."""
    spans = []
    for cell, entries in groupby(zip(versions, cells, strict=True), key=lambda entry: entry[1]):
        names = [version for version, _ in entries]
        spans.append((names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}", cell))
    return spans


def _cell_text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
