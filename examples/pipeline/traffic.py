"""What happens on the cluster: groups read as they are, are looked at, and read again with rackassign."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaProducer

from examples.pipeline.groups import AFTER, BEFORE, RACKS, Team, reading, spoil
from rackassign.errors import ClusterError

SNAPSHOTS = "snapshots"
"""The folder of snapshots of the groups, in the folder of the results."""

TEAMS = (Team("billing", fetches_near=False), Team("search", fetches_near=True))
RECORD_BYTES, RECORDS_S = 10_000, 200
PARTITIONS = 9
# Each pair of racks equally often, in another order than members are dealt partitions.
REPLICAS = [[(p + p // 3 + i) % 3 + 1 for i in range(2)] for p in range(PARTITIONS)]


@dataclass(frozen=True, slots=True)
class Names:
    """What is read by whom, and where the results go.

    Args:
        bootstrap: Of the cluster.
        topic: What the groups read; nine partitions.
        counters: Where they publish what they have read.
        results: Where the streaming job sends its windows.
        folder: For the snapshot, the tables and the page.
        teams: The groups.
    """

    bootstrap: str
    topic: str
    counters: str
    results: str
    folder: Path
    teams: Sequence[Team] = TEAMS


def traffic(names: Names, seconds: float) -> int:
    """Let the groups read, first as they are, of which a snapshot is taken, then with rackassign.

    Returns:
        How many bad messages there are.
    """
    shared = (names.bootstrap, names.topic, names.counters, names.teams)
    with _written(names.bootstrap, names.topic, PARTITIONS):
        with closing(reading(*shared, BEFORE)) as read:
            # They have settled by then.
            next(read)
            with _snapshot(names, seconds) as taking:
                while next(read) < seconds or taking.poll() is None:
                    pass
                if taking.returncode:
                    raise ClusterError(f"the snapshot of the groups failed with {taking.returncode}")
        with closing(reading(*shared, AFTER)) as read:
            while next(read) < seconds:
                pass
    return spoil(names.bootstrap, names.counters)


@contextmanager
def _written(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """Write to a topic at a constant rate for as long as the block takes."""
    over = threading.Event()

    def write(producer: KafkaProducer) -> None:
        start, sent = time.monotonic(), 0
        while not over.wait(0.02):
            for number in range(sent, int((time.monotonic() - start) * RECORDS_S)):
                producer.send(topic, os.urandom(RECORD_BYTES), partition=number % partitions)
                sent = number + 1

    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)) as producer:
        writing = threading.Thread(target=write, args=(producer,), name="writing")
        writing.start()
        try:
            yield
        finally:
            over.set()
            writing.join()


@contextmanager
def _snapshot(names: Names, interval: float) -> Iterator[subprocess.Popen[bytes]]:
    """Take a snapshot of the groups as anybody would, while they read; none is left running."""
    near = [f"{team.group}-*" for team in names.teams if team.fetches_near]
    racks = names.folder / "racks.json"
    racks.write_text(
        json.dumps({"client_ids": {f"*-{rack}": rack for rack in RACKS}, "follower_fetchers": near}), "utf-8"
    )
    words = ["--bootstrap-server", names.bootstrap, "--rack-map", str(racks), "--interval", str(interval)]
    wanted = [word for team in names.teams for word in ("--group", team.group)]
    command = [
        sys.executable,
        "-m",
        "rackassign",
        "snapshot",
        *words,
        *wanted,
        "--parquet",
        str(names.folder / SNAPSHOTS),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
