"""`rackassign cluster up` and `down`: a real multi-rack cluster to play with."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import psutil
import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli.progress import steps
from rackassign.errors import ConfigError
from rackassign.testing import LocalCluster, cache_dir

NO = 1
STOP_TIMEOUT_S = 60

app = typer.Typer(help="A local multi-rack Kafka to play with.", rich_markup_mode=None)

Name = Annotated[str, typer.Option(help="Of the cluster, if there is more than one.")]


@app.command()
def up(
    *,
    racks: Annotated[str, typer.Option(help="Rack of each broker, by comma; an empty one is none.")] = "a,b,c",
    name: Name = "default",
    output: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> int:
    """Start a cluster and keep it up until Ctrl-C or `rackassign cluster down`."""
    if output not in {"table", "json"}:
        raise ConfigError(f"output must be table or json, got {output!r}")
    signal.signal(signal.SIGTERM, _stop)
    with _registered(name), steps() as show:
        cluster = LocalCluster([rack.strip() or None for rack in racks.split(",")], progress=show.heard)
        with cluster:
            show.say("Up; Ctrl-C ends it")
            _print(cluster, output)
            while True:
                signal.pause()


@app.command()
def down(*, name: Name = "default") -> int:
    """Stop a cluster that `rackassign cluster up` keeps up elsewhere."""
    process = _running(_file(name))
    if process is None:
        sys.stderr.write(f"rackassign: no cluster {name!r} is up\n")
        return NO
    process.terminate()
    process.wait(STOP_TIMEOUT_S)
    return 0


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _file(name: str) -> Path:
    if not name.isidentifier():
        raise ConfigError(f"name must be letters, digits and _, got {name!r}")
    return cache_dir() / "up" / f"{name}.json"


@contextmanager
def _registered(name: str) -> Iterator[None]:
    """Leave a note of this process for `down` while the cluster is up."""
    file = _file(name)
    if _running(file) is not None:
        raise ConfigError(f"a cluster {name!r} is up already; end it with: rackassign cluster down --name {name}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"pid": os.getpid(), "created": psutil.Process().create_time()}))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _running(file: Path) -> psutil.Process | None:
    """Return the process of a note, if it still is that process and not another of the same number."""
    try:
        note = json.loads(file.read_text())
        process = psutil.Process(note["pid"])
        return process if process.create_time() == note["created"] else None
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None


def _print(cluster: LocalCluster, output: str) -> None:
    if output == "json":
        brokers = [{"id": b.id, "rack": b.rack, "host": b.host, "port": b.port} for b in cluster.brokers]
        sys.stdout.write(json.dumps({"bootstrap": cluster.bootstrap, "brokers": brokers}) + "\n")
        sys.stdout.flush()
        return
    table = Table(title="bootstrap: " + cluster.bootstrap)
    for column in ("broker", "rack", "address"):
        table.add_column(column)
    for broker in cluster.brokers:
        table.add_row(str(broker.id), broker.rack or "-", f"{broker.host}:{broker.port}")
    Console().print(table)
