"""A consumer of Kafka's own Java client as a member of a group, in a JVM of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rackassign.model import TopicPartition
from rackassign.testing import kafka_jars
from tests.helpers.java.assignor_peer import compiled, find_jdk, skipped_without_java

if TYPE_CHECKING:
    from typing_extensions import Self

SOURCE = Path(__file__).with_name("GroupMember.java")
CLASS = "GroupMember"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"

# Guards against a hang: Java's own close() takes up to 30 s on a busy machine.
_LEAVE_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 600.0
_SHOWN_OF_LOG = 2000


class JavaMemberError(Exception):
    """The JVM ended by itself, or did not end when it was asked to; the message has the end of its log."""


def java_command() -> list[str]:
    """Return the command that runs a member; without JDK or jars the test is skipped, or fails where `CI` is true."""
    with skipped_without_java():
        jdk, class_path = find_jdk(), os.pathsep.join(map(str, kafka_jars()))
    classes = compiled(jdk, class_path, SOURCE)
    # One member needs little, and the machine has brokers on it.
    small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [str(jdk.java), *small, "-cp", os.pathsep.join((str(classes), class_path)), CLASS]


class JavaMember:
    """A member as long as the `with` block lasts; at its end it leaves the group.

    It joins and polls by itself. Nothing here waits for that: look at `assignment()` until it is what it should be.
    """

    def __init__(self, command: Sequence[str], topics: Sequence[str], config: Mapping[str, str]) -> None:
        self._command = command
        self._request = json.dumps({"topics": list(topics), "config": dict(config)}).encode("ascii") + b"\n"
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {"member": "", "assigned": {}}
        self._read: Counter[str] = Counter()
        self._incoming: dict[str, int] = {}

    def __enter__(self) -> Self:
        # A file, because a pipe that nobody reads would stop the JVM once it is full.
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        self._listener = threading.Thread(target=self._listen, name="java-member", daemon=True)
        self._listener.start()
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(self._request)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.kill()
            raise JavaMemberError(f"the Java member ended before it was asked anything{self._release()}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        problem = ""
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            code = self._process.wait(_LEAVE_TIMEOUT_S)
            if code:
                problem = f"ended with code {code}"
        except subprocess.TimeoutExpired:
            problem = f"did not leave in {_LEAVE_TIMEOUT_S:g} s"
        finally:
            self._process.kill()
            logged = self._release()
        # An error on its way out says more than what came of it.
        if problem and kind is None:
            raise JavaMemberError(f"the Java member {problem}{logged}")

    @property
    def id(self) -> str:
        """Its member id; empty before it has joined."""
        with self._lock:
            return str(self._state["member"])

    def poll(self) -> None:
        """Notice if the JVM has ended; to poll is its own affair."""
        code = self._process.poll()
        if code is not None:
            raise JavaMemberError(f"the Java member ended with code {code}{self._logged()}")

    def assignment(self) -> frozenset[TopicPartition]:
        """Return what it owns, as it said last."""
        with self._lock:
            assigned = self._state["assigned"]
        return frozenset(TopicPartition(topic, p) for topic, partitions in assigned.items() for p in partitions)

    def records(self) -> Counter[TopicPartition]:
        """Return how many records it has read of each partition."""
        with self._lock:
            read = dict(self._read)
        places = {name: name.rpartition("-") for name in read}
        return Counter({TopicPartition(places[n][0], int(places[n][2])): count for n, count in read.items()})

    def incoming(self) -> dict[int, int]:
        """Return all bytes that have come from each broker, as of the last poll that brought records."""
        with self._lock:
            return {int(broker): size for broker, size in self._incoming.items()}

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._lock:
                if "read" in said:
                    self._read.update(said["read"])
                elif "incoming" in said:
                    self._incoming = said["incoming"]
                else:
                    self._state = said

    def _logged(self) -> str:
        # By a place of its own, since the JVM goes on writing where the file stands.
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _SHOWN_OF_LOG, max(0, size - _SHOWN_OF_LOG))
        return f": {text.decode(errors='replace').strip()}" if text else ""

    def _release(self) -> str:
        """Wait for the ended JVM, let go of all that belongs to it, and return the end of its log."""
        self._process.wait(_END_TIMEOUT_S)
        self._listener.join(_END_TIMEOUT_S)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            # A request that the JVM did not live to read is still in the pipe.
            self._process.stdin.close()
        self._process.stdout.close()
        logged = self._logged()
        self._log.close()
        return logged
