"""The commands and how they end: which exit code, and one line for what went wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup  # type: ignore[attr-defined] # click is its own now

from rackassign import __version__
from rackassign.cli import ExitCode
from rackassign.cli.terminal import discard, exit_codes, warn, write_note
from rackassign.errors import ClusterError, KafkaUnavailableError, RackassignError


class _Command(NamedTuple):
    """Where a command is, and its line in the help of the program."""

    module: str
    help: str
    app: str = "app"


_COMMANDS: Mapping[str, _Command] = {
    "audit": _Command("placement", "Check replica placement."),
    "balance-leaders": _Command("reassign", "Balance partition leaders without copying data.", "leaders_app"),
    "bill": _Command("bill", "Show what Kafka's traffic between racks costs, who causes it, and what to set."),
    "create-topic": _Command("placement", "Create a topic, also while brokers are offline, if it stays writable."),
    "demo": _Command(
        "cluster",
        "Start a real three-rack Kafka, read a topic with and without rackassign, and print the bytes measured.",
        "demo_app",
    ),
    "detect-rack": _Command("doctor", "Detect the rack of this machine and its source."),
    "doctor": _Command("doctor", "Find what keeps a group from being rack-aware, or from working."),
    "estimate": _Command("estimate", "Estimate what a group's reads cost across zones, with and without rackassign."),
    "exporter": _Command(
        "exporter", "Serve cross-rack reads as Prometheus metrics until stopped; all groups unless some are named."
    ),
    "inspect": _Command(
        "inspect", "Report cross-rack reads of consumer groups, their cost and the changes that gain most."
    ),
    "plan": _Command("plan", "Compute the assignment of a consumer group offline."),
    "scale": _Command(
        "scale", "Compute how many members of a group in each rack read most partitions locally, and which are useful."
    ),
    "simulate-placement": _Command("placement", "Simulate the placement of a layout's replicas and print its metrics."),
    "snapshot": _Command("snapshot", "Export live consumer groups as scenarios for `rackassign plan`."),
    "spark-doctor": _Command("spark_doctor", "Report the racks of executors and the local share to expect."),
    "top": _Command("top", "Show cross-rack reads of consumer groups live until stopped."),
    "cluster": _Command("cluster", "A local multi-rack Kafka to play with."),
    "reassign": _Command(
        "reassign", "Reassign partitions: add missing replicas, spread them over racks, remove brokers."
    ),
    "state": _Command("state", "The state of groups of StatefulConsumer."),
    "broker-plugin": _Command("broker_plugin", "The rack-aware assignor that runs in brokers (KIP-848)."),
}


class LazyCommands(TyperGroup):
    """The commands of the program; the module of one is imported when it is run, or its help is shown.

    Clients, the solver, Arrow and Spark take longer to import than most commands run, and some need an extra.
    """

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as typer calls it
        # Of these only the names are used: to suggest one for a name that is misspelled.
        super().__init__(**{**attributes, "commands": dict.fromkeys(_COMMANDS)})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002, ANN401 - as typer calls it
        """Return the names of all commands."""
        return [*_COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002, ANN401 - as typer calls it
        """Return a command; None if there is none of the name."""
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module = import_module(f"rackassign.cli.commands.{place.module}")
        group = typer.main.get_group(getattr(module, place.app))
        command = group.commands.get(cmd_name, group)
        command.name = cmd_name
        return command

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:  # noqa: ANN401 - as typer calls it
        """Return the commands that begin with a text, for which nothing is imported, or the options."""
        if incomplete.startswith("-"):
            return TyperCommand.shell_complete(self, ctx, incomplete)
        return [CompletionItem(n, help=place.help) for n, place in _COMMANDS.items() if n.startswith(incomplete)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002, ANN401 - as typer calls it
        """Write the help of the program, for which nothing is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.help) for name, place in _COMMANDS.items()])


app = typer.Typer(
    cls=LazyCommands,
    name="rackassign",
    help="Rack-aware partition assignment for Kafka consumers.",
    epilog=exit_codes(),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
    """Run one command and return its exit code."""
    # `arguments`: words behind `rackassign`; the process's own if left out.
    if sys.stdout is None:
        return _fail("the output cannot be written: standard output is closed", ExitCode.NOT_WRITTEN)
    for stream in (sys.stdout, sys.stderr):
        # What cannot be encoded is escaped. pytest's streams cannot be configured, and a closed one is None.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except SystemExit as end:
        # That is how typer and rich end when the reader of the output has.
        if end.code != 1:
            raise
        return _unwritten(BrokenPipeError())
    except OSError as error:
        # Commands catch what files and connections raise.
        if error.filename is not None:
            raise
        return _unwritten(error)
    return code


def _run(words: list[str]) -> int:
    try:
        result = app(words or ["--help"], standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except typer.TyperException as error:
        return _fail(_usage_problem(error), ExitCode.BAD_INPUT)
    except ClusterError as error:
        # The end of a broker's log can be in it, which has several lines.
        first, *others = str(error).split("\n")
        warn(first)
        for line in others:
            write_note(line)
        return ExitCode.NO_ANSWER
    except KafkaUnavailableError as error:
        return _fail(str(error), ExitCode.NO_ANSWER)
    except RackassignError as error:
        return _fail(str(error), ExitCode.BAD_INPUT)
    return result if isinstance(result, int) else ExitCode.DONE


def _usage_problem(error: typer.TyperException) -> str:
    """Return what is wrong with the words of a command, in one line."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if message == "Missing command." and context is not None:
        known = ", ".join(context.command.list_commands(context))
        return f"{context.info_name}: expected one of its commands: {known}"
    return message


def _fail(message: str, code: int) -> int:
    warn(message)
    return code


def _unwritten(failure: OSError) -> int:
    discard(1)
    if isinstance(failure, BrokenPipeError):
        # That is how a pipe ends, so there is nothing to report.
        return ExitCode.PIPE_CLOSED
    return _fail(f"the output cannot be written: {failure.strerror}", ExitCode.NOT_WRITTEN)
