"""The commands and how they end: which exit code, and one line for what went wrong."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from rackassign import __version__
from rackassign.cli.commands import cluster, reassign_status
from rackassign.cli.commands.audit import audit
from rackassign.cli.commands.balance_leaders import balance_leaders
from rackassign.cli.commands.create_topic import create_topic
from rackassign.cli.commands.demo import demo
from rackassign.cli.commands.detect_rack import detect_rack_command
from rackassign.cli.commands.doctor import doctor
from rackassign.cli.commands.exporter import exporter
from rackassign.cli.commands.fleet import fleet
from rackassign.cli.commands.inspect import inspect
from rackassign.cli.commands.plan import plan
from rackassign.cli.commands.simulate_placement import simulate_placement
from rackassign.cli.commands.snapshot import snapshot
from rackassign.cli.commands.spark_doctor import spark_doctor
from rackassign.cli.commands.top import top
from rackassign.errors import ClusterError, KafkaUnavailableError, RackassignError
from rackassign.util.text import strip_control_chars

DONE, BAD_INPUT, NO_ANSWER = 0, 2, 3
INTERRUPTED = 128 + signal.SIGINT

app = typer.Typer(
    name="rackassign",
    help="Rack-aware partition assignment for Kafka consumers.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(audit)
app.command()(balance_leaders)
app.command()(create_topic)
app.command()(demo)
app.command("detect-rack")(detect_rack_command)
app.command()(doctor)
app.command()(exporter)
app.command()(fleet)
app.command()(inspect)
app.command()(plan)
app.command()(simulate_placement)
app.command()(snapshot)
app.command()(spark_doctor)
app.command()(top)
app.add_typer(cluster.app, name="cluster")
app.add_typer(reassign_status.app, name="reassign")


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"rackassign {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version.", callback=lambda wanted: _version(wanted=wanted), is_eager=True
        ),
    ] = False,
) -> None:
    pass


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: Words behind `rackassign`; the process's own if left out.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        result = app(words or ["--help"], standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except typer.TyperException as error:
        return _fail(error.format_message(), BAD_INPUT)
    except (ClusterError, KafkaUnavailableError) as error:
        return _fail(str(error), NO_ANSWER)
    except RackassignError as error:
        return _fail(str(error), BAD_INPUT)
    return result if isinstance(result, int) else DONE


def _fail(message: str, code: int) -> int:
    # What others chose may be in it; a broker's last words have several lines.
    shown = "\n".join(map(strip_control_chars, message.split("\n")))
    sys.stderr.write(f"rackassign: {shown}\n")
    return code
