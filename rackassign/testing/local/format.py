"""The one piece of a formatted log directory that only Kafka can write, made once and kept."""

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
    """Return a `bootstrap.checkpoint` as Kafka's storage tool writes it for new clusters of this version.

    It names the features a cluster starts with and nothing of the cluster, so one serves all.

    Args:
        keeper: Runs the tool, so that it too ends with its owner.
        java: The `java` executable.
        jars: Kafka's.
        scratch: A directory to be made for the tool, in the cluster's own.

    Raises:
        ClusterError: The tool fails; the message has what it said.
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
    # Several clusters may do this at once: each puts the same in place in one step.
    unfinished = kept.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes((scratch / "data" / CHECKPOINT).read_bytes())
    unfinished.replace(kept)
    return kept
