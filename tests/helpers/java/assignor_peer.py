"""Kafka's own assignors as a peer: what they decide for a group, and how long they take.

Rules of this room:

* Nothing of Kafka is rebuilt here. `AssignorPeer.java` puts a scenario in front of the real classes, out of
  the same jars that the brokers of `rackassign.testing` run on.
* One JVM answers many requests, so that it is warm when it is measured.
* No call waits for ever: a JVM that does not answer in time is killed, and that is an error of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

from rackassign.errors import ClusterError, MissingExtraError
from rackassign.testing import KAFKA_VERSION, VERSIONS, cache_dir, find_java, kafka_jars

if TYPE_CHECKING:
    from typing_extensions import Self

Json: TypeAlias = Any
Assignment: TypeAlias = dict[str, dict[str, tuple[int, ...]]]
"""Partition ids by topic by member."""

Assignor = Literal["range", "sticky", "cooperative-sticky"]

ORACLES = ("4.3.0", VERSIONS[-1])
"""Versions of kafka-clients whose assignors are compared with: the one before the newest, and the newest."""

SOURCE = Path(__file__).with_name("AssignorPeer.java")
CLASS = "AssignorPeer"
RELEASE = 17
"""The oldest Java the peer runs on, whatever compiles it."""

_COMPILE_TIMEOUT_S = 600.0
_END_TIMEOUT_S = 600.0
_SHOWN_OF_LOG = 2000


class PeerError(Exception):
    """The peer did not do what it was asked."""


class NoJdkError(PeerError):
    """There is no JDK to compile the peer with; the message says what is missing."""


class JavaRaisedError(PeerError):
    """The assignor, or the reading of the request, raised in Java. The peer goes on answering."""


class PeerLostError(PeerError):
    """The JVM ended or was killed because it did not answer in time. The peer is of no more use."""


class PeerTimeoutError(PeerLostError):
    """The JVM was killed because it did not answer in time."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What a Java assignor decided."""

    # An entry for every member, topics and ids in order.
    assignment: Assignment
    seconds: tuple[float, ...]
    # What each member would have sent with its join; empty if it was not asked for.
    user_data: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Jdk:
    """A Java development kit."""

    javac: Path
    java: Path


def find_jdk() -> Jdk:
    """Find a JDK: in `JAVA_HOME`, beside the Java that brokers run on, or on the `PATH`."""
    places: list[Path] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        places.append(Path(home) / "bin")
    try:
        java = find_java().path
    except ClusterError as error:
        looked = f" ({error})"
    else:
        looked = ""
        # /usr/bin/java is a link, and beside it stands the compiler of whatever JDK is the default.
        places += [java.parent, java.resolve().parent]
    on_path = shutil.which("javac")
    if on_path:
        places.append(Path(on_path).resolve().parent)
    for place in places:
        jdk = Jdk(place / "javac", place / "java")
        if os.access(jdk.javac, os.X_OK) and os.access(jdk.java, os.X_OK):
            return jdk
    raise NoJdkError(f"no javac in JAVA_HOME, beside java or on the PATH{looked}: install a JDK {RELEASE} or later")


@contextmanager
def skipped_without_java() -> Iterator[None]:
    """Skip the test if Java, a JDK or jars are missing, or let it fail where `CI` is true."""
    try:
        yield
    except (NoJdkError, ClusterError, MissingExtraError) as error:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip(str(error))


def compiled(jdk: Jdk, class_path: str, *sources: Path, options: Sequence[str] = ()) -> Path:
    """Return the directory of the compiled sources; they are compiled once for each content, class path and options."""
    contents = b"".join(source.read_bytes() for source in sources)
    digest = hashlib.sha256(contents + " ".join((class_path, str(RELEASE), *options)).encode()).hexdigest()[:16]
    done = cache_dir() / "peer" / digest
    if done.is_dir():
        return done
    done.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=done.parent, prefix="compile-") as work:
        made = Path(work) / "classes"
        command = [str(jdk.javac), "--release", str(RELEASE), *options, "-cp", class_path, "-d", str(made)]
        command += map(str, sources)
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False, errors="replace"
        )
        if ran.returncode:
            raise PeerError(f"{jdk.javac} answers {ran.returncode}: {ran.stderr.strip()}")
        try:
            made.rename(done)
        except OSError:
            # Another process that compiled the same source was first.
            if not done.is_dir():
                raise
    return done


class JavaProcess:
    """A JVM that answers a line of JSON with one, for as long as the `with` block lasts. For one thread."""

    def __init__(
        self, java: Path, class_path: Sequence[str], main: str, *, timeout_s: float = 600.0, heap: str = "2g"
    ) -> None:
        # `timeout_s`: how long one answer may take.
        # `heap`: the most memory the JVM may use for objects, as `java -Xmx` takes it.
        self._command = [str(java), f"-Xmx{heap}", "-cp", os.pathsep.join(class_path), main]
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        # A file, because a pipe that nobody reads would stop the JVM once it is full.
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._running().pid

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise PeerLostError("the JVM is not running: it runs inside its with block")
        return self._process

    def _exchange(self, line: bytes | None, timeout_s: float) -> dict[str, Json]:
        """Send a line, if any, and read one."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        # Killing the JVM closes both pipes, so that neither a write nor a read is left waiting.
        timer = threading.Timer(timeout_s, expire)
        timer.start()
        try:
            if line is not None:
                process.stdin.write(line)
                process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            timer.cancel()
        if not answer.endswith(b"\n"):
            process.kill()
            code = process.wait(_END_TIMEOUT_S)
            if expired.is_set():
                raise PeerTimeoutError(f"the JVM did not answer in {timeout_s:g} s{self._logged()}")
            raise PeerLostError(f"the JVM ended with code {code}{self._logged()}")
        read: dict[str, Json] = json.loads(answer)
        return read

    def _logged(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return f": {text[-_SHOWN_OF_LOG:]}" if text else ""

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            # It has nothing to save, and one that is busy would not notice that its requests have ended.
            process.kill()
            process.wait(_END_TIMEOUT_S)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except BrokenPipeError:
                    # A request that was never read; whoever sent it has been told.
                    continue
        if self._log is not None:
            self._log.close()


class JavaPeer(JavaProcess):
    """A JVM with Kafka's assignors, for as long as the `with` block lasts. For one thread."""

    def __init__(self, *, timeout_s: float = 600.0, heap: str = "2g", version: str = KAFKA_VERSION) -> None:
        # `timeout_s`: how long one answer may take, warm-up and all repetitions together.
        # `heap`: the most memory the JVM may use for objects, as `java -Xmx` takes it.
        jdk = find_jdk()
        class_path = os.pathsep.join(map(str, kafka_jars(version=version)))
        classes = compiled(jdk, class_path, SOURCE)
        super().__init__(jdk.java, (str(classes), class_path), CLASS, timeout_s=timeout_s, heap=heap)
        self.java_version = ""
        self.kafka_version = ""

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            hello = self._exchange(None, self._timeout_s)
        except BaseException:
            self._end()
            raise
        self.java_version, self.kafka_version = hello["java"], hello["kafka"]
        return self

    def assign(
        self,
        scenario: Mapping[str, Json],
        assignor: Assignor = "range",
        *,
        repeat: int = 1,
        warmup: int = 0,
        user_data: bool = False,
        timeout_s: float | None = None,
    ) -> PeerAnswer:
        """Let a Java assignor decide."""
        # `warmup`: calls before those, not timed.
        request = _compact(scenario) | {"assignor": assignor, "repeat": repeat, "warmup": warmup}
        if user_data:
            request["user_data"] = True
        line = json.dumps(request, separators=(",", ":")).encode("ascii") + b"\n"
        answer = self._exchange(line, self._timeout_s if timeout_s is None else timeout_s)
        if "error" in answer:
            raise JavaRaisedError(answer["error"])
        return PeerAnswer(
            assignment={
                member: {topic: tuple(ids) for topic, ids in owned.items()}
                for member, owned in answer["assignment"].items()
            },
            seconds=tuple(nanos / 1e9 for nanos in answer["nanos"]),
            user_data={
                member: None if sent is None else bytes.fromhex(sent)
                for member, sent in answer.get("user_data", {}).items()
            },
        )


def _compact(scenario: Mapping[str, Json]) -> dict[str, Json]:
    """Write each different list of topics once, and members with its place."""
    places: dict[tuple[str, ...], int] = {}
    members = [
        {**member, "topics": places.setdefault(tuple(member["topics"]), len(places))} for member in scenario["members"]
    ]
    return {**scenario, "members": members, "subscriptions": [list(topics) for topics in places]}
