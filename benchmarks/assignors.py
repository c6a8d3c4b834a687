"""Planning time and quality beside Kafka's own assignors, in one run: `python -m benchmarks.assignors`.

Times differ between machines and hours. Compare the ratio of two medians that were measured one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks import leader_join
from benchmarks.cases import BEYOND, BOUNDED, NAMED, OPTIONS, QUICK, Case, Shape, grid
from benchmarks.java_assignors import WarmJava
from benchmarks.planner import BRIEF, THOROUGH, Effort
from benchmarks.planner import QUICK as QUICK_EFFORT
from benchmarks.results import Cell, Verdict, run, sheets, verdicts
from benchmarks.tables import Sheet, show, write_markdown
from tests.helpers.java.assignor_peer import NoJdkError

JAVA_THOROUGH = Effort(rounds=15, warmup=30, budget_s=20)
JAVA_BRIEF = Effort(rounds=5, warmup=10, budget_s=10)

LEADER_CASES = (
    Case("range", Shape(1_000, 50_000, 100, 2)),
    Case("cooperative-sticky", Shape(1_000, 50_000, 100, 2)),
    Case("cooperative-sticky", Shape(1_000, 50_000, 100, 2, owners="all but one")),
)
QUICK_LEADER_CASES = (
    Case("range", Shape(20, 200, 10, 2)),
    Case("cooperative-sticky", Shape(20, 200, 10, 2, owners="all but one")),
)


@dataclass(frozen=True, slots=True)
class Amount:
    """What to measure, and how long."""

    cases: Sequence[Case]
    leader: Sequence[Case] = LEADER_CASES
    ours: Effort = THOROUGH
    java: Effort = JAVA_THOROUGH
    warm_up: bool = True
    skip: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assignors", description=__doc__)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--full", action="store_true", help="the whole grid of Kafka's benchmark: hours")
    amount.add_argument("--quick", action="store_true", help="small groups, few rounds: does it still run?")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name has this in it")
    parser.add_argument("--no-java", action="store_true", help="our side alone")
    parser.add_argument("--json", metavar="FILE", type=Path, help="for machines; written after every cell")
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="the document to write the tables into, between its marks"
    )
    options = parser.parse_args()
    if options.full:
        amount_ = Amount((*grid(), *BEYOND, *BOUNDED), ours=BRIEF, java=JAVA_BRIEF, skip=True)
    elif options.quick:
        amount_ = Amount(QUICK, QUICK_LEADER_CASES, QUICK_EFFORT, QUICK_EFFORT, warm_up=False)
    else:
        amount_ = Amount((*NAMED, *OPTIONS, *BEYOND, *BOUNDED))
    cases = [case for case in amount_.cases if options.only in str(case)]
    leader = [case for case in amount_.leader if options.only in str(case)]
    Run(replace(amount_, cases=cases, leader=leader), java=not options.no_java, json_file=options.json).go(
        options.markdown
    )


class Run:
    """One run: cells, and what they are to be seen beside."""

    def __init__(self, amount: Amount, *, java: bool, json_file: Path | None) -> None:
        # `java`: whether to ask Java, if there is a JDK.
        self._amount = amount
        self._with_java = java
        self._json_file = json_file
        self._machine: dict[str, str | int | float | None] = {}
        self._cells: list[Cell] = []
        self._ways: dict[Case, list[leader_join.Stage]] = {}
        self._not_planned: list[Verdict] = []

    def go(self, markdown: Path | None) -> None:
        """Measure all of it and show it."""
        # Shown on a terminal only, and gone when done.
        progress = Console(stderr=True)
        with ExitStack() as held, progress.status("") as status:
            java, missing = None, "not asked"
            if self._with_java:
                try:
                    made = WarmJava(effort=self._amount.java, warm_up=self._amount.warm_up, said=status.update)
                    java, missing = held.enter_context(made), ""
                except NoJdkError as error:
                    missing = str(error)
            self._machine = _machine(java, missing)
            for case in self._amount.cases:
                status.update(f"ours: {case}")
                skip = java is not None and self._amount.skip and _hopeless(case, self._cells)
                self._cells.append(run(case, java, self._amount.ours, skip_java=skip))
                self._write_json()
            for case in self._amount.leader:
                status.update(f"from bytes to bytes: {case}")
                try:
                    self._ways[case] = leader_join.measure(case, rounds=self._amount.ours.rounds, warmup=2)
                except leader_join.NotPlannedError as error:
                    # All that has been measured before is still to be shown.
                    self._not_planned.append(Verdict(str(case), str(error), reached=False))
        self._write_json()
        show(self._sheets(self._cells, self._verdicts()))
        if markdown is not None:
            # The group of a running application, which a member joins, and what Java can be compared with.
            cells = [cell for cell in self._cells if cell.java is not None or cell.case.shape.owners == "all but one"]
            # Of those that Java is not asked for, one number of replicas is enough.
            cells = [cell for cell in cells if cell.case not in BOUNDED or cell.case.shape.replicas > 1]
            missed = [verdict for verdict in self._verdicts() if not verdict.reached]
            # Of a leader, the last group is the one that costs most.
            self._ways = dict([*self._ways.items()][-1:])
            write_markdown(markdown, "assignors", self._sheets(cells, missed))

    def _verdicts(self) -> list[Verdict]:
        ways = [verdict for case, stages in self._ways.items() for verdict in leader_join.verdicts(case, stages)]
        return [*verdicts(self._cells), *ways, *self._not_planned]

    def _write_json(self) -> None:
        if self._json_file is None:
            return
        result = {
            "machine": self._machine,
            "cells": [asdict(cell) | {"name": str(cell.case), "ratio": cell.ratio} for cell in self._cells],
            "host_path": [
                {"name": str(case), "stages": [asdict(stage) for stage in stages]}
                for case, stages in self._ways.items()
            ],
            "targets": [asdict(verdict) for verdict in self._verdicts()],
        }
        self._json_file.parent.mkdir(parents=True, exist_ok=True)
        self._json_file.write_text(json.dumps(result, indent=1), encoding="utf-8")

    def _sheets(self, cells: Sequence[Cell], judged: Sequence[Verdict]) -> list[Sheet]:
        machine = self._machine
        against = f"Java {machine['java']}, Kafka {machine['kafka']}" if machine["java"] else machine["missing"]
        about = f"Python {machine['python']} against {against}; {machine['cores']} cores, load {machine['load']}"
        made = [replace(sheet, title=f"{sheet.title}: {about}") for sheet in sheets(cells)]
        made += [leader_join.sheet(case, stages) for case, stages in self._ways.items()]
        reached = [verdict.reached for verdict in self._verdicts()]
        title = f"Targets: {reached.count(True)} of {len(reached)} are reached"
        return [*made, Sheet(title, ("target", "measured", ""), [verdict.row() for verdict in judged])]


def _hopeless(case: Case, cells: Iterable[Cell]) -> bool:
    """Whether Java has been over the cap with no more members and partitions of the same kind."""

    def kind(of: Case) -> Case:
        return replace(of, shape=replace(of.shape, members=0, partitions=0))

    return any(
        cell.java is not None
        and cell.java.capped
        and kind(cell.case) == kind(case)
        and cell.case.shape.members <= case.shape.members
        and cell.case.shape.partitions <= case.shape.partitions
        for cell in cells
    )


def _machine(java: WarmJava | None, missing: str) -> dict[str, str | int | float | None]:
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "java": java.java_version if java else None,
        "kafka": java.kafka_version if java else None,
        "missing": missing or None,
    }


if __name__ == "__main__":
    main()
