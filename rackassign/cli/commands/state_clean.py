"""`rackassign state clean`: delete local files of state that no member needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rackassign.cli.exit_codes import ExitCode
from rackassign.cli.terminal import Output, check_output, plain_console, plain_line, warn
from rackassign.text import counted

if TYPE_CHECKING:
    from rackassign.stateful.local_files import CleanResult


def clean(
    *,
    state_dir: Annotated[str, typer.Option("--state-dir", help="state_dir of a member that does not run.")],
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, help="Age in hours from which on a file is not needed.")
    ] = 12.0,
    execute: Annotated[
        bool, typer.Option("--execute", help="Delete the files; otherwise they are only listed.")
    ] = False,
    output: Output = "table",
) -> int:
    """List local files of state that no member needs, and delete them. Exit 1: some could not be deleted."""
    check_output(output, "table", "json")
    # Imports a client, which other commands do without.
    from rackassign.stateful import local_files  # noqa: PLC0415

    found = local_files.clean(Path(state_dir), older_than, execute=execute)
    for name, reason in found.failures.items():
        warn(f"{name} cannot be deleted: {reason}")
    if output == "json":
        sys.stdout.write(json.dumps(_as_json(state_dir, found, executed=execute)) + "\n")
    else:
        _show(state_dir, found, executed=execute)
    return ExitCode.NO if found.failures else ExitCode.DONE


def _show(state_dir: str, found: CleanResult, *, executed: bool) -> None:
    from rackassign.monitoring.report import format_bytes  # noqa: PLC0415 - imports a client

    console = plain_console()
    if found.unneeded:
        table = Table()
        for column in ("file", "size", "why it is not needed"):
            table.add_column(column, overflow="fold")
        for each in found.unneeded:
            table.add_row(plain_line(each.file.name), format_bytes(each.file.bytes), each.reason)
        console.print(table)
    files = counted(len(found.unneeded), "file")
    if not found.unneeded:
        done = "no file to delete"
    elif executed:
        done = f"{files} deleted, {format_bytes(found.freed)} freed"
        if found.failures:
            done = f"{format_bytes(found.freed)} freed, {counted(len(found.failures), 'file')} could not be deleted"
    else:
        done = f"{files} to delete, {format_bytes(found.bytes)}: --execute deletes them"
    console.print(plain_line(f"{state_dir}: {done}; {found.kept} kept"), soft_wrap=True)


def _as_json(state_dir: str, found: CleanResult, *, executed: bool) -> dict[str, Any]:
    return {
        "state_dir": state_dir,
        "executed": executed,
        "files": [
            {
                "file": each.file.name,
                "topic": each.file.topic,
                "partition": each.file.partition,
                "bytes": each.file.bytes,
                "reason": each.reason,
                "deleted": executed and not found.failures.keys() & each.file.sizes.keys(),
            }
            for each in found.unneeded
        ],
        "kept": found.kept,
        "bytes": found.bytes,
        "freed_bytes": found.freed,
    }
