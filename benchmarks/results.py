"""The measurement of a case, and whether it reaches its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.cases import GENERAL_RATIO, Case
from benchmarks.java_assignors import CAP_S, TOO_LONG, JavaTaken, WarmJava
from benchmarks.planner import Effort, measure
from benchmarks.quality import Quality
from benchmarks.tables import Sheet

HEADINGS = (
    "members / partitions / topics",
    "RF",
    "owners",
    "ours, ms",
    "Java, ms",
    "Java / ours",
    "ours: cross / moves",
    "Java: cross / moves",
    "MB",
)
UNEVEN = " (less even)"


class WrongAnswerError(Exception):
    """What one of the two decided is not what it should be, so their times compare nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table."""

    case: Case
    ours_s: float
    ours: Quality
    # Java's side; None without a JDK.
    java: JavaTaken | None
    megabytes: float | None
    # Java was not asked: a smaller group of the kind took it longer than we wait.
    java_skipped: bool = False

    @property
    def ratio(self) -> float | None:
        """Java's time by ours, or the least it can be if Java's was capped; above 1 ours is faster."""
        return None if self.java is None or self.java.seconds is None else self.java.seconds / self.ours_s

    @property
    def ratio_shown(self) -> str:
        """The ratio with what is known of it."""
        at_least = "> " if self.java is not None and self.java.capped else ""
        return "-" if self.ratio is None else f"{at_least}{self.ratio:,.1f}"

    def row(self) -> tuple[str, ...]:
        """Spell it out as the table shows it."""
        shape = self.case.shape
        balanced = ", each topic balanced" if self.case.balance == "topic" else ""
        theirs = None if self.java is None else self.java.quality
        uneven = UNEVEN if theirs is not None and theirs.imbalance > self.ours.imbalance else ""
        return (
            f"{shape}{balanced}",
            str(shape.replicas),
            shape.owners,
            f"{1e3 * self.ours_s:,.1f}",
            self._java_shown(),
            self.ratio_shown,
            f"{self.ours.cross:,} / {self.ours.moves:,}",
            "-" if theirs is None else f"{theirs.cross:,} / {theirs.moves:,}{uneven}",
            "-" if self.megabytes is None else f"{self.megabytes:,.0f}",
        )

    def _java_shown(self) -> str:
        if self.java is None:
            return "-"
        if self.java.seconds is None:
            return self.java.raised
        if self.java.capped:
            return f"(> {CAP_S:g} s)" if self.java_skipped else f"> {CAP_S:g} s"
        return f"{1e3 * self.java.seconds:,.1f}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a target was reached."""

    target: str
    measured: str
    # None if it could not be told.
    reached: bool | None

    def row(self) -> tuple[str, ...]:
        """Spell it out as the table shows it."""
        return self.target, self.measured, "-" if self.reached is None else "OK" if self.reached else "MISSED"


def run(case: Case, java: WarmJava | None, effort: Effort, *, skip_java: bool = False) -> Cell:
    """Measure both sides on one group, one after the other."""
    group = case.shape.group(case.plan)
    ours = measure(case, group, effort)
    plan = case.plan(group)
    quality = Quality.of(group, plan.target)
    if plan.moved != quality.moves:
        raise WrongAnswerError(f"{case}: {quality.moves} moves, and the plan says {plan.moved}")
    if skip_java and case.java_has_it:
        return Cell(case, ours.seconds, quality, TOO_LONG, ours.megabytes, java_skipped=True)
    theirs = None if java is None or not case.java_has_it else java.measure(case, group)
    if theirs is not None and theirs.quality is not None:
        if case.strategy == "range":
            if theirs.assignment != plan.assignment:
                raise WrongAnswerError(f"{case}: not what Java's assigns")
        elif theirs.quality.better_than(quality):
            raise WrongAnswerError(f"{case}: ours is {quality}, Java's {theirs.quality}")
    bare = None if theirs is None else replace(theirs, assignment=None)
    return Cell(case, ours.seconds, quality, bare, ours.megabytes)


def sheets(cells: Sequence[Cell]) -> list[Sheet]:
    """Return a table for each strategy."""
    strategies = dict.fromkeys(cell.case.strategy for cell in cells)
    return [Sheet(name, HEADINGS, [cell.row() for cell in cells if cell.case.strategy == name]) for name in strategies]


def verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    """Hold what was measured against the targets."""
    judged = [cell for cell in cells if cell.case.ratio is not None]
    general = [cell for cell in judged if cell.case.general_with_racks]
    made = [
        *_ratio("every cell of 5,000 partitions or more: faster than Java", judged, 1),
        *_ratio(f"Java's general builder with racks: {GENERAL_RATIO} times faster", general, GENERAL_RATIO),
    ]
    for cell in cells:
        made += _limit(cell.case, cell.case.seconds, cell.ours_s, 1e3, "ms")
        made += _limit(cell.case, cell.case.megabytes, cell.megabytes, 1, "MB")
    return made


def _ratio(target: str, cells: Sequence[Cell], least: float) -> Iterator[Verdict]:
    known = {cell: cell.ratio for cell in cells if cell.ratio is not None}
    if not cells:
        return
    if not known:
        yield Verdict(target, "no Java to hold it against", None)
        return
    missed = [cell for cell, ratio in known.items() if ratio <= least]
    worst = min(known, key=lambda cell: known[cell])
    yield Verdict(target, f"{len(known) - len(missed)} of {len(known)}; least {worst.ratio_shown}", not missed)
    for cell in missed:
        yield Verdict(f"{cell.case}: {least:g} times", cell.ratio_shown, reached=False)


def _limit(case: Case, limit: float | None, measured: float | None, scale: float, unit: str) -> Iterator[Verdict]:
    if limit is not None and measured is not None:
        target = f"{case}: under {limit * scale:,.0f} {unit}"
        yield Verdict(target, f"{measured * scale:,.0f} {unit}", measured < limit)
