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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError

from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.example_members import Members, records
from tests.helpers.machine_speed import scaled_s
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the results differ from the input.

    Args:
        records: Number of records of the input.
        lost: Values without a result.
        repeated: Results beyond the first one of a value.
        aborted: Results of transactions that were aborted, which readers of committed records skip.
        misnumbered: Records with a number that no state, or more than one, should have given; of the stateful example.
    """

    records: int
    lost: int
    repeated: int
    aborted: int
    misnumbered: int = 0

    @property
    def failed(self) -> bool:
        """Whether a reader of committed records sees something else than the result of each record, once."""
        return bool(self.lost or self.repeated or self.misnumbered)


class StalledWarning(UserWarning):
    """A group has stood still for minutes. It fails nothing, but should be explained."""


class Progress:
    """The committed offsets of a group.

    Args:
        bootstrap: Addresses of brokers.
        topic: What it reads.
        group: The group.
        context: Returns what to know of the members when something is waited for since `STALL_S`.
    """

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
        """Wait for a condition, and warn if that takes minutes: a test that passes shows no output."""
        stalled_s = min(scaled_s(STALL_S), TIMEOUT_S / 2)
        try:
            wait_until(condition, what, timeout_s=stalled_s)
        except TimeoutError as error:
            try:
                ends = str(self._ends())
            except KafkaTimeoutError as unknown:
                ends = repr(unknown)
            text = f"stood still: {error}; committed are {self.committed()} of {ends}\n{self._context()}"
            warnings.warn(StalledWarning(text), stacklevel=3)
            wait_until(condition, what, timeout_s=TIMEOUT_S - stalled_s)

    def close(self) -> None:
        self._reader.close()


@contextmanager
def written(bootstrap: str, topic: str) -> Iterator[None]:
    """Write records to all partitions while the block runs."""
    over = threading.Event()

    def write() -> None:
        began, number = time.monotonic(), 0
        with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)) as producer:
            while not over.is_set():
                producer.send(topic, b"record-%d" % number, partition=number % PARTITIONS)
                number += 1
                time.sleep(max(0.0, began + number / _PER_S - time.monotonic()))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            over.set()
        writing.result(TIMEOUT_S)


def wait_for_closed_transactions(bootstrap: str, topic: str) -> None:
    """Wait until a reader of committed records can read a topic to its end."""
    tps = [KafkaPythonPartition(topic, partition) for partition in range(PARTITIONS)]
    with ExitStack() as opened:
        all_readers = [
            opened.enter_context(closing(KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=level)))
            for level in ("read_committed", "read_uncommitted")
        ]

        def closed() -> bool:
            stable, ends = (reader.end_offsets(tps) for reader in all_readers)
            return bool(stable == ends)

        wait_until(closed, f"no open transaction in {topic}", timeout_s=TIMEOUT_S)


def count_misnumbered(given: Sequence[Any], visible: Sequence[Any]) -> int:
    """Return how many numbers differ from those that counting each partition of the input gives."""
    expected: Counter[bytes] = Counter()
    for size in Counter(each.partition for each in given).values():
        expected.update(b"%d" % number for number in range(1, size + 1))
    found = Counter(dict(each.headers)["number"] for each in visible)
    return ((found - expected) + (expected - found)).total()


def compare(given: Mapping[bytes, int], visible: Mapping[bytes, int], all_results: Mapping[bytes, int]) -> Outcome:
    """Compare the results with the input.

    Args:
        given: How often each value was written.
        visible: How often a reader of committed records finds each result.
        all_results: The same, with those of aborted transactions.
    """
    expected = Counter({value.upper(): number for value, number in given.items()})
    found = Counter(visible)
    return Outcome(
        records=expected.total(),
        lost=(expected - found).total(),
        repeated=(found - expected).total(),
        aborted=(Counter(all_results) - found).total(),
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
) -> Outcome:
    """Process records while members and brokers fail, and compare.

    Args:
        cluster: Three brokers in three racks.
        name: Begins the names of topics, and is that of the group.
        seed: Of the times of faults, and whom they hit.
        faults: What happens, of `KINDS`.
        folder: Gets the output of the members.
        client: Whose example the members run, of `CLIENTS`.
        transactions: Whether the members use transactions.
    """
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
    members = Members("tests.helpers.kafka.slow_transactions", arguments, folder, own="--member", fatal=fatal)
    with closing(members), closing(Progress(cluster.bootstrap, source, name, members.stacks)) as progress:
        with written(cluster.bootstrap, source):
            members.start(*MEMBERS)
            progress.wait_for_all("at first")
            for kind in faults:
                # Somewhere within a transaction.
                time.sleep(2 * dice.random())
                strike(kind, cluster, members, progress, dice, folder)
                progress.wait_for_all(f"after {kind}")
                members.restart_ended()
        progress.wait_for_the_end()
        members.end()
    # What a member has left open, as one that could not go on, is in the way of readers until its timeout.
    wait_for_closed_transactions(cluster.bootstrap, target)
    given, visible, all_results = (
        [each for partition in range(PARTITIONS) for each in records(cluster.bootstrap, topic, partition, isolation)]
        for topic, isolation in ((source, "read_committed"), (target, "read_committed"), (target, "read_uncommitted"))
    )
    outcome = compare(*(Counter(each.value for each in found) for found in (given, visible, all_results)))
    return replace(outcome, misnumbered=count_misnumbered(given, visible)) if client == "stateful" else outcome


def strike(
    kind: str, cluster: Cluster, members: Members, progress: Progress, dice: random.Random, folder: Path
) -> None:
    """Let one fault happen, and end."""
    if kind == "kill":
        names = dice.sample(MEMBERS, dice.randint(1, len(MEMBERS)))
        kill_within_transactions(members, names, folder)
        members.start(*names)
    elif kind == "suspend":
        name = dice.choice(MEMBERS)
        members.signal(signal.SIGSTOP, name)
        try:
            progress.wait_for_all(f"without {name}")
        finally:
            members.signal(signal.SIGCONT, name)
    else:
        broker = dice.choice([each.id for each in cluster.brokers])
        (cluster.stop if kind == "stop" else cluster.kill)(broker)
        cluster.start(broker)
        cluster.wait_ready()


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
    with LocalCluster(["a", "b", "c"]) as cluster:

        def play_one(seed: int, folder: Path) -> tuple[str, bool]:
            faults = random.Random(seed).choices(KINDS, k=chosen.faults)
            outcome = play(cluster, f"seed-{seed}", seed, faults, folder, client=chosen.client, transactions=on)
            return f"{', '.join(faults)}: {outcome}", not outcome.failed

        return play_seeds(chosen, play_one)


if __name__ == "__main__":
    sys.exit(main())
