"""Members as processes that are killed, as those of the examples, and what their changelogs and inputs have."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.stateful._processing import Progress, decode_progress
from rackassign.stateful._stores import PROGRESS
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.consumers import EXPIRING

_TIMEOUT_S = 600.0
_END_S = 600.0
_READ_MS = 200


def example(
    module: str, arguments: Sequence[str], folder: Path, own: Literal["--state-dir", "--member"] = "--state-dir"
) -> Callable[[str], list[str]]:
    """Return the command line of a member of an example by its name, whose first letter is its zone."""
    # `arguments`: its arguments, without those of a member.
    session = ["--session-timeout-ms", str(EXPIRING["session_timeout_ms"])]

    def command(name: str) -> list[str]:
        words = ["--zone", name[0], own, name if own == "--member" else str(folder / name)]
        return [sys.executable, "-m", module, *arguments, *session, *words]

    return command


class Members:
    """Members of one group, each a process."""

    def __init__(self, command: Callable[[str], Sequence[str]], folder: Path, fatal: Sequence[str] = ()) -> None:
        # `fatal`: texts, one of which is in the output of a member that may end by itself, as one whose transaction has
        # timed out does. A supervisor would start it again.
        self._command = command
        self._folder = folder
        self._fatal = fatal
        self._before: dict[str, int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        """Start members; from the main thread, if they are to end with the thread that has started them."""
        for name in names:
            with (self._folder / f"{name}.out").open("ab") as out:
                self._before[name] = out.tell()
                self.running[name] = subprocess.Popen(self._command(name), stdout=out, stderr=subprocess.STDOUT)

    def kill(self, *names: str) -> None:
        for name in names:
            assert self.running[name].poll() is None or self._ended_by_itself(name), self.output(name)
            self.running[name].kill()
        for name in names:
            self.running.pop(name).wait()

    def signal(self, number: signal.Signals, *names: str) -> None:
        for name in names:
            self.running[name].send_signal(number)

    def restart_ended(self) -> None:
        """Start those again that have ended by themselves, and check that they had a reason."""
        for name in [name for name, process in self.running.items() if process.poll() is not None]:
            assert self._ended_by_itself(name), self.output(name)
            self.start(name)

    def _ended_by_itself(self, name: str) -> bool:
        """Return whether a member that has ended was allowed to."""
        return any(text in self.output(name) for text in self._fatal)

    def output(self, name: str) -> str:
        """Return the end of what a member has written since its last start."""
        return (self._folder / f"{name}.out").read_bytes()[self._before[name] :].decode("utf-8", "replace")[-3000:]

    def stacks(self, *, wait_s: float = 2.0) -> str:
        """Return the end of each member's output, with the stacks of all its threads if it writes them on SIGUSR1."""
        for process in self.running.values():
            if process.poll() is None and _heeds(signal.SIGUSR1, process.pid):
                process.send_signal(signal.SIGUSR1)
        time.sleep(wait_s)
        return "\n".join(f"---- {name}\n{self.output(name)}" for name in self.running)

    def terminate(self, *names: str) -> None:
        """Have members end as services are ended; they run until they have."""
        for name in names:
            process = self.running[name]
            # One that was started just now would be killed by it.
            wait_until(
                lambda process=process: process.poll() is not None or _heeds(signal.SIGTERM, process.pid),  # type: ignore[misc]
                f"{name} can be ended",
                timeout_s=_TIMEOUT_S,
            )
            process.terminate()

    def end(self) -> None:
        """End all as a service is ended, and check that they do."""
        self.terminate(*self.running)
        for name, process in self.running.items():
            code = process.wait(_END_S)
            assert code == 0 or self._ended_by_itself(name), f"{name} ended with {code}: {self.output(name)}"
        self.running.clear()

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


def _heeds(number: signal.Signals, pid: int) -> bool:
    """Return whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def records(bootstrap: str, topic: str, partition: int, isolation: str = "read_uncommitted") -> list[Any]:
    """Return all records of a partition."""
    tp = KafkaPythonPartition(topic, partition)
    found: list[Any] = []
    config = {"bootstrap_servers": bootstrap, "isolation_level": isolation, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(**config)) as reader:
        reader.assign([tp])
        end = reader.end_offsets([tp])[tp]
        while reader.position(tp) < end:
            for batch in reader.poll(timeout_ms=_READ_MS).values():
                found += batch
    return found


def state_of(bootstrap: str, changelog: str, partition: int) -> dict[bytes, bytes]:
    """Return the state of a task as its changelog has it."""
    state: dict[bytes, bytes] = {}
    for record in records(bootstrap, changelog, partition, "read_committed"):
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


class Ends:
    """How far topics and their changelog are."""

    def __init__(self, bootstrap: str, topics: Sequence[str], changelog: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._changelog = changelog
        self._partitions = partitions
        self._reader = KafkaConsumer(bootstrap_servers=bootstrap)

    def of(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition."""
        tps = [KafkaPythonPartition(topic, partition) for partition in range(self._partitions)]
        # A changelog is created by the first member, which takes long on a busy machine.
        ends = self._reader.end_offsets(tps, timeout_ms=int(_TIMEOUT_S * 1000))
        return {tp.partition: end for tp, end in ends.items()}

    def wait_for_commits(self, *, all_partitions: bool = False) -> None:
        """Wait until the changelog of a partition, or of each, is longer than now."""
        before = self.of(self._changelog)
        needed: Callable[[Iterator[bool]], bool] = all if all_partitions else any
        wait_until(
            lambda: needed(end > before[partition] for partition, end in self.of(self._changelog).items()),
            "commits",
            timeout_s=_TIMEOUT_S,
        )

    def wait_for_the_end(self) -> None:
        """Wait until the state contains all records."""
        ends = {topic: self.of(topic) for topic in self._topics}
        for partition in range(self._partitions):
            wanted = {topic: ends[topic][partition] for topic in self._topics if ends[topic][partition]}
            wait_until(
                lambda partition=partition, wanted=wanted: self._progress(partition).next == wanted,  # type: ignore[misc]
                f"partition {partition} processed up to {wanted}",
                timeout_s=_TIMEOUT_S,
            )

    def _progress(self, partition: int) -> Progress:
        return decode_progress(state_of(self._bootstrap, self._changelog, partition).get(PROGRESS))

    def close(self) -> None:
        self._reader.close()
