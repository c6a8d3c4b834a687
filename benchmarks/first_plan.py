"""What the first plan of a process takes that the second does not: `python -m benchmarks.first_plan`.

Each round is a process of its own, with compiled modules. It plans twice for 10 members and 1,000 partitions, either as
it starts or with the modules of a plan loaded. In seconds of the processor, which depend less on other programs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.tables import Sheet, show

LIMIT = 2.0
"""How much longer than the second plan the first may take, once its modules are loaded."""

_PROCESS = """
import sys, time
from rackassign import RackAwareConsumer
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import Options, plan_cooperative
from rackassign.strategies import load

def resident_mb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024

rows = [Partition((p % 3, (p + 1) % 3), p % 3) for p in range(100)]
topics = {f"topic{i}": tuple(rows) for i in range(10)}
brokers = tuple(Broker(i, f"rack{i}") for i in range(3))
members = tuple(Member(f"m{i}", frozenset(topics), f"rack{i % 3}") for i in range(10))
group = Group(Topology(brokers, topics), members)
before_mb, seconds = resident_mb(), []
for step in [lambda: load("sticky")] * (sys.argv[1] == "loaded") + [lambda: plan_cooperative(group, Options())] * 2:
    begun = time.process_time()
    step()
    seconds.append(time.process_time() - begun)
print(resident_mb() - before_mb, *seconds)
"""


def taken(*, loaded: bool) -> tuple[float, ...]:
    """Return the resident megabytes that are added, and the milliseconds of each stage."""
    command = [sys.executable, "-c", _PROCESS, "loaded" if loaded else "cold"]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    added_mb, *seconds = map(float, run.stdout.split())
    return (added_mb, *(1e3 * each for each in seconds))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        taken(loaded=True)
        rounds = [(taken(loaded=False), taken(loaded=True)) for _ in range(options.rounds)]
    cold, loaded = ([median(column) for column in zip(*of, strict=True)] for of in zip(*rounds, strict=True))
    of_second = loaded[2] / loaded[3]
    verdict = f"at most {LIMIT:g}: {'OK' if of_second <= LIMIT else 'MISSED'}"
    table = [
        ("load", "-", f"{loaded[1]:.1f} ms"),
        ("first plan", f"{cold[1]:.1f} ms", f"{loaded[2]:.1f} ms"),
        ("second plan", f"{cold[2]:.1f} ms", f"{loaded[3]:.1f} ms"),
        ("first plan, times the second", f"{cold[1] / cold[2]:.1f}", f"{of_second:.2f}; {verdict}"),
        ("resident memory that is added", f"{cold[0]:.1f} MB", f"{loaded[0]:.1f} MB"),
    ]
    title = f"The first plan of a process, processor time: medians of {options.rounds} processes"
    show([Sheet(title, ("", "as it starts", "with its modules loaded"), table)])


if __name__ == "__main__":
    main()
