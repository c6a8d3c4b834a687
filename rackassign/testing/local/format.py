"""The one file of a formatted log directory that only Kafka can write; it is created once and cached."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rackassign.errors import ClusterError
from rackassign.testing.local.broker_config import CHECKPOINT, format_command
from rackassign.testing.local.jars import KAFKA_VERSION
from rackassign.testing.paths import cache_dir
from rackassign.testing.processes.supervisor import ProcessSupervisor

_NAME = "format"
_TIMEOUT_S = 120.0


def bootstrap_checkpoint(keeper: ProcessSupervisor, java: Path, jars: Sequence[Path], scratch: Path) -> Path:
    """Return a `bootstrap.checkpoint` that Kafka's storage tool wrote for new clusters of this version.

    The file contains the features of a new cluster and nothing specific to one cluster, so all clusters use one file.

    Args:
        keeper: Supervisor that runs the tool, so that the tool ends with its owner.
        java: The `java` executable.
        jars: The jars of Kafka.
        scratch: Directory to create for the tool, below the directory of the cluster.

    Raises:
        ClusterError: The tool fails; the message has its output.
    """
    kept = cache_dir() / "formatted" / f"kafka-{KAFKA_VERSION}.checkpoint"
    if kept.exists():
        return kept
    scratch.mkdir()
    log = scratch / "format.log"
    keeper.start(_NAME, format_command(java, jars, scratch), log)
    ended = keeper.wait_exit([_NAME], _TIMEOUT_S)
    if not ended or keeper.exit_code(_NAME) != 0:
        said = log.read_text("utf-8", "replace")[-3000:]
        raise ClusterError(f"Kafka's storage tool ended with {keeper.exit_code(_NAME)}:\n{said}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Several clusters may do this at the same time: each renames an equal file atomically.
    unfinished = kept.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes((scratch / "data" / CHECKPOINT).read_bytes())
    unfinished.replace(kept)
    return kept
