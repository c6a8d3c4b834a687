"""Results of checks, and the document that shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rackassign.testing import LocalCluster
from rackassign.testing._topics import create_topic

BEGIN, END = "<!-- begin compatibility -->\n", "<!-- end compatibility -->\n"

COVERS = """\
This page covers versions of Kafka's brokers. [Clients and Python versions](clients.md) covers versions of Python and of
the client libraries.
"""
"""What the page has above its tables."""


class NotOnThisVersionError(Exception):
    """What a check is about does not exist in a version of Kafka; the message is the reason in one line."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Result of one check on one version.

    Args:
        works: Whether the feature works.
        reason: What was observed, or why it does not work, in one line.
        is_defect: Whether it does not work although Kafka has what it needs.
    """

    works: bool
    reason: str
    is_defect: bool = False


class Place:
    """Where a check runs: a cluster with the racks a, b and c, and names and files of its own.

    Args:
        cluster: The cluster, with one broker in each rack.
        check: Name of the check.
        home: Directory for files of the check.
        open_spark: Return a Spark session, which is created at the first call.
    """

    def __init__(self, cluster: LocalCluster, check: str, home: Path, open_spark: Callable[[], Any]) -> None:
        self.cluster = cluster
        self.home = home
        self.spark = open_spark
        self._check = check
        self._topics = 0

    @property
    def group(self) -> str:
        """Name of the check's group."""
        return f"{self._check}-group"

    def topic(self, replicas: Sequence[Sequence[int]]) -> str:
        """Create a topic and return its name."""
        self._topics += 1
        name = f"{self._check}-{self._topics}"
        create_topic(self.cluster.bootstrap, name, replicas)
        return name


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one feature.

    Args:
        name: Short name for the command line.
        feature: What the document calls it.
        run: Returns what was observed. It raises `NotOnThisVersionError` if the version has no such feature; any other
            error means that the feature does not work.
    """

    name: str
    feature: str
    run: Callable[[Place], str]


def result(check: Check, place: AbstractContextManager[Place]) -> Cell:
    """Run a check and return its result; errors of any kind are results too."""
    try:
        with place as opened:
            return Cell(works=True, reason=check.run(opened))
    except NotOnThisVersionError as missing:
        return Cell(works=False, reason=str(missing))
    except Exception as error:  # noqa: BLE001 - a defect in one check must not hide the others
        text = " ".join(str(error).split())[:300] or "no message"
        return Cell(works=False, reason=f"{type(error).__name__}: {text}", is_defect=True)


Results = Mapping[str, Mapping[str, Cell]]
"""Cells by version and by name of the check."""


def markdown(checks: Sequence[Check], results: Results) -> str:
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


def write(file: Path, text: str) -> None:
    """Put the text between the marks of a document.

    Raises:
        ValueError: The document has no marks.
    """
    document = file.read_text("utf-8")
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{file}: the marks {BEGIN.strip()} and {END.strip()} are missing")
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")


def _spans(versions: Sequence[str], cells: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Return adjacent versions with equal results as one entry."""
    spans = []
    for cell, entries in groupby(zip(versions, cells, strict=True), key=lambda entry: entry[1]):
        names = [version for version, _ in entries]
        spans.append((names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}", cell))
    return spans


def _cell_text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
