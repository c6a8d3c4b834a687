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
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli.output import Output, check_output, plain_text
from rackassign.cli.progress import progress_display
from rackassign.errors import ConfigError
from rackassign.util.file_lock import lock, try_lock

if TYPE_CHECKING:
    from rackassign.testing import LocalCluster

NO = 1

app = typer.Typer(help="A local multi-rack Kafka to play with.", rich_markup_mode=None)

Name = Annotated[str, typer.Option(help="Name of the cluster, if there is more than one.")]


@app.command()
def up(
    *,
    racks: Annotated[
        str, typer.Option(help="Rack of each broker, separated by commas; an empty one is no rack.")
    ] = "a,b,c",
    name: Name = "default",
    output: Output = "table",
) -> int:
    """Start a cluster and keep it running until Ctrl-C or `rackassign cluster down`."""
    from rackassign.testing import LocalCluster  # noqa: PLC0415 - another extra

    check_output(output, "table", "json")
    signal.signal(signal.SIGTERM, _stop)
    with _registered(name), progress_display() as show:
        cluster = LocalCluster([rack.strip() or None for rack in racks.split(",")], progress=show.on_progress)
        with cluster:
            show.show_step("Up; Ctrl-C ends it")
            _print(cluster, output)
            while True:
                signal.pause()


@app.command()
def down(*, name: Name = "default") -> int:
    """Stop a cluster that `rackassign cluster up` keeps running in another process."""
    file = _file(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as note:
        if not try_lock(note):
            # The lock is held, so the process that wrote its number there is alive.
            note.seek(0)
            holder = note.read()
            if not holder:
                raise ConfigError(f"the cluster {name!r} is only just starting; try again")
            os.kill(int(holder), signal.SIGTERM)
            lock(note)
            return 0
    sys.stderr.write(f"rackassign: no cluster {name!r} is up\n")
    return NO


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _file(name: str) -> Path:
    if not name.isidentifier():
        raise ConfigError(f"name must be letters, digits and _, got {name!r}")
    from rackassign.testing import cache_dir  # noqa: PLC0415 - another extra

    return cache_dir() / "up" / f"{name}.json"


@contextmanager
def _registered(name: str) -> Iterator[None]:
    """Leave a note of this process for `down`, locked for as long as the cluster is up."""
    file = _file(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as note:
        if not try_lock(note):
            raise ConfigError(f"a cluster {name!r} is up already; end it with: rackassign cluster down --name {name}")
        note.truncate(0)
        note.write(str(os.getpid()))
        note.flush()
        yield


def _print(cluster: LocalCluster, output: str) -> None:
    if output == "json":
        brokers = [{"id": b.id, "rack": b.rack, "host": b.host, "port": b.port} for b in cluster.brokers]
        sys.stdout.write(json.dumps({"bootstrap": cluster.bootstrap, "brokers": brokers}) + "\n")
        sys.stdout.flush()
        return
    console = Console(highlight=False)
    console.print("bootstrap", cluster.bootstrap, soft_wrap=True)
    table = Table()
    for column in ("broker", "rack", "address"):
        table.add_column(column)
    for broker in cluster.brokers:
        table.add_row(str(broker.id), plain_text(broker.rack or "-"), f"{broker.host}:{broker.port}")
    console.print(table)
