"""Planning time beside that of another checkout, such as an older one: `python -m benchmarks.beside PATH`.

The cells with default options are planned by both, in turns, each in a process of its own that goes on for all calls.
Of each the least time counts, in seconds of the processor: what is above it is other programs' and the garbage
collector's. Both plan groups that this checkout makes; only `rackassign` is of the other one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING

from benchmarks.cases import NAMED
from benchmarks.tables import Sheet, show

if TYPE_CHECKING:
    from typing_extensions import Self

HERE = Path(__file__).parents[1]

LIMIT = 1.1
"""How many times as long as in the other checkout a plan may take."""

_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
import rackassign
sys.path[0] = sys.argv[2]
from benchmarks.beside import plan_on_request
plan_on_request(sys.argv[1])
"""


def plan_on_request(checkout: str) -> None:
    """Plan the case of each number in the input with the `rackassign` of a checkout, and print the seconds."""
    import rackassign  # noqa: PLC0415 - whichever was imported before this module

    if not str(rackassign.__file__).startswith(checkout):
        raise RuntimeError(f"{rackassign.__file__} is not that of {checkout}")
    made, group = -1, None
    for line in sys.stdin:
        number = int(line)
        case = NAMED[number]
        if group is None or number != made:
            made, group = number, case.shape.group(case.plan)
        begun = time.process_time()
        plan = case.plan(group)
        seconds = time.process_time() - begun
        del plan
        print(seconds, flush=True)


class Planner:
    """A process that plans with the `rackassign` of a checkout; to be used as a context manager."""

    def __init__(self, checkout: Path) -> None:
        command = [sys.executable, "-c", _PROCESS, str(checkout), str(HERE)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def seconds(self, number: int) -> float:
        """Return the time of one plan for a case."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(number, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("checkout", type=Path, help="folder of the other checkout, as made by git worktree add")
    parser.add_argument("--calls", type=int, default=25)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name has this in it")
    options = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = []
    with Planner(options.checkout.resolve()) as other, Planner(HERE) as this:
        for number, case in enumerate(NAMED):
            if options.only not in str(case):
                continue
            pairs: list[tuple[float, float]] = []
            for call in range(options.calls + 1):
                # Who comes first takes turns, too.
                taken = {planner: planner.seconds(number) for planner in ([other, this] if call % 2 else [this, other])}
                pairs.append((taken[other], taken[this]))
            # The first call of each makes the group, and is not as warm as the others.
            before, now = (min(column) for column in zip(*pairs[1:], strict=True))
            typical = median(mine / theirs for theirs, mine in pairs[1:])
            verdict = "OK" if now / before <= LIMIT else "MISSED"
            rows.append(
                (str(case), f"{1e3 * before:.1f}", f"{1e3 * now:.1f}", f"{now / before:.2f}", f"{typical:.2f}", verdict)
            )
    title = f"Beside {options.checkout}, at most {LIMIT} times as long: {options.calls} calls each, in turns"
    headings = ("case", "other: least, ms", "this: least, ms", "times", "median of pairs", "")
    show([Sheet(title, headings, rows)])


if __name__ == "__main__":
    main()
