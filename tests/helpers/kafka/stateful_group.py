"""Members with state as processes, which can be stopped and killed, and what is written for them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Producer as FastProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.assignor.standby import default_changelog
from rackassign.stateful._processing import Progress
from rackassign.stateful._stores import DEFAULT, PROGRESS
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.consumers import EXPIRING
from tests.helpers.kafka.stateful_member import COUNTED
from tests.helpers.machine_speed import scaled_s

PARTITIONS = 12
WORDS = ["fox", "dog", "cat", "emu", "owl"]
SPREAD = [[1, 2], [2, 3], [3, 1]] * (PARTITIONS // 3)
_TIMEOUT_S = 600.0
_QUIET_S = scaled_s(2.0)
"""Enough for some heartbeats, with which members learn of a rebalance, and for a look at how warm copies are."""
UNHURRIED_MS: int = max(20_000, EXPIRING["session_timeout_ms"])
"""A session in which copies catch up with what a member that was killed had written, also on a busy machine."""
SIX = ("ax", "ay", "bx", "by", "cx", "cy")


class Fleet:
    """Members as processes, and what is written for them."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        folder: Path,
        standbys: int,
        partitions: int = PARTITIONS,
        *,
        words: Sequence[str] = WORDS,
        value_bytes: int = 0,
        session_timeout_ms: int = EXPIRING["session_timeout_ms"],
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._topics = topic.split(",")
        self._folder = folder
        self._standbys = standbys
        self._words = words
        self._value_bytes = value_bytes
        self._session_timeout_ms = session_timeout_ms
        self._read: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.partitions = partitions
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._before: dict[str, int] = {}
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, metadata_max_age_ms=2000)
        self._dice = random.Random(708)
        self.written: defaultdict[int, list[str]] = defaultdict(list)

    def start(self, name: str) -> None:
        # What one of that name has said in an earlier life is not about this one.
        self._before[name] = len(self.output_lines(name))
        numbers = (self._standbys, self._value_bytes, self._session_timeout_ms)
        words = [name, self._bootstrap, self._group, self._topic, str(self.state_folder(name)), *map(str, numbers)]
        with (self._folder / f"{name}.out").open("ab") as out, (self._folder / f"{name}.err").open("ab") as err:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.kafka.stateful_member", *words], stdout=out, stderr=err
            )

    def state_folder(self, name: str) -> Path:
        """Return where a member keeps its state."""
        return self._folder / name

    def output_lines(self, name: str) -> list[dict[str, Any]]:
        """Return all that members of this name have written, without a line that is not complete yet."""
        file = self._folder / f"{name}.out"
        at, lines = self._read.get(name, (0, []))
        if file.exists():
            with file.open("rb") as opened:
                opened.seek(at)
                more = opened.read()
            whole = more[: more.rfind(b"\n") + 1]
            lines += [json.loads(line) for line in whole.splitlines()]
            self._read[name] = at + len(whole), lines
        return lines

    def warnings(self) -> list[str]:
        """Return the lines that all members, past and present, have logged."""
        files = sorted(self._folder.glob("*.err"))
        return [line for file in files for line in file.read_text("utf-8", "replace").splitlines()]

    def now(self) -> dict[str, tuple[list[int], list[int]]]:
        """What each living member runs and keeps, as it said last; nothing of one that has not said anything yet."""
        return {name: (said["runs"], said["keeps"]) for name, said in self._last().items()}

    def assigned(self) -> dict[str, list[list[Any]]]:
        """Return topic and number of each partition that a member has, whether it is processed or not."""
        return {name: said["has"] for name, said in self._last().items()}

    def errors(self, name: str) -> str:
        """Return what a member has logged."""
        return (self._folder / f"{name}.err").read_text("utf-8")

    def _last(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name, process in self.running.items():
            assert process.poll() is None, (self._folder / f"{name}.err").read_text("utf-8")[-3000:]
            said = [line for line in self.output_lines(name)[self._before[name] :] if "runs" in line]
            if said:
                found[name] = said[-1]
        return found

    def come_to_rest(self, copies: int, timeout_s: float) -> None:
        """Wait until it is settled and stays so: no join is under way, and nobody means to join again."""
        seen: list[Any] = []
        since = time.monotonic()

        def look() -> bool:
            nonlocal since
            now = self._last()
            rests = {tuple(said["rests"]) for said in now.values()}
            if not self.settled(copies) or len(rests) != 1 or () in rests or seen != [now]:
                seen[:] = [now]
                since = time.monotonic()
            return time.monotonic() - since >= _QUIET_S

        wait_until(look, f"{len(self.running)} members at rest, with their copies", timeout_s=timeout_s)

    def write(self, records: int) -> None:
        for _ in range(records):
            # A dice with one side is not rolled, so that one topic has the records that it had.
            topic = self._topics[0] if len(self._topics) == 1 else self._dice.choice(self._topics)
            self.write_one(topic, self._dice.randrange(self.partitions))
        self._producer.flush()

    def write_one(self, topic: str, partition: int) -> None:
        """Write a record; it is sent at the latest with the next `write`."""
        wait_until(lambda: partition in self._producer.partitions_for(topic), "metadata", timeout_s=_TIMEOUT_S)
        text = " ".join(self._dice.choices(self._words, k=3))
        self._producer.send(topic, text.encode(), partition=partition)
        self.written[partition].append(text)

    def grown(self, partitions: int) -> None:
        """Write into the new partitions of the input, too, and expect them to be run."""
        for topic in self._topics:
            wait_until(
                lambda topic=topic: len(self._producer.partitions_for(topic)) >= partitions,  # type: ignore[misc]
                "new partitions",
                timeout_s=_TIMEOUT_S,
            )
        self.partitions = partitions

    def settled(self, copies: int) -> bool:
        """Return whether each partition is active on one member and a standby on the given number of others."""
        now = self.now()
        runs = Counter(p for theirs, _ in now.values() for p in theirs)
        keeps = Counter(p for _, theirs in now.values() for p in theirs)
        return len(now) == len(self.running) and all(
            runs[p] == 1 and keeps[p] == copies for p in range(self.partitions)
        )

    def done(self) -> int:
        """Return how many records all members, past and present, report as processed."""
        files = self._folder.glob("*.out")
        return sum(line.get("done", 0) for file in files for line in self.output_lines(file.stem))

    def kill(self, *names: str) -> None:
        killed = [self.running.pop(name) for name in names]
        for process in killed:
            process.kill()
        for process in killed:
            process.wait()

    def stop(self, name: str) -> None:
        """End one as a service is ended."""
        process = self.running.pop(name)
        process.terminate()
        assert process.wait(_TIMEOUT_S) == 0, (self._folder / f"{name}.err").read_text("utf-8")[-3000:]

    def counts_right(self, timeout_s: float) -> None:
        """Wait until the state is that of all records, each once; too much of one, and it never is."""
        try:
            wait_until(lambda: self.state() == self.expected(), "each record counted once", timeout_s=timeout_s)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {'; '.join(self._differences())}") from error

    def _differences(self) -> list[str]:
        """Return where states and expected ones differ, with the members that have them."""
        expected, found = self.expected(), []
        for name, line in zip(self.running, self._asked(), strict=True):
            for kind in ("state", "copies"):
                for partition, state in line[kind].items():
                    wanted = expected.get(int(partition), {})
                    wrong = [key for key in sorted({*state, *wanted}) if state.get(key) != wanted.get(key)]
                    if wrong:
                        shown = ", ".join(f"{key} {state.get(key)} instead of {wanted.get(key)}" for key in wrong[:5])
                        found.append(f"{name} has {kind} {partition} with {len(wrong)} wrong counts: {shown}")
                        if kind == "state":
                            found += self._logged(int(partition), wrong[:5])
        return found

    def _logged(self, partition: int, words: Sequence[str]) -> list[str]:
        """Return what the changelog has of words: whether it lacks them, or a member has not read them."""
        keys = {DEFAULT + word.encode() for word in words}
        place = KafkaPythonPartition(default_changelog(self._group, *self._topics), partition)
        with closing(KafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="earliest")) as reader:
            reader.assign([place])
            end, found = reader.end_offsets([place])[place], []
            while reader.position(place) < end:
                for record in reader.poll(timeout_ms=200).get(place, ()):
                    if record.key in keys:
                        value = (record.value or b"none").decode().strip()
                        found.append(f"at {record.offset} {record.key[1:].decode()} = {value}")
        return [f"the changelog of {partition} ends at {end} and has {len(found)} records of these", *found[-20:]]

    def copies_right(self, copies: int, timeout_s: float) -> None:
        """Wait until as many copies as there are to be of each partition are the same as its state."""

        def right() -> bool:
            expected = self.expected()
            found = [each for line in self._asked() for each in line["copies"].items()]
            kept = Counter(int(partition) for partition, state in found if state == expected.get(int(partition), {}))
            return len(found) == copies * self.partitions and all(kept[p] == copies for p in range(self.partitions))

        wait_until(right, "copies of all that was counted", timeout_s=timeout_s)

    def state(self) -> dict[int, dict[str, int]]:
        """Ask all for their states, and return that of each partition; asked again while one is on its way."""
        found: list[tuple[int, dict[str, int]]] = []

        def whole() -> bool:
            found[:] = [(int(partition), state) for line in self._asked() for partition, state in line["state"].items()]
            return sorted(partition for partition, _ in found) == list(range(self.partitions))

        wait_until(whole, "a state of each partition", timeout_s=_TIMEOUT_S)
        return dict(found)

    def _asked(self) -> list[dict[str, Any]]:
        """Ask all for their states, and return the answers."""
        before = {name: len(self._states(name)) for name in self.running}
        for process in self.running.values():
            process.send_signal(signal.SIGUSR1)
        for name, had in before.items():
            wait_until(lambda name=name, had=had: len(self._states(name)) > had, f"the state of {name}")  # type: ignore[misc]
        return [self._states(name)[-1] for name in self.running]

    def _states(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.output_lines(name) if "state" in line]

    def end(self) -> None:
        """End all as a service is ended, and see that they do."""
        for process in self.running.values():
            process.terminate()
        for name, process in self.running.items():
            assert process.wait(_TIMEOUT_S) == 0, (self._folder / f"{name}.err").read_text("utf-8")[-3000:]
        self.running.clear()

    def expected(self) -> dict[int, dict[str, int]]:
        """Return the state of each partition with all that was written, each record once."""
        return {partition: self._counted(self.written.get(partition, [])) for partition in range(self.partitions)}

    @staticmethod
    def _counted(texts: Sequence[str]) -> dict[str, int]:
        return {**Counter(" ".join(texts).split()), COUNTED.decode(): len(texts)} if texts else {}

    def close(self) -> None:
        self._producer.close()
        for process in self.running.values():
            process.kill()
            process.wait()


def fill_changelog(bootstrap: str, log: str, partition: int, changes: Iterable[tuple[bytes, bytes]]) -> None:
    """Write a commit that says nothing of the input, as an owner would, only faster."""
    producer = FastProducer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for key, value in (*changes, (PROGRESS, Progress().encode())):
        while True:
            try:
                producer.produce(log, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(_TIMEOUT_S) == 0
