"""Members with state, and at random: they are killed, paused and started, and brokers restarted.

python -m tools.stateful_chaos [--seeds 10] [--first 1] [--steps 12]

Whatever happens: once all are up, each partition is run by one and kept by one, and the state is that of all that was
written, each record once.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.stateful_group import SIX, SPREAD, Fleet

KINDS = ("kill", "start", "pause", "resume", "restart")
RACKS = ("a", "b", "c")
TIMEOUT_S = 180.0
_MOST_WAIT_S = 5.0


class Schedule:
    """What befalls a fleet; the same for the same seed, but for when exactly.

    Args:
        fleet: Its members, some of which run.
        cluster: Its brokers.
        seed: Of the dice.
    """

    def __init__(self, fleet: Fleet, cluster: Cluster, seed: int) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._paused: dict[str, subprocess.Popen[bytes]] = {}
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        """Apply a random event, if possible, and write some records."""
        kind, name = self._dice.choice(KINDS), self._dice.choice(SIX)
        self.done[kind] += self._happens(kind, name)
        self._fleet.write(self._dice.randrange(200))
        time.sleep(self._dice.random() * _MOST_WAIT_S)

    def _happens(self, kind: str, name: str) -> bool:
        """Apply an event if possible; return whether it was applied."""
        running = self._fleet.running
        lives = name in running and len(running) > 1
        if kind == "kill" and lives:
            self._fleet.kill(name)
        elif kind == "pause" and lives:
            self._paused[name] = running.pop(name)
            self._paused[name].send_signal(signal.SIGSTOP)
        elif kind == "resume" and name in self._paused:
            self._resume(name)
        elif kind == "start" and name not in running and name not in self._paused:
            self._fleet.start(name)
        elif kind == "restart":
            broker = self._dice.choice(self._cluster.brokers).id
            self._cluster.stop(broker)
            time.sleep(self._dice.random() * _MOST_WAIT_S / 2)
            self._cluster.start(broker)
            self._cluster.wait_ready()
        else:
            return False
        return True

    def all_up(self) -> None:
        """Start all members that are not running."""
        self.resume_all()
        for name in SIX:
            if name not in self._fleet.running:
                self._fleet.start(name)

    def resume_all(self) -> None:
        """Resume all paused members."""
        for name in list(self._paused):
            self._resume(name)

    def _resume(self, name: str) -> None:
        process = self._paused.pop(name)
        process.send_signal(signal.SIGCONT)
        self._fleet.running[name] = process


def play(cluster: Cluster, topic: str, seed: int, steps: int, folder: Path) -> Counter[str]:
    """Play a schedule, and check what comes of it; return what happened how often."""
    fleet = Fleet(cluster.bootstrap, f"group-{topic}", topic, folder, 1)
    schedule = Schedule(fleet, cluster, seed)
    try:
        for name in SIX[:4]:
            fleet.start(name)
        for _ in range(steps):
            schedule.step()
        schedule.all_up()
        fleet.write(100)
        wait_until(lambda: fleet.settled(1), "six members with their copies", timeout_s=TIMEOUT_S)
        fleet.counts_right(TIMEOUT_S)
        wait_until(lambda: fleet.settled(1), "all as it should be after that", timeout_s=TIMEOUT_S)
        fleet.end()
    finally:
        # Who is paused would not end.
        schedule.resume_all()
        fleet.close()
    return schedule.done


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.stateful_chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many schedules (default: 10)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--steps", type=int, default=12, help="of each (default: 12)")
    chosen = parser.parse_args(arguments)
    with LocalCluster(list(RACKS)) as cluster:
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            topic = f"input-{seed}"
            create_topic(cluster.bootstrap, topic, SPREAD)
            with tempfile.TemporaryDirectory() as folder:
                done = play(cluster, topic, seed, chosen.steps, Path(folder))
            print(f"seed {seed}: {', '.join(f'{kind} {done[kind]}' for kind in KINDS)}: each record once", flush=True)


if __name__ == "__main__":
    main()
