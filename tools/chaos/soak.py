"""`make soak`: ten minutes at constant load, one fault a minute; memory, threads and open files must stay flat.

Measured are the members, each a process of its own. None of them is killed: what is to be seen is what one process
keeps of all the faults it lives through.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median

from benchmarks.tables import Sheet, show
from rackassign.testing import LocalCluster
from tools.chaos.group import stage
from tools.chaos.history import journaled_traffic
from tools.chaos.schedule import MEMBERS, RACKS, TOPICS, Event, Kind

GROUP = "soak"
WARM_S = 60.0
"""What is loaded and cached in the first minute is no leak."""

LOOK_EVERY_S = 5.0
FAULT_S = 12.0
"""How long a fault lasts: longer than a session, and than a broker may be silent."""

GROWTH_MB = 8.0
"""What a member takes when it leads for the first time, the solver and its first plan, is 4 to 6 MB; a leak is more."""

FEW = 3
"""Files and threads that come and go with connections."""

_LIFE_S = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process holds: memory in MB, threads, open files."""

    at: float
    memory: float
    threads: int
    files: int


def sample(pid: int) -> Sample:
    """Read what the kernel says of a process."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return Sample(time.monotonic(), int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), files)


class Sampler(threading.Thread):
    """Samples processes, until it is stopped."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        super().__init__(name="sampler", daemon=True)
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}
        self._pids = pids
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            for name, pid in self._pids.items():
                self.samples[name].append(sample(pid))

    def stop(self) -> None:
        self._over.set()
        self.join()


def faults(minutes: int) -> list[Event]:
    """Return one fault a minute, each undone; no member is killed."""
    pairs = [
        (Kind.BROKER_KILL, Kind.BROKER_START, "1"),
        (Kind.MEMBER_STOP, Kind.MEMBER_WAKE, "a1"),
        (Kind.BROKER_PAUSE, Kind.BROKER_RESUME, "2"),
        (Kind.MEMBER_STOP, Kind.MEMBER_WAKE, "b2"),
        (Kind.BROKER_KILL, Kind.BROKER_START, "3"),
    ]
    events: list[Event] = []
    for minute in range(minutes):
        fault, undo, target = pairs[minute % len(pairs)]
        at = 60.0 * minute + 20.0
        events += [Event(at, fault, target), Event(at + FAULT_S, undo, target)]
        # And racks that change: a partition goes round.
        start = minute % 3
        moved = tuple(1 + (start + i) % 3 for i in range(2))
        events.append(Event(at + FAULT_S + 1.0, Kind.REPLICA_MOVE, "two", partition=0, replicas=moved))
    return events


def soak(minutes: int, directory: Path) -> dict[str, list[Sample]]:
    """Run a group for some minutes; return what was sampled of each member."""
    with (
        LocalCluster(RACKS) as cluster,
        stage(cluster, GROUP, directory, 60.0 * minutes + _LIFE_S) as on,
        journaled_traffic(cluster.bootstrap, list(TOPICS), on.journal),
    ):
        on.injector.play([Event(0.0, Kind.MEMBER_START, name) for name in MEMBERS])
        time.sleep(WARM_S)
        sampler = Sampler(on.processes.pids)
        sampler.start()
        begun = time.monotonic()
        on.injector.play(faults(minutes))
        time.sleep(max(0.0, begun + 60.0 * minutes - time.monotonic()))
        sampler.stop()
    return sampler.samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    with tempfile.TemporaryDirectory(prefix="rackassign-soak-") as directory:
        samples = soak(minutes, Path(directory))
    grown, rows = [], []
    for name, taken in samples.items():
        part = max(1, len(taken) // 5)
        memory, threads, files = (
            (median(map(of, taken[:part])), median(map(of, taken[-part:])))
            for of in map(attrgetter, ("memory", "threads", "files"))
        )
        rows.append((name, *(f"{first:.0f} to {last:.0f}" for first, last in (memory, threads, files))))
        if memory[1] > memory[0] + GROWTH_MB or threads[1] > threads[0] + FEW or files[1] > files[0] + FEW:
            grown.append(name)
    title = f"{minutes} minutes, {minutes} faults: medians of the first and of the last fifth"
    show([Sheet(title, ("member", "MB", "threads", "open files"), rows)])
    print(f"grown: {', '.join(grown)}" if grown else "nothing has grown")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
