"""Time of rackassign's strategies, and the peak memory of large groups.

A large group is measured in a process of its own, `python -m benchmarks.planner CASE`: its peak is that of the group
and the plan.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.cases import Case, Shape
from rackassign.model import Group, Plan

STATUS = Path("/proc/self/status")


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    # Timed calls at most, of which the median counts.
    rounds: int
    # Calls before them at most.
    warmup: int
    # After about so much time there are no more calls; but always one that counts.
    budget_s: float

    def calls(self, seconds: float) -> tuple[int, int]:
        """Return how many calls of so many seconds to make: to warm up, and to time."""
        fit = max(1, int(self.budget_s / max(seconds, 1e-6)))
        return min(self.warmup, max(1, fit // 3)), min(self.rounds, fit)


THOROUGH = Effort(rounds=15, warmup=3, budget_s=15)
BRIEF = Effort(rounds=5, warmup=1, budget_s=5)
"""For a grid of a thousand cells."""

QUICK = Effort(rounds=3, warmup=1, budget_s=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """What our side of a case took."""

    seconds: float
    # Peak of the process that did nothing else; None if it was not alone.
    megabytes: float | None = None


def measure(case: Case, group: Group, effort: Effort) -> Taken:
    """Time our strategy; `group` is the case's group where it has been made already."""
    if case.large:
        return _measure_alone(case, effort)
    return Taken(timed(case.plan, group, effort))


def timed(plan: Callable[[Group], Plan], group: Group, effort: Effort) -> float:
    """Return the median time of a plan, in seconds."""

    def once() -> float:
        start = time.perf_counter()
        made = plan(group)
        took = time.perf_counter() - start
        # Freed outside the time, as Java's garbage is.
        del made
        return took

    warmup, rounds = effort.calls(once())
    for _ in range(warmup - 1):
        once()
    return median(once() for _ in range(rounds))


def _measure_alone(case: Case, effort: Effort) -> Taken:
    request = json.dumps({"case": asdict(case), "effort": asdict(effort)})
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.planner", request], stdout=subprocess.PIPE, text=True, check=True
    )
    return Taken(**json.loads(ran.stdout))


def _peak_megabytes() -> float:
    if STATUS.exists():
        # On Linux `ru_maxrss` starts from what the parent had when this process was forked.
        lines = dict(line.split(":", 1) for line in STATUS.read_text(encoding="utf-8").splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> None:
    request = json.loads(sys.argv[1])
    described = request["case"]
    case = Case(**(described | {"shape": Shape(**described["shape"])}))
    seconds = timed(case.plan, case.shape.group(case.plan), Effort(**request["effort"]))
    print(json.dumps(asdict(Taken(seconds, _peak_megabytes()))))


if __name__ == "__main__":
    main()
