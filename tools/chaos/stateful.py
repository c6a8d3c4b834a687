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
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.state_disks import Disk, can_mount, damage_page, in_namespace
from tests.helpers.kafka.stateful_group import PARTITIONS, SIX, SPREAD, Fleet
from tests.helpers.machine_speed import scaled_s
from tools.chaos.effects import SESSION_S
from tools.chaos.history import NOTES_FILE, History, Journal, Struck, now, read_history
from tools.chaos.schedule import RACKS
from tools.chaos.seeds import play_seeds, seed_parser

DISKS = ("fill", "free")
TIMEOUT_S = 600.0
_MOST_WAIT_S = 4.0
_FREEZE_S = tuple(SESSION_S + scaled_s(seconds) for seconds in (1.0, 6.0))
"""Longer than the session timeout of members."""
_MOST_PARTITIONS = PARTITIONS + 6
_DISK_BYTES = 512 << 20
_FIRST_RECORDS = 1500
_WORDS = tuple(f"word-{number}" for number in range(400))
_VALUE_BYTES = 6000
"""With 400 words 2.4 MB for each partition, of which SQLite keeps 2 MB in memory."""
_DAMAGED = {"damage": "*.sqlite", "damage-log": "*.sqlite-wal"}
_DAMAGED_FILES = 4
_DAMAGED_PAGES = 3
_RECORDS_WHILE_FULL = 400
_DELETED = "it is deleted, and the state"
_WAITS = "waits until its local file can be used again"


@dataclass(slots=True)
class Schedule:
    """What befalls a fleet; the same for the same seed, but for when exactly."""

    fleet: Fleet
    cluster: Cluster
    topic: str
    dice: random.Random
    # What may happen.
    kinds: Sequence[str]
    disks: Mapping[str, Disk]
    journal: Journal
    # The members that do not run until they are resumed.
    paused: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def step(self) -> None:
        """Apply a random event that is possible now, and write some records."""
        possible = [(kind, name) for kind in self.kinds for name in SIX if self._may(kind, name)]
        if possible:
            kind, name = self.dice.choice(possible)
            self.journal.note(Struck(now(), kind, name))
            KINDS[kind](self, name)
            print(f"  {time.strftime('%H:%M:%S')} {kind} {name}", file=sys.stderr, flush=True)
        self.fleet.write(self.dice.randrange(200))
        time.sleep(self.dice.random() * _MOST_WAIT_S)

    def _may(self, kind: str, name: str) -> bool:
        """Return whether an event is possible now."""
        running = self.fleet.running
        if kind in DISKS:
            return name in self.disks and self.disks[name].full is (kind == "free")
        if kind in {"kill", "stop", "pause", "freeze"}:
            # Never the last one. One that has not written anything may not have its handler of SIGTERM yet.
            return name in running and len(running) > 1 and (kind != "stop" or name in self.fleet.now())
        if kind in _DAMAGED:
            # A paused one would have to be resumed, to be ended.
            return name not in self.paused and any(self.fleet.state_folder(name).glob(_DAMAGED[kind]))
        if kind in {"restart", "grow"}:
            return kind == "restart" or self.fleet.partitions < _MOST_PARTITIONS
        return name in self.paused if kind == "resume" else name not in {*self.paused, *running}

    def _pause(self, name: str) -> None:
        self.paused[name] = self.fleet.running.pop(name)
        self.paused[name].send_signal(signal.SIGSTOP)

    def _resume(self, name: str) -> None:
        self.fleet.running[name] = self.paused.pop(name)
        self.fleet.running[name].send_signal(signal.SIGCONT)

    def _freeze(self, name: str) -> None:
        # In the middle of its work.
        self.fleet.write(self.dice.randrange(200))
        owned = set(self.fleet.now().get(name, ([], []))[0])
        self._pause(name)
        until = time.monotonic() + self.dice.uniform(*_FREEZE_S)
        while time.monotonic() < until:
            self.fleet.write(20)
            time.sleep(0.5)
        taken = owned.intersection(p for runs, _ in self.fleet.now().values() for p in runs)
        self.journal.note(Struck(now(), "taken over from a frozen member", name, len(taken)))
        self._resume(name)

    def _restart(self, _: str) -> None:
        broker = self.dice.choice(self.cluster.brokers).id
        self.cluster.stop(broker)
        time.sleep(self.dice.random() * _MOST_WAIT_S / 2)
        self.cluster.start(broker)
        self.cluster.wait_ready()

    def _damage(self, name: str, pattern: str) -> None:
        # A member that runs reads little again of what it has in memory, and one that starts reads all.
        # One that is stopped leaves no log.
        ends = ("kill",) if pattern == _DAMAGED["damage-log"] else ("kill", "stop")
        end = self.dice.choice([None, *(kind for kind in ends if self._may(kind, name))])
        if end is not None:
            KINDS[end](self, name)
        files = sorted(self.fleet.state_folder(name).glob(pattern))
        for file in self.dice.sample(files, min(len(files), _DAMAGED_FILES)):
            damaged = sum(damage_page(file, self.dice) for _ in range(_DAMAGED_PAGES))
            self.journal.note(Struck(now(), "pages damaged", name, damaged))
        if end is not None:
            self.fleet.start(name)

    def _fill(self, name: str) -> None:
        self.disks[name].fill()
        self.fleet.write(_RECORDS_WHILE_FULL)

    def _grow(self, _: str) -> None:
        size = min(self.fleet.partitions + self.dice.randrange(1, 4), _MOST_PARTITIONS)
        new = [SPREAD[partition % len(SPREAD)] for partition in range(self.fleet.partitions, size)]
        with closing(KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap)) as admin:
            admin.create_partitions({self.topic: NewPartitions(size, new)})
        self.fleet.grown(size)

    def all_up(self) -> None:
        """Have space on all disks, and start all members that are not running."""
        for disk in self.disks.values():
            if disk.full:
                disk.free()
        self.resume_all()
        for name in SIX:
            if name not in self.fleet.running:
                self.fleet.start(name)

    def resume_all(self) -> None:
        """Resume all paused members."""
        for name in list(self.paused):
            self._resume(name)


KINDS: dict[str, Callable[[Schedule, str], None]] = {
    "kill": lambda self, name: self.fleet.kill(name),
    "stop": lambda self, name: self.fleet.stop(name),
    "start": lambda self, name: self.fleet.start(name),
    "pause": Schedule._pause,
    "resume": Schedule._resume,
    "freeze": Schedule._freeze,
    "restart": Schedule._restart,
    "damage": lambda self, name: self._damage(name, _DAMAGED["damage"]),
    "damage-log": lambda self, name: self._damage(name, _DAMAGED["damage-log"]),
    "fill": Schedule._fill,
    "free": lambda self, name: self.disks[name].free(),
    "grow": Schedule._grow,
}


def play(cluster: Cluster, topic: str, seed: int, steps: int, kinds: Sequence[str], folder: Path) -> History:
    """Play a schedule, and wait until all is as it should be; return what happened."""
    # `topic`: the input, which is empty.
    # `kinds`: what may happen.
    with ExitStack() as begun:
        journal = begun.enter_context(closing(Journal(folder / NOTES_FILE)))
        disks: dict[str, Disk] = {}
        fleet = Fleet(
            cluster.bootstrap, f"group-{topic}", topic, folder, 1, words=_WORDS, value_bytes=_VALUE_BYTES
        )  # fmt: skip
        if set(DISKS).intersection(kinds):
            for name in SIX:
                disks[name] = Disk(fleet.state_folder(name), _DISK_BYTES)
                begun.callback(disks[name].close)
        begun.callback(fleet.close)
        begun.callback(_proofs, fleet, journal)
        schedule = Schedule(fleet, cluster, topic, random.Random(seed), kinds, disks, journal)
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
    return read_history(folder)


def _proofs(fleet: Fleet, journal: Journal) -> None:
    """Note what shows that faults of disks have struck, and what was written in spite of them."""
    warnings = fleet.warnings()
    journal.note(Struck(now(), "damaged files deleted", "", sum(_DELETED in line for line in warnings)))
    journal.note(Struck(now(), "waits for a full disk", "", sum(_WAITS in line for line in warnings)))
    journal.note(Struck(now(), "records", "", sum(map(len, fleet.written.values()))))


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
    with LocalCluster(RACKS) as cluster:

        def play_one(seed: int, folder: Path) -> History:
            topic = f"input-{seed}"
            create_topic(cluster.bootstrap, topic, SPREAD)
            return play(cluster, topic, seed, chosen.steps, kinds, folder)

        # That each record counts once is waited for: without it a play ends with an error.
        return play_seeds(chosen, play_one, partial(told, kinds), {})


def told(kinds: Sequence[str], history: History) -> str:
    """Return a line: what happened how often, and what shows that it has struck."""
    counts = Counter(dict.fromkeys(kinds, 0))
    for struck in history.of(Struck):
        counts[struck.what] += struck.count
    return ", ".join(f"{what} {count}" for what, count in counts.items())


if __name__ == "__main__":
    sys.exit(main())
