"""The table of `make coverage`."""

from __future__ import annotations

from tools.coverage_by_package import Covered, by_package, table


def summary(lines: int, lines_run: int, branches: int, branches_run: int) -> dict[str, object]:
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {"summary": dict(zip(names, (lines, lines_run, branches, branches_run), strict=True))}


REPORT = {
    "files": {
        "rackassign/wire/consumer_protocol.py": summary(30, 30, 8, 6),
        "rackassign/solver/placement/problem.py": summary(60, 45, 20, 10),
        "rackassign/solver/greedy.py": summary(40, 30, 0, 0),
        "rackassign/errors.py": summary(10, 5, 0, 0),
    }
}


def test_files_are_summed_up_by_package() -> None:
    sums = by_package(REPORT)
    assert list(sums) == ["rackassign", "rackassign/solver", "rackassign/wire", "total"]
    assert sums["rackassign/solver"] == Covered(100, 75, 20, 10)
    assert sums["total"] == Covered(140, 110, 28, 16)


def test_the_table_has_shares() -> None:
    rows = [line.split() for line in table(by_package(REPORT))]
    assert rows[0] == ["package", "lines", "executed", "branches", "executed"]
    assert rows[1] == ["rackassign", "10", "50.0", "%", "0", "-"]
    assert rows[3] == ["rackassign/wire", "30", "100.0", "%", "8", "75.0", "%"]
