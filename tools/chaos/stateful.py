"""Members with state, and at random: members, brokers and disks fail, and the input grows.

python -m tools.chaos.stateful [--seeds 10] [--first 1] [--steps 24] [--kinds kill start damage ..]

=========== ============================================================================================================
kill        SIGKILL of a member
stop        SIGTERM: it leaves the group and closes its files
start       one that does not run starts, with the files it left
pause       SIGSTOP, until `resume`
freeze      SIGSTOP for longer than the session timeout, then SIGCONT: a former owner wakes
restart     a broker stops and starts
damage      random bytes of pages of state files are overwritten: of a member that runs, or is stopped, or starts again
damage-log  the same in the logs that SQLite keeps beside its files
fill        the disk of a member is full, until `free`, while records are written
grow        partitions are added to the input
=========== ============================================================================================================

Whatever happens: once all are up, each partition is run by one and kept by one, and the state and its copy are that of
all that was written, each record once. The state of a partition is larger than what SQLite keeps in memory, so that
damage is met by members that run as well.

Full disks are file systems in memory, mounted in a user namespace without any permission. Where Linux is set up to
forbid that, or on another system, `fill` and `free` are left out with a message.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.consumers import EXPIRING
from tests.helpers.kafka.state_disks import Disk, can_mount, damage_page, in_namespace
from tests.helpers.kafka.stateful_group import PARTITIONS, SIX, SPREAD, Fleet
from tests.helpers.machine_speed import scaled_s
from tools.chaos.seeds import play_seeds, seed_parser

DISKS = ("fill", "free")
RACKS = ("a", "b", "c")
TIMEOUT_S = 600.0
SESSION_S = EXPIRING["session_timeout_ms"] / 1000
_MOST_WAIT_S = 4.0
_FREEZE_S = tuple(SESSION_S + scaled_s(seconds) for seconds in (1.0, 6.0))
"""Longer than the session timeout of members."""
_MOST_PARTITIONS = PARTITIONS + 6
_DISK_BYTES = 512 << 20
_FIRST_RECORDS = 1500
_WORDS = tuple(f"word-{number}" for number in range(400))
_VALUE_BYTES = 6000
"""With 400 words 2.4 MB for each partition, of which SQLite keeps 2 MB in memory."""
_DAMAGED_FILES = 4
_DAMAGED_PAGES = 3
_RECORDS_WHILE_FULL = 400
_DRAWS = 50
_ASIDE = "it is renamed to"
_WAITS = "waits until its local file can be used again"


class Schedule:
    """What befalls a fleet; the same for the same seed, but for when exactly.

    Args:
        fleet: Its members, some of which run.
        cluster: Its brokers.
        topic: Its input.
        seed: Of the dice.
        kinds: What may happen.
        disks: The disks of the members that have one.
        done: What has happened how often is added to it.
    """

    def __init__(
        self,
        fleet: Fleet,
        cluster: Cluster,
        topic: str,
        seed: int,
        kinds: Sequence[str],
        disks: Mapping[str, Disk],
        done: Counter[str],
    ) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._topic = topic
        self._dice = random.Random(seed)
        self._kinds = kinds
        self._disks = disks
        self._paused: dict[str, subprocess.Popen[bytes]] = {}
        self.done = done

    def step(self) -> None:
        """Apply a random event that is possible now, and write some records."""
        for _ in range(_DRAWS):
            kind, name = self._dice.choice(self._kinds), self._dice.choice(SIX)
            if KINDS[kind](self, name):
                self.done[kind] += 1
                print(f"  {time.strftime('%H:%M:%S')} {kind} {name}", file=sys.stderr, flush=True)
                break
        self._fleet.write(self._dice.randrange(200))
        time.sleep(self._dice.random() * _MOST_WAIT_S)

    def _may_go(self, name: str) -> bool:
        """Return whether a member runs and is not the last one."""
        return name in self._fleet.running and len(self._fleet.running) > 1

    def _kill(self, name: str) -> bool:
        if not self._may_go(name):
            return False
        self._fleet.kill(name)
        return True

    def _stop(self, name: str) -> bool:
        # One that has not written anything may not have its handler of SIGTERM yet.
        if not self._may_go(name) or name not in self._fleet.now():
            return False
        self._fleet.stop(name)
        return True

    def _start(self, name: str) -> bool:
        if name in self._fleet.running or name in self._paused:
            return False
        self._fleet.start(name)
        return True

    def _pause(self, name: str) -> bool:
        if not self._may_go(name):
            return False
        self._paused[name] = self._fleet.running.pop(name)
        self._paused[name].send_signal(signal.SIGSTOP)
        return True

    def _resume(self, name: str) -> bool:
        if name not in self._paused:
            return False
        process = self._paused.pop(name)
        process.send_signal(signal.SIGCONT)
        self._fleet.running[name] = process
        return True

    def _freeze(self, name: str) -> bool:
        if not self._may_go(name):
            return False
        # In the middle of its work.
        self._fleet.write(self._dice.randrange(200))
        owned = set(self._fleet.now().get(name, ([], []))[0])
        self._pause(name)
        until = time.monotonic() + self._dice.uniform(*_FREEZE_S)
        while time.monotonic() < until:
            self._fleet.write(20)
            time.sleep(0.5)
        taken = owned.intersection(p for runs, _ in self._fleet.now().values() for p in runs)
        self.done["taken over from a frozen member"] += len(taken)
        return self._resume(name)

    def _restart(self, _: str) -> bool:
        broker = self._dice.choice(self._cluster.brokers).id
        self._cluster.stop(broker)
        time.sleep(self._dice.random() * _MOST_WAIT_S / 2)
        self._cluster.start(broker)
        self._cluster.wait_ready()
        return True

    def _damage(self, name: str, pattern: str = "*.sqlite") -> bool:
        if name in self._paused:
            # It would have to be resumed, to be ended.
            return False
        # A member that runs reads little again of what it has in memory, and one that starts reads all.
        again = self._dice.choice((self._kill, self._stop, None))
        again = None if again is None or not again(name) else again
        files = sorted(self._fleet.state_folder(name).glob(pattern))
        damaged = [
            damage_page(file, self._dice)
            for file in self._dice.sample(files, min(len(files), _DAMAGED_FILES))
            for _ in range(_DAMAGED_PAGES)
        ]
        self.done["pages damaged"] += sum(damaged)
        if again is not None:
            self._start(name)
        return any(damaged)

    def _damage_log(self, name: str) -> bool:
        return self._damage(name, "*.sqlite-wal")

    def _fill(self, name: str) -> bool:
        if name not in self._disks or self._disks[name].full:
            return False
        self._disks[name].fill()
        self._fleet.write(_RECORDS_WHILE_FULL)
        return True

    def _free(self, name: str) -> bool:
        if name not in self._disks or not self._disks[name].full:
            return False
        self._disks[name].free()
        return True

    def _grow(self, _: str) -> bool:
        size = self._fleet.partitions + self._dice.randrange(1, 4)
        if size > _MOST_PARTITIONS:
            return False
        admin = KafkaAdminClient(bootstrap_servers=self._cluster.bootstrap)
        try:
            new = [SPREAD[partition % len(SPREAD)] for partition in range(self._fleet.partitions, size)]
            admin.create_partitions({self._topic: NewPartitions(size, new)})
        finally:
            admin.close()
        self._fleet.grown(size)
        return True

    def all_up(self) -> None:
        """Have space on all disks, and start all members that are not running."""
        for disk in self._disks.values():
            if disk.full:
                disk.free()
        self.resume_all()
        for name in SIX:
            if name not in self._fleet.running:
                self._fleet.start(name)

    def resume_all(self) -> None:
        """Resume all paused members."""
        for name in list(self._paused):
            self._resume(name)


KINDS: dict[str, Callable[[Schedule, str], bool]] = {
    "kill": Schedule._kill,
    "stop": Schedule._stop,
    "start": Schedule._start,
    "pause": Schedule._pause,
    "resume": Schedule._resume,
    "freeze": Schedule._freeze,
    "restart": Schedule._restart,
    "damage": Schedule._damage,
    "damage-log": Schedule._damage_log,
    "fill": Schedule._fill,
    "free": Schedule._free,
    "grow": Schedule._grow,
}


def play(
    cluster: Cluster, topic: str, seed: int, steps: int, kinds: Sequence[str], folder: Path, done: Counter[str]
) -> None:
    """Play a schedule, and check what comes of it.

    Args:
        cluster: The brokers.
        topic: The input, which is empty.
        seed: Of the schedule.
        steps: How many events it has.
        kinds: What may happen.
        folder: For the state and the output of members.
        done: What has happened how often is added to it.
    """
    with ExitStack() as begun:
        disks: dict[str, Disk] = {}
        fleet = Fleet(
            cluster.bootstrap, f"group-{topic}", topic, folder, 1, words=_WORDS, value_bytes=_VALUE_BYTES
        )  # fmt: skip
        if set(DISKS).intersection(kinds):
            for name in SIX:
                disks[name] = Disk(fleet.state_folder(name), _DISK_BYTES)
                begun.callback(disks[name].close)
        begun.callback(fleet.close)
        begun.callback(_proofs, fleet, done)
        schedule = Schedule(fleet, cluster, topic, seed, kinds, disks, done)
        # A paused one would not end.
        begun.callback(schedule.resume_all)
        for name in SIX[:4]:
            fleet.start(name)
        fleet.write(_FIRST_RECORDS)
        for _ in range(steps):
            schedule.step()
        schedule.all_up()
        fleet.write(100)
        check(fleet)
        fleet.end()


def _proofs(fleet: Fleet, done: Counter[str]) -> None:
    """Count what shows that faults of disks have struck, and what was written in spite of them."""
    warnings = fleet.warnings()
    done["damaged files set aside"] = sum(_ASIDE in line for line in warnings)
    done["waits for a full disk"] = sum(_WAITS in line for line in warnings)
    done["records"] = sum(map(len, fleet.written.values()))


def check(fleet: Fleet) -> None:
    """Wait until all is as it should be, and for long enough."""
    wait_until(lambda: fleet.settled(1), "six members with their copies", timeout_s=TIMEOUT_S)
    fleet.counts_right(TIMEOUT_S)
    fleet.copies_right(1, TIMEOUT_S)
    wait_until(lambda: fleet.settled(1), "all as it should be after that", timeout_s=TIMEOUT_S)


def possible(asked: Sequence[str] | None) -> list[str]:
    """Return the kinds of events that are asked for, or all that are possible here."""
    kinds = list(asked or KINDS)
    if set(DISKS).intersection(kinds) and not can_mount():
        missing = "`unshare --user --mount` does not work here, so no disk can be full"
        if asked:
            raise SystemExit(missing)
        print(f"left out: {', '.join(DISKS)}: {missing}", flush=True)
        kinds = [kind for kind in kinds if kind not in DISKS]
    return kinds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = seed_parser("tools.chaos.stateful", __doc__, seeds=10)
    parser.add_argument("--steps", type=int, default=24, help="of each (default: 24)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="what may happen (default: all)")
    chosen = parser.parse_args(arguments)
    kinds = possible(chosen.kinds)
    if set(DISKS).intersection(kinds):
        in_namespace("tools.chaos.stateful", sys.argv[1:] if arguments is None else arguments)
    with LocalCluster(list(RACKS)) as cluster:

        def play_one(seed: int, folder: Path) -> tuple[str, bool]:
            topic, done = f"input-{seed}", Counter[str]()
            create_topic(cluster.bootstrap, topic, SPREAD)
            play(cluster, topic, seed, chosen.steps, kinds, folder, done)
            return report(kinds, done), True

        return play_seeds(chosen, play_one)


def report(kinds: Sequence[str], done: Counter[str]) -> str:
    """Return a line: what happened how often, and what shows that it has struck."""
    events = ", ".join(f"{kind} {done[kind]}" for kind in kinds)
    found = ", ".join(f"{what} {number}" for what, number in sorted(done.items()) if what not in KINDS)
    return f"{events}; {found}: each record once"


if __name__ == "__main__":
    sys.exit(main())
