"""The one file of a formatted log directory that only Kafka can write; it is created once and cached."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rackassign.errors import ClusterError
from rackassign.testing.local.broker_config import checkpoint_file, format_command
from rackassign.testing.paths import cache_dir
from rackassign.testing.processes.supervisor import ProcessSupervisor

_NAME = "format"
_TIMEOUT_S = 120.0


def is_formatted(version: str) -> bool:
    """Return whether the checkpoint of a version is cached, because a cluster of it was created before."""
    return _cached(version).exists()


def _cached(version: str) -> Path:
    return cache_dir() / "formatted" / f"kafka-{version}.checkpoint"


def bootstrap_checkpoint(
    supervisor: ProcessSupervisor, java: Path, version: str, jars: Sequence[Path], scratch: Path
) -> Path:
    """Return a `checkpoint_file` that Kafka's storage tool wrote for new clusters of a version.

    The file contains the features of a new cluster and nothing specific to one cluster, so all clusters use one file.

    Args:
        supervisor: Supervisor that runs the tool, so that the tool ends with its owner.
        java: The `java` executable.
        version: Full version of Kafka.
        jars: The jars of that version.
        scratch: Directory to create for the tool, below the directory of the cluster.

    Raises:
        ClusterError: The tool fails; the message has its output.
    """
    cached = _cached(version)
    if cached.exists():
        return cached
    scratch.mkdir()
    log = scratch / "format.log"
    supervisor.start(_NAME, format_command(java, version, jars, scratch), log)
    has_ended = supervisor.wait_exit([_NAME], _TIMEOUT_S)
    if not has_ended or supervisor.exit_code(_NAME) != 0:
        output = log.read_text("utf-8", "replace")[-3000:]
        raise ClusterError(f"Kafka's storage tool ended with {supervisor.exit_code(_NAME)}:\n{output}")
    cached.parent.mkdir(parents=True, exist_ok=True)
    # Several clusters may do this at the same time: each renames an equal file atomically.
    unfinished = cached.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes((scratch / "data" / checkpoint_file(version)).read_bytes())
    unfinished.replace(cached)
    return cached
