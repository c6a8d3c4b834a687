"""Planning time beside that of another checkout, such as an older one: `python -m benchmarks.beside PATH`.

The cells with default options are measured in both, in turns, each round in a process of its own. In seconds of the
processor, and round by round, because the machine's speed varies by more than what is looked for. Both plan groups
that this checkout makes; only `rackassign` is of the other one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.cases import NAMED, Case
from benchmarks.tables import Sheet, show

HERE = Path(__file__).parents[1]

LIMIT = 1.1
"""How many times as long as in the other checkout a plan may take."""

_CALLS = 5

_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
import rackassign
sys.path[0] = sys.argv[2]
from benchmarks.beside import report
report(sys.argv[1], sys.argv[3:])
"""


def report(checkout: str, names: Sequence[str]) -> None:
    """Print the seconds of each case, planned by the `rackassign` of a checkout, as JSON."""
    import rackassign  # noqa: PLC0415 - whichever was imported before this module

    if not str(rackassign.__file__).startswith(checkout):
        raise RuntimeError(f"{rackassign.__file__} is not that of {checkout}")
    print(json.dumps([_seconds(case) for case in NAMED if str(case) in names]))


def _seconds(case: Case) -> float:
    """Return the least time of some calls: what is above it is other programs' and the garbage collector's."""
    group = case.shape.group(case.plan)
    taken: list[float] = []
    for _ in range(_CALLS + 1):
        begun = time.process_time()
        made = case.plan(group)
        taken.append(time.process_time() - begun)
        del made
    return min(taken[1:])


def measured(checkout: Path, cases: Sequence[Case]) -> list[float]:
    """Return the seconds of each case in a new process."""
    command = [sys.executable, "-c", _PROCESS, str(checkout), str(HERE), *map(str, cases)]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=checkout)
    seconds: list[float] = json.loads(run.stdout)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of the other checkout, as made by git worktree add")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name has this in it")
    options = parser.parse_args(arguments)
    other = options.checkout.resolve()
    cases = [case for case in NAMED if options.only in str(case)]
    rounds: list[dict[Path, list[float]]] = []
    for number in range(options.rounds):
        # Who comes first in a round takes turns, too.
        order = [other, HERE][:: 1 if number % 2 else -1]
        rounds.append({checkout: measured(checkout, cases) for checkout in order})
    rows: list[tuple[str, ...]] = []
    for i, case in enumerate(cases):
        before, now = (median(of[checkout][i] for of in rounds) for checkout in (other, HERE))
        ratios = [of[HERE][i] / of[other][i] for of in rounds]
        verdict = "OK" if median(ratios) <= LIMIT else "MISSED"
        between = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append((str(case), f"{1e3 * before:.1f}", f"{1e3 * now:.1f}", f"{median(ratios):.2f}", between, verdict))
    title = f"Beside {other}, at most {LIMIT} times as long: {options.rounds} rounds"
    show([Sheet(title, ("case", "other, ms", "this, ms", "times", "range", ""), rows)])


if __name__ == "__main__":
    main()
