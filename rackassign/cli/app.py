"""The commands and how they end: which exit code, and one line for what went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer

from rackassign import __version__
from rackassign.cli.commands import cluster, reassign_status, state
from rackassign.cli.commands.audit import audit
from rackassign.cli.commands.balance_leaders import balance_leaders
from rackassign.cli.commands.cluster import demo
from rackassign.cli.commands.create_topic import create_topic
from rackassign.cli.commands.detect_rack import detect_rack_command
from rackassign.cli.commands.doctor import doctor
from rackassign.cli.commands.estimate import estimate
from rackassign.cli.commands.exporter import exporter
from rackassign.cli.commands.fleet import fleet, snapshot
from rackassign.cli.commands.inspect import inspect
from rackassign.cli.commands.plan import plan
from rackassign.cli.commands.simulate_placement import simulate_placement
from rackassign.cli.commands.spark_doctor import spark_doctor
from rackassign.cli.commands.state_clean import clean as clean_state
from rackassign.cli.commands.state_reset import reset as reset_state
from rackassign.cli.commands.top import top
from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.terminal import examples, exit_codes, guarded_streams, warn
from rackassign.errors import ClusterError, ConfigError, KafkaUnavailableError, RackassignError
from rackassign.text import strip_control_chars

app = typer.Typer(
    name="rackassign",
    help="Rack-aware partition assignment for Kafka consumers.",
    epilog=exit_codes(),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_SERVER = "--bootstrap-server localhost:9092"

app.command(
    epilog=examples(f"audit {_SERVER}", f"audit {_SERVER} --topic orders --expected-replication-factor 3"),
)(audit)
app.command(
    epilog=examples(f"balance-leaders {_SERVER} --dry-run", f"balance-leaders {_SERVER} --balance-by rack"),
)(balance_leaders)
app.command(
    epilog=examples(
        f"create-topic orders --partitions 12 {_SERVER}",
        f"create-topic orders --add-partitions 6 {_SERVER} --policy enabled",
    ),
)(create_topic)
app.command(epilog=examples("demo"))(demo)
app.command("detect-rack", epilog=examples("detect-rack", "detect-rack --zone-name --output json"))(detect_rack_command)
app.command(
    epilog=examples(f"doctor {_SERVER} --group billing", f"doctor {_SERVER} --group billing --fix"),
)(doctor)
app.command(
    epilog=examples(
        "estimate --gb-per-day 1000 --consumers 2,1,1 --replication-factor 2",
        "estimate --gb-per-day 1000 --consumers 1,1,1 --no-follower-fetching --cloud google",
    ),
)(estimate)
app.command(
    epilog=examples(f"exporter {_SERVER}", f"exporter {_SERVER} --listen 0.0.0.0:9108 --interval 60"),
)(exporter)
app.command(
    epilog=examples("fleet snapshots/", "fleet snapshots/ --what-if all --recommend --html fleet.html"),
)(fleet)
app.command(
    epilog=examples(
        f"inspect {_SERVER} --all-groups",
        f"inspect {_SERVER} --group billing --fail-under 95% --html report.html",
    ),
)(inspect)
app.command(
    epilog=examples(
        "plan group.json --strategy cooperative-sticky --explain --output table",
        f"snapshot {_SERVER} --group billing | rackassign plan --strategy sticky",
    ),
)(plan)
app.command(
    epilog=examples("simulate-placement layout.json --compare", "simulate-placement - --replication-factor 3"),
)(simulate_placement)
app.command(
    epilog=examples(
        f"snapshot {_SERVER} --group billing > group.json",
        f"snapshot {_SERVER} --all-groups --parquet snapshots/ --interval 60",
    ),
)(snapshot)
app.command(
    epilog=examples(f"spark-doctor {_SERVER} --topic orders --master spark://driver:7077"),
)(spark_doctor)
app.command(
    epilog=examples(f"top {_SERVER} --all-groups", f"top {_SERVER} --group billing --interval 10"),
)(top)
state.app.command(
    epilog=examples("state clean --state-dir /var/lib/count", "state clean --state-dir /var/lib/count --execute"),
)(clean_state)
state.app.command(
    epilog=examples(f"state reset {_SERVER} --group count", f"state reset {_SERVER} --group count --execute"),
)(reset_state)
app.add_typer(cluster.app, name="cluster")
app.add_typer(reassign_status.app, name="reassign")
app.add_typer(state.app, name="state")


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
    if os.environ.get("COLUMNS", "").strip() == "0":
        # Some shells set it so for "not known", and rich would print tables without a column.
        del os.environ["COLUMNS"]
    with guarded_streams() as stdout:
        try:
            code = _run(words)
            sys.stdout.flush()
        except (OSError, SystemExit):
            if stdout is None or stdout.failure is None:
                raise
        return code if stdout is None or stdout.failure is None else _unwritten(stdout.failure)


_MAY_BE_EMPTY = frozenset({"--throttle"})
"""Options for which an empty value is documented."""


def _refuse_empty_values(words: Sequence[str]) -> None:
    """Refuse an option with an empty value, with which the command would be as if the option were not given.

    Raises:
        ConfigError: There is one, most often of a variable of a script that is not set.
    """
    given = [*pairwise(words), *(word.split("=", 1) for word in words if "=" in word)]
    empty = {option for option, value in given if option.startswith("--") and not value} - _MAY_BE_EMPTY
    if not empty:
        return
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    for each in command.params:
        # Without its folder `state clean` would clean the directory in which it is started.
        ignored = each.default == "" or each.name == "state_dir"
        if ignored and (found := empty.intersection(each.opts)):
            raise ConfigError(f"{min(found)}: expected a value, got an empty one: is a variable not set?")


def _run(words: list[str]) -> int:
    try:
        _refuse_empty_values(words)
        result = app(words or ["--help"], standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except typer.TyperException as error:
        return _fail(_usage_problem(error), ExitCode.BAD_INPUT)
    except ClusterError as error:
        # The end of a broker's log can be in it, which has several lines.
        first, *others = str(error).split("\n")
        warn(first)
        sys.stderr.writelines(f"{strip_control_chars(line)}\n" for line in others)
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
    if isinstance(failure, BrokenPipeError):
        # That is how a pipe ends, so there is nothing to report.
        return ExitCode.PIPE_CLOSED
    return _fail(f"the output cannot be written: {failure.strerror}", ExitCode.NOT_WRITTEN)
