"""The range strategy against Kafka's own, in the same run: `python -m benchmarks.range_bench`.

Times differ from machine to machine and hour to hour; the ratio of two medians taken one after the other is what
to look at.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import host_path
from benchmarks.groups import Shape
from benchmarks.java_peer import JavaPeer, NoJdkError
from rackassign.model import Group
from rackassign.scenario import write_group
from rackassign.strategies import plan_range

JAVA_TIMEOUT_S = 900.0
JAVA_HEAP = "4g"
"""Enough that the largest group is no test of the garbage collector."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    Args:
        rounds: Timed calls, of which the median counts.
        warmup: Calls of ours before them.
        java_warmup: Calls of Java's before them; a JVM compiles while it runs.
        java_start: Calls of Java's on the first group before anything is timed: thirty calls on a small group are
            over before the JVM's compiler is.
    """

    rounds: int
    warmup: int
    java_warmup: int
    java_start: int = 0


THOROUGH = Effort(rounds=15, warmup=3, java_warmup=30, java_start=500)
LONG_CALLS = Effort(rounds=5, warmup=3, java_warmup=3)
"""Where one call of Java's takes seconds; by then it is long compiled."""

LONG_FROM = 5_000_000
"""Subscriptions, members times topics, from which calls are long."""

QUICK = Effort(rounds=3, warmup=1, java_warmup=3, java_start=3)

SHAPES = (
    Shape(100, 5_000, 10, 1),
    Shape(1_000, 10_000, 100, 1),
    Shape(1_000, 50_000, 100, 1),
    Shape(1_000, 50_000, 10, 1),
    Shape(10_000, 50_000, 1_000, 1),
    Shape(1_000, 50_000, 100, 1, different_sizes=True),
    Shape(1_000, 50_000, 100, 1, subscriptions="five buckets"),
)
QUICK_SHAPES = (
    Shape(20, 200, 5, 1),
    Shape(20, 200, 10, 1, different_sizes=True),
    Shape(20, 200, 10, 1, subscriptions="five buckets"),
)
HOST_SHAPE = Shape(1_000, 50_000, 100, 2)
QUICK_HOST_SHAPE = Shape(20, 200, 10, 2)


class DifferentAnswersError(Exception):
    """The two did not decide the same, so their times compare nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table.

    Args:
        shape: The group.
        ours_ms: Median of `plan_range`, model in to model out, milliseconds.
        java_ms: Median of `RangeAssignor.assign`; None without a JDK.
        ratio: Java's by ours: above 1 ours is faster.
    """

    shape: Shape
    ours_ms: float
    java_ms: float | None
    ratio: float | None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.range_bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small groups, few rounds: does it still run?")
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args()
    effort = QUICK if options.quick else THOROUGH
    shapes = QUICK_SHAPES if options.quick else SHAPES
    # Shown on a terminal only, and gone when done.
    progress = Console(stderr=True)
    with ExitStack() as held, progress.status("starting Java") as status:
        java: JavaPeer | None = None
        missing = ""
        try:
            java = held.enter_context(JavaPeer(timeout_s=JAVA_TIMEOUT_S, heap=JAVA_HEAP))
        except NoJdkError as error:
            missing = str(error)
        if java is not None:
            for shape in _with_replicas(shapes[:1]):
                java.assign(write_group(shape.group()), warmup=effort.java_start)
        cells: list[Cell] = []
        for shape in _with_replicas(shapes):
            status.update(describe(shape))
            long = shape.members * shape.topics >= LONG_FROM
            cells.append(measure(shape, java, LONG_CALLS if long else effort))
        machine = _machine(java, missing)
    with progress.status("host path"):
        host_shape = QUICK_HOST_SHAPE if options.quick else HOST_SHAPE
        stages = host_path.measure(host_shape.group(), rounds=effort.rounds, warmup=effort.warmup)
    if options.json:
        result = {
            "machine": machine,
            "cells": [asdict(cell) for cell in cells],
            "host_path": {"shape": asdict(host_shape), "stages": [asdict(stage) for stage in stages]},
        }
        print(json.dumps(result, indent=1))
    else:
        _show(cells, machine, host_shape, stages)


def measure(shape: Shape, java: JavaPeer | None, effort: Effort) -> Cell:
    """Time both on one group, one after the other.

    Raises:
        DifferentAnswersError: They differ in some partition.
    """
    group = shape.group()
    ours = _time_ours(group, effort)
    if java is None:
        return Cell(shape, ours * 1e3, None, None)
    answer = java.assign(write_group(group), repeat=effort.rounds, warmup=effort.java_warmup)
    if answer.assignment != plan_range(group).assignment:
        raise DifferentAnswersError(describe(shape))
    theirs = median(answer.seconds)
    return Cell(shape, ours * 1e3, theirs * 1e3, theirs / ours)


def _time_ours(group: Group, effort: Effort) -> float:
    for _ in range(effort.warmup):
        plan_range(group)
    taken: list[float] = []
    for _ in range(effort.rounds):
        start = time.perf_counter()
        plan = plan_range(group)
        taken.append(time.perf_counter() - start)
        # Freed outside the time, as Java's garbage is.
        del plan
    return median(taken)


def _with_replicas(shapes: tuple[Shape, ...]) -> Iterator[Shape]:
    for shape in shapes:
        for replicas in (1, 2, 3):
            yield replace(shape, replicas=replicas)


def describe(shape: Shape) -> str:
    """Name a shape: members / partitions / topics, and what is special."""
    special = ["topics of different sizes"] * shape.different_sizes
    special += [shape.subscriptions] * (shape.subscriptions != "same")
    return ", ".join([f"{shape.members:,} / {sum(shape.sizes()):,} / {shape.topics:,}", *special])


def _machine(java: JavaPeer | None, missing: str) -> dict[str, str | int | float | None]:
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "java": java.java_version if java else None,
        "kafka": java.kafka_version if java else None,
        "missing": missing or None,
    }


def _show(
    cells: list[Cell],
    machine: dict[str, str | int | float | None],
    host_shape: Shape,
    stages: list[host_path.Stage],
) -> None:
    console = Console()
    against = f"Java {machine['java']}, Kafka {machine['kafka']}" if machine["java"] else machine["missing"]
    table = Table(
        title=f"range: Python {machine['python']} against {against}; {machine['cores']} cores", title_justify="left"
    )
    table.add_column("members / partitions / topics")
    for heading in ("replicas", "ours, ms", "Java, ms", "Java / ours"):
        table.add_column(heading, justify="right")
    for cell in cells:
        table.add_row(
            describe(cell.shape),
            str(cell.shape.replicas),
            f"{cell.ours_ms:.2f}",
            "-" if cell.java_ms is None else f"{cell.java_ms:.2f}",
            "-" if cell.ratio is None else f"{cell.ratio:.1f}",
        )
    console.print(table)
    path = Table(title=f"on a group's leader: {describe(host_shape)}", title_justify="left")
    path.add_column("stage")
    for heading in ("ms", "times the plan"):
        path.add_column(heading, justify="right")
    for stage in stages:
        path.add_row(stage.name, f"{stage.seconds * 1e3:.2f}", f"{stage.of_plan:.1f}")
    console.print(path)


if __name__ == "__main__":
    main()
