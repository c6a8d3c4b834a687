"""`make soak`: ten minutes at constant load, one fault a minute; memory, threads and open files must stay flat.

Measured are the members, each a process of its own. None of them is killed: what is to be seen is what one process
keeps of all the faults it lives through.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from statistics import median

from benchmarks.tables import Sheet, show
from rackassign.testing import LocalCluster
from tools.chaos.group import stage
from tools.chaos.history import Held, History, journaled_traffic, read_history
from tools.chaos.schedule import MEMBERS, RACKS, TOPICS, Event, Kind

WARM_S = 60.0
"""What is loaded and cached in the first minute is no leak."""

FAULT_S = 12.0
"""How long a fault lasts: longer than a session, and than a broker may be silent."""

GROWTH_MB = 8.0
"""What a member takes when it leads for the first time, the solver and its first plan, is 4 to 6 MB; a leak is more."""

FEW = 3
"""Files and threads that come and go with connections."""


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


def soak(minutes: int, directory: Path) -> History:
    """Run a group for some minutes."""
    with (
        LocalCluster(RACKS) as cluster,
        stage(cluster, directory) as on,
        journaled_traffic(cluster.bootstrap, list(TOPICS), on.journal),
    ):
        on.play([Event(0.0, Kind.MEMBER_START, name) for name in MEMBERS])
        time.sleep(WARM_S)
        begun = time.monotonic()
        on.play(faults(minutes))
        time.sleep(max(0.0, begun + 60.0 * minutes - time.monotonic()))
    return read_history(directory)


def medians(history: History) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield members with the medians of their memory, threads and files: of the first and of the last fifth."""
    for name, notes in history.members.items():
        every = [note for note in notes if isinstance(note, Held)]
        warm = [held for held in every if held.at >= every[0].at + WARM_S]
        part = max(1, len(warm) // 5)
        yield (
            name,
            [
                (median(map(of, warm[:part])), median(map(of, warm[-part:])))
                for of in map(attrgetter, ("memory", "threads", "files"))
            ],
        )


def grown(history: History) -> Iterator[str]:
    """Members hold as much in the end as in the beginning."""
    for name, pairs in medians(history):
        if any(last > first + more for (first, last), more in zip(pairs, (GROWTH_MB, FEW, FEW), strict=True)):
            yield name


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    with tempfile.TemporaryDirectory(prefix="rackassign-soak-") as directory:
        history = soak(minutes, Path(directory))
    rows = [(name, *(f"{first:.0f} to {last:.0f}" for first, last in pairs)) for name, pairs in medians(history)]
    title = f"{minutes} minutes, {minutes} faults: medians of the first and of the last fifth"
    show([Sheet(title, ("member", "MB", "threads", "open files"), rows)])
    names = list(grown(history))
    print(f"grown: {', '.join(names)}" if names else "nothing has grown")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
