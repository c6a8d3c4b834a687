"""An archive of the classes that a broker loads: with it brokers start in half the processor time (JEP 350).

It is made once for each Java runtime and version of Kafka, by a broker of its own that starts and stops, and is cached.
Without it everything works as well, so nothing here fails: a JVM ignores an archive that does not fit it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from rackassign.errors import ClusterError
from rackassign.testing.local.broker_config import (
    broker_command,
    checkpoint_file,
    plan_brokers,
    ports_needed,
    write_files,
)
from rackassign.testing.paths import cache_dir
from rackassign.testing.ports import reserve_ports
from rackassign.testing.processes.supervisor import ProcessSupervisor

log = logging.getLogger(__name__)

_NAME = "class-archive"
_TIMEOUT_S = 180.0
_LOOK_S = 0.1
_UNUSED_S = 90 * 86_400.0
_STARTED = "Kafka Server started"


@dataclass(frozen=True, slots=True)
class KafkaRuntime:
    """What runs a broker.

    Args:
        java: The `java` executable.
        version: Full version of Kafka.
        jars: The jars of that version.
    """

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
    """Return the cached archive; None if there is none."""
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
    """Make the archive, or return the one that exists; None if none can be made.

    Args:
        supervisor: Supervisor that runs the broker, so that it ends with its owner.
        runtime: What runs the broker.
        checkpoint: The `checkpoint_file` of the version.
        scratch: Directory to create for the broker, below the directory of the cluster.
    """
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
        supervisor.start(_NAME, broker_command(runtime.java, version, runtime.jars, spec, option), spec.log)
        deadline = time.monotonic() + _TIMEOUT_S
        while _NAME in supervisor.running() and _STARTED not in spec.log.read_text("utf-8", "replace"):
            if time.monotonic() > deadline:
                break
            supervisor.wait_change(_LOOK_S)
        _end(supervisor)


def _end(supervisor: ProcessSupervisor) -> None:
    if _NAME in supervisor.running():
        supervisor.signal(_NAME, signal.SIGTERM)
    if not supervisor.wait_exit([_NAME], _TIMEOUT_S):
        supervisor.signal(_NAME, signal.SIGKILL)
        supervisor.wait_exit([_NAME], _TIMEOUT_S)
