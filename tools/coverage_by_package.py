"""Print a table by package of what the unit tests execute, from the JSON report of coverage.py.

`make coverage` runs it. No figure fails: a line that is executed is not yet a line that is tested, which is the subject
of `make mutants`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Covered:
    """How much of a package is executed.

    Args:
        lines: Statements.
        lines_run: Statements that are executed.
        branches: Jumps from a condition, two for most.
        branches_run: Jumps that are taken.
    """

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def __add__(self, other: Covered) -> Covered:
        return Covered(
            self.lines + other.lines,
            self.lines_run + other.lines_run,
            self.branches + other.branches,
            self.branches_run + other.branches_run,
        )

    @classmethod
    def of(cls, summary: Mapping[str, Json]) -> Covered:
        """Read a summary of coverage.py."""
        names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
        return cls(*(summary[name] for name in names))


def by_package(report: Mapping[str, Json]) -> dict[str, Covered]:
    """Return the sum of each package, and of the modules outside of one; the last entry is the sum of all.

    Args:
        report: As `coverage json` writes it with branches.
    """
    sums: defaultdict[str, Covered] = defaultdict(Covered)
    for file, found in sorted(report["files"].items()):
        parts = Path(file).parts
        package = f"{parts[0]}/{parts[1]}" if len(parts) > 2 else parts[0]
        sums[package] += Covered.of(found["summary"])
    return {**dict(sorted(sums.items())), "total": sum(sums.values(), Covered())}


def table(sums: Mapping[str, Covered]) -> list[str]:
    """Return the lines of the table."""
    lines = [f"{'package':<28}{'lines':>8}{'executed':>10}{'branches':>10}{'executed':>10}"]
    for package, of in sums.items():
        shares = _share(of.lines_run, of.lines), _share(of.branches_run, of.branches)
        lines.append(f"{package:<28}{of.lines:>8}{shares[0]:>10}{of.branches:>10}{shares[1]:>10}")
    return lines


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def main(file: Path) -> None:
    """Print the table of a report."""
    print("\n".join(table(by_package(json.loads(file.read_text("utf-8"))))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
