"""The examples that read, write and commit in transactions, and at random: members and brokers fail.

python -m tools.chaos.exactly_once [--client confluent] [--seeds 3] [--first 1] [--faults 6] [--without-transactions]

======= =====================================================================================================
kill    SIGKILL of one to three members within transactions; they start again
suspend SIGSTOP of a member until others have its partitions, then SIGCONT: a former owner commits
stop    a broker stops and starts
crash   a broker is killed and starts
======= =====================================================================================================

Whatever happens: a reader of committed records finds the result of each record of the input once. The stateful example
numbers the records of each partition, so that its state is compared as well. Transactions stay open for up to a second,
so that most faults find one that is open; members are killed as soon as each has one open, or after some seconds.
Without transactions, a kill repeats results.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.model import TopicPartition
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.example_members import Members, example, records
from tests.helpers.machine_speed import scaled_s
from tests.helpers.threads import meanwhile
from tools.chaos.checker import RESULT_RULES
from tools.chaos.history import NOTES_FILE, Acked, History, Journal, Result, Struck, now, read_history
from tools.chaos.schedule import RACKS
from tools.chaos.seeds import play_seeds, seed_parser

CLIENTS = ("confluent", "kafka-python", "aiokafka", "stateful")
KINDS = ("kill", "suspend", "stop", "crash")
MEMBERS = ("ax", "bx", "cx")
SPREAD = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]]
PARTITIONS = len(SPREAD)
TIMEOUT_S = 600.0
STALL_S = 120.0
HOLD_S = 15.0
_PER_S = 200


class Progress:
    """The committed offsets of a group."""

    def __init__(self, bootstrap: str, topic: str, group: str, context: Callable[[], str]) -> None:
        self._context = context
        self._tps = [KafkaPythonPartition(topic, partition) for partition in range(PARTITIONS)]
        # It does not join: it only asks the coordinator.
        self._reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        self._bootstrap = bootstrap

    def committed(self) -> list[int]:
        """Return the committed offset of each partition; 0 without one."""
        return [self._reader.committed(tp) or 0 for tp in self._tps]

    def wait_for_all(self, what: str) -> None:
        """Wait until each partition was committed once more."""
        before = self.committed()
        self._wait(
            lambda: all(now > then for now, then in zip(self.committed(), before, strict=True)),
            f"each partition processed {what}; committed were {before}",
        )

    def wait_for_the_end(self) -> None:
        """Wait until everything is committed."""
        expected = self._ends()
        self._wait(lambda: self.committed() == expected, f"all processed, up to {expected}")

    def _ends(self) -> list[int]:
        # With a consumer of its own: after a crash, one that has asked before would ask the former leaders.
        with closing(KafkaConsumer(bootstrap_servers=self._bootstrap)) as reader:
            ends = reader.end_offsets(self._tps)
        return [ends[tp] for tp in self._tps]

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, and warn if that takes minutes, which should be explained: a test shows no output."""
        stalled_s = min(scaled_s(STALL_S), TIMEOUT_S / 2)
        try:
            wait_until(condition, what, timeout_s=stalled_s)
        except TimeoutError as error:
            text = f"stood still: {error}; committed are {self.committed()}\n{self._context()}"
            warnings.warn(text, stacklevel=3)
            wait_until(condition, what, timeout_s=TIMEOUT_S - stalled_s)

    def close(self) -> None:
        self._reader.close()


def write(bootstrap: str, topic: str, over: threading.Event) -> None:
    """Write records to all partitions in turn, until it is over."""
    began, number = time.monotonic(), 0
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)) as producer:
        while not over.is_set():
            producer.send(topic, b"record-%d" % number, partition=number % PARTITIONS)
            number += 1
            time.sleep(max(0.0, began + number / _PER_S - time.monotonic()))


def wait_for_closed_transactions(bootstrap: str, topic: str) -> None:
    """Wait until a reader of committed records can read a topic to its end."""
    tps = [KafkaPythonPartition(topic, partition) for partition in range(PARTITIONS)]
    with (
        closing(KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")) as committed,
        closing(KafkaConsumer(bootstrap_servers=bootstrap)) as all_records,
    ):
        wait_until(
            lambda: committed.end_offsets(tps) == all_records.end_offsets(tps),
            f"no open transaction in {topic}",
            timeout_s=TIMEOUT_S,
        )


def play(
    cluster: Cluster,
    name: str,
    seed: int,
    faults: Sequence[str],
    folder: Path,
    *,
    client: str = "confluent",
    transactions: bool = True,
) -> History:
    """Process records while members and brokers fail; return what was struck, the input and all results."""
    source, target, dice = f"{name}-source", f"{name}-target", random.Random(seed)
    for topic in (source, target):
        create_topic(cluster.bootstrap, topic, SPREAD)
    mode = "on" if transactions else "off"
    arguments = [client, mode, str(folder), cluster.bootstrap, source, target, "--group", name]
    # A member that is suspended, or not scheduled, for longer than the transaction timeout is fenced by the broker, or
    # finds that the broker has ended the transaction. Both are fatal to a producer of librdkafka, and to the program
    # with it. It also ends if a call is not answered in time, does not return, or may only be made again, as after a
    # coordinator has moved. The programs for the other clients begin again by themselves.
    ends = ("_FENCED", "FATAL,code=INVALID_TXN_STATE", "_TIMED_OUT", "NOT_COORDINATOR", "Timeout (")
    fatal = ends if client == "confluent" else ()
    command = example("tests.helpers.kafka.slow_transactions", arguments, folder, own="--member")
    members = Members(command, folder, fatal)
    with (
        closing(Journal(folder / NOTES_FILE)) as journal,
        closing(members),
        closing(Progress(cluster.bootstrap, source, name, members.stacks)) as progress,
    ):
        with meanwhile(partial(write, cluster.bootstrap, source)):
            members.start(*MEMBERS)
            progress.wait_for_all("at first")
            for kind in faults:
                # Somewhere within a transaction.
                time.sleep(2 * dice.random())
                began = now()
                journal.note(Struck(began, kind, strike(kind, cluster, members, progress, dice, folder)))
                progress.wait_for_all(f"after {kind}")
                members.restart_ended()
        progress.wait_for_the_end()
        members.end()
        # What a member has left open, as one that could not go on, is in the way of readers until its timeout.
        wait_for_closed_transactions(cluster.bootstrap, target)
        note_records(cluster.bootstrap, source, target, journal, numbered=client == "stateful")
    return read_history(folder)


def note_records(bootstrap: str, source: str, target: str, journal: Journal, *, numbered: bool) -> None:
    """Note the input and all results, with the numbers that a state gave them."""
    for partition in range(PARTITIONS):
        for record in records(bootstrap, source, partition):
            place, number = TopicPartition(source, partition), int(record.value.removeprefix(b"record-"))
            journal.note(Acked(now(), place, record.offset, number))
        committed = {record.offset for record in records(bootstrap, target, partition, "read_committed")}
        for record in records(bootstrap, target, partition):
            state = int(dict(record.headers)["number"]) if numbered else None
            journal.note(Result(record.value.decode(), state, record.offset in committed))


def strike(kind: str, cluster: Cluster, members: Members, progress: Progress, dice: random.Random, folder: Path) -> str:
    """Let one fault happen, and end; return whom it has struck."""
    if kind == "kill":
        names = dice.sample(MEMBERS, dice.randint(1, len(MEMBERS)))
        kill_within_transactions(members, names, folder)
        members.start(*names)
        return " ".join(names)
    if kind == "suspend":
        name = dice.choice(MEMBERS)
        members.signal(signal.SIGSTOP, name)
        try:
            progress.wait_for_all(f"without {name}")
        finally:
            members.signal(signal.SIGCONT, name)
        return name
    broker = dice.choice([each.id for each in cluster.brokers])
    (cluster.stop if kind == "stop" else cluster.kill)(broker)
    cluster.start(broker)
    cluster.wait_ready()
    return str(broker)


def kill_within_transactions(members: Members, names: Sequence[str], folder: Path) -> None:
    """Kill members that have each written results, and not committed them; at least one of them after `HOLD_S`."""
    hold = folder / "hold"
    marks = {members.running[name]: folder / f"{members.running[name].pid}" for name in names}

    def held() -> list[bool]:
        return [mark.exists() or process.poll() is not None for process, mark in marks.items()]

    hold.touch()
    try:
        # A member may have to rejoin first. One that others wait for in a rebalance must not be held for long.
        with suppress(TimeoutError):
            wait_until(lambda: all(held()), f"open transactions of {names}", timeout_s=scaled_s(HOLD_S))
        wait_until(lambda: any(held()), f"an open transaction of {names}", timeout_s=TIMEOUT_S)
        members.kill(*names)
    finally:
        hold.unlink()
        for mark in marks.values():
            mark.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = seed_parser("tools.chaos.exactly_once", __doc__, seeds=3)
    parser.add_argument("--client", choices=CLIENTS, default=CLIENTS[0], help="the example (default: %(default)s)")
    parser.add_argument("--faults", type=int, default=6, help="of each (default: 6)")
    parser.add_argument("--without-transactions", action="store_true", help="to see that the comparison can fail")
    chosen = parser.parse_args(arguments)
    on = not chosen.without_transactions
    if not on and chosen.client != CLIENTS[0]:
        parser.error(f"--without-transactions is for --client {CLIENTS[0]}")
    with LocalCluster(RACKS) as cluster:

        def play_one(seed: int, folder: Path) -> History:
            faults = random.Random(seed).choices(KINDS, k=chosen.faults)
            return play(cluster, f"seed-{seed}", seed, faults, folder, client=chosen.client, transactions=on)

        return play_seeds(chosen, play_one, told, RESULT_RULES)


def told(history: History) -> str:
    """Return a line: what has struck, and how much was written."""
    aborted = sum(not each.committed for each in history.of(Result))
    struck = ", ".join(f"{each.what} {each.target}" for each in history.of(Struck))
    return f"{struck}; {len(history.of(Acked))} records, {aborted} results of aborted transactions"


if __name__ == "__main__":
    sys.exit(main())
