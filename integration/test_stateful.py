"""Members with state on real brokers: whoever dies or is stopped, each record counts once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from integration.stateful_member import COUNTED
from rackassign.stateful import StatefulConsumer
from rackassign.stateful.changes import HEADER, Change
from rackassign.strategies.standby import StandbyOptions
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic

from .support import wait_until

pytestmark = [pytest.mark.brokers, pytest.mark.local]

PARTITIONS = 12
WORDS = ["fox", "dog", "cat", "emu", "owl"]
SPREAD = [[1, 2], [2, 3], [3, 1]] * (PARTITIONS // 3)
SIX = ("ax", "ay", "bx", "by", "cx", "cy")
PATIENCE_S = 120.0


class Fleet:
    """Members as processes, and what is written for them."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path, standbys: int) -> None:
        self._words = (bootstrap, group, topic)
        self._topic = topic
        self._folder = folder
        self._standbys = standbys
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._producer = KafkaProducer(bootstrap_servers=bootstrap)
        self._dice = random.Random(708)
        self.written: defaultdict[int, list[str]] = defaultdict(list)

    def start(self, name: str) -> None:
        words = (name, *self._words, str(self._folder / name), str(self._standbys))
        with (self._folder / f"{name}.out").open("ab") as out, (self._folder / f"{name}.err").open("ab") as err:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "integration.stateful_member", *words], stdout=out, stderr=err
            )

    def told(self, name: str) -> list[dict[str, Any]]:
        whole = (self._folder / f"{name}.out").read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in whole if line.endswith("\n")]

    def now(self) -> dict[str, tuple[list[int], list[int]]]:
        """What each living member runs and keeps, as it said last."""
        found = {}
        for name, process in self.running.items():
            assert process.poll() is None, (self._folder / f"{name}.err").read_text("utf-8")[-3000:]
            said = [line for line in self.told(name) if "runs" in line]
            found[name] = (said[-1]["runs"], said[-1]["keeps"]) if said else ([], [])
        return found

    def write(self, records: int) -> None:
        for _ in range(records):
            partition = self._dice.randrange(PARTITIONS)
            text = " ".join(self._dice.choices(WORDS, k=3))
            self._producer.send(self._topic, text.encode(), partition=partition)
            self.written[partition].append(text)
        self._producer.flush()

    def settled(self, copies: int) -> bool:
        """Tell whether each partition is run by one member, and kept by as many others."""
        now = self.now().values()
        runs = Counter(p for theirs, _ in now for p in theirs)
        keeps = Counter(p for _, theirs in now for p in theirs)
        return all(runs[p] == 1 and keeps[p] == copies for p in range(PARTITIONS))

    def done(self) -> int:
        """How many records all that ever ran have processed, as they say."""
        files = self._folder.glob("*.out")
        return sum(line.get("done", 0) for file in files for line in self.told(file.stem))

    def kill(self, *names: str) -> None:
        killed = [self.running.pop(name) for name in names]
        for process in killed:
            process.kill()
        for process in killed:
            process.wait()

    def state(self) -> dict[int, dict[str, int]]:
        """Ask all for their states, and return that of each partition."""
        found: dict[int, dict[str, int]] = {}
        for process in self.running.values():
            process.send_signal(signal.SIGUSR1)
        for name in self.running:
            wait_until(lambda name=name: bool(self._states(name)), f"the state of {name}")  # type: ignore[misc]
            for partition, state in self._states(name)[-1].items():
                assert int(partition) not in found
                found[int(partition)] = state
        return found

    def _states(self, name: str) -> list[dict[str, dict[str, int]]]:
        return [line["state"] for line in self.told(name) if "state" in line]

    def end(self) -> None:
        """End all as a service is ended, and see that they do."""
        for process in self.running.values():
            process.terminate()
        for name, process in self.running.items():
            assert process.wait(60) == 0, (self._folder / f"{name}.err").read_text("utf-8")[-3000:]
        self.running.clear()

    def expected(self) -> dict[int, dict[str, int]]:
        return {
            partition: {**Counter(" ".join(texts).split()), COUNTED.decode(): len(texts)}
            for partition, texts in self.written.items()
        }

    def close(self) -> None:
        self._producer.close()
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def fleet(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> Iterator[Callable[[int], Fleet]]:
    with ExitStack() as opened:

        def made(standbys: int) -> Fleet:
            found = Fleet(rack_cluster.bootstrap, unique_name(), make_topic(replicas=SPREAD), tmp_path, standbys)
            opened.callback(found.close)
            return found

        yield made


def caught_up(fleet: Fleet) -> Callable[[], bool]:
    """Return what tells whether nobody has had anything to do for a while."""
    last = [-1, 0]

    def look() -> bool:
        done = fleet.done()
        last[1] = last[1] + 1 if done == last[0] else 0
        last[0] = done
        return last[1] >= 20

    return look


def test_a_zone_is_killed_and_who_is_warm_goes_on_as_if_nothing_had_happened(fleet: Callable[[int], Fleet]) -> None:
    six = fleet(1)
    for name in SIX:
        six.start(name)
    wait_until(lambda: six.settled(1), "six members with their copies", patience_s=PATIENCE_S)
    six.write(3000)
    wait_until(lambda: six.done() >= 2000, "records being processed", patience_s=PATIENCE_S)
    before = six.now()
    six.kill("ax", "ay")
    six.write(3000)
    wait_until(lambda: six.settled(1), "four members with their copies", patience_s=PATIENCE_S)
    kept = {p: name for name, (_, keeps) in before.items() for p in keeps}
    for partition in (*before["ax"][0], *before["ay"][0]):
        # The first that ran it after the death of its owner is who had a warm copy in another zone and cluster.
        heir = kept[partition]
        ran = {
            name: line["at"]
            for name in six.running
            for line in six.told(name)[::-1]
            if partition in line.get("runs", ())
        }
        assert min(ran, key=lambda name: ran[name]) == heir
    wait_until(caught_up(six), "everything processed", patience_s=PATIENCE_S)
    assert six.state() == six.expected()
    six.end()


def test_a_former_owner_that_wakes_up_changes_nothing(fleet: Callable[[int], Fleet]) -> None:
    three = fleet(1)
    for name in ("ax", "by", "cx"):
        three.start(name)
    wait_until(lambda: three.settled(1), "three members with their copies", patience_s=PATIENCE_S)
    three.write(2000)
    wait_until(lambda: three.done() >= 500, "records being processed", patience_s=PATIENCE_S)
    stopped = three.running.pop("ax")
    try:
        stopped.send_signal(signal.SIGSTOP)
        three.write(2000)
        wait_until(lambda: three.settled(1), "two members with their copies", patience_s=PATIENCE_S)
        wait_until(caught_up(three), "everything processed", patience_s=PATIENCE_S)
    finally:
        stopped.send_signal(signal.SIGCONT)
    three.running["ax"] = stopped
    three.write(1000)
    wait_until(lambda: three.settled(1), "three members again", patience_s=PATIENCE_S)
    wait_until(caught_up(three), "everything processed", patience_s=PATIENCE_S)
    assert three.state() == three.expected()
    three.end()


def test_a_long_restore_tells_how_far_it_is(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    topic, log = make_topic(replicas=[[1, 2]]), make_topic(replicas=[[1, 2]])
    records, value = 100_000, bytes(range(256)) * 4
    producer = Producer({"bootstrap.servers": rack_cluster.bootstrap, "linger.ms": 50})
    for number in range(records):
        change = Change("last", 0, number, b"%d" % number, value)
        while True:
            try:
                producer.produce(log, change.value, change.log_key(), 0, headers=[(HEADER, change.header())])
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    told: list[tuple[int, int]] = []
    with StatefulConsumer(
        topic,
        process=lambda record, store: store.put(b"input", record.value),
        state_dir=tmp_path / "state",
        on_restore=lambda _, done, total: told.append((done, total)),
        changelog=lambda _: log,
        standbys=StandbyOptions(0),
        bootstrap_servers=rack_cluster.bootstrap,
        group_id=unique_name(),
    ) as member:
        wait_until(lambda: not member.poll(100) and bool(member.running()), "the state", patience_s=PATIENCE_S)
        (place,) = member.running()
        assert sum(1 for _ in member.store(place).items()) == records
        assert member.store(place).get(b"99999") == value
    assert told == sorted(told)
    assert told[-1] == (records, records)
    assert len(told) > 10
