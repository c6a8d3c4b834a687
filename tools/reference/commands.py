"""The page of all commands and options, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import typer

from rackassign.cli.app import app

Command: TypeAlias = Any
"""A command or a group of commands of typer, whose classes depend on its version."""

_HEAD = """# All commands and options

This page is made from the commands themselves, by `make reference`. What commands have in common, exit codes and output
are described in [Commands](commands.md).
"""

_NOTES = re.compile(r"\s*\[([^\[\]]*)\]$")
"""What typer appends to the text of an option: its default, its range, whether it is required."""

_TYPE = re.compile(r"\s*<[^>]*>")
"""What typer writes behind the name of an option, in words that depend on its version."""


def page() -> str:
    """Return the page, in Markdown."""
    root = typer.main.get_command(app)
    return "\n".join([_HEAD, *_sections(root, root.make_context("rackassign", [], resilient_parsing=True), ())])


def _sections(command: Command, context: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the sections of a command, and of those below it."""
    yield f"## `{' '.join(('rackassign', *path))}`\n"
    # Typer marks paragraphs that are not to be wrapped again with this character.
    yield " ".join(command.help.replace("\b", "").split()) + "\n"
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [_row(*record) for record in records if record is not None]
    if rows:
        yield "\n".join(["| argument or option | description | default |", "| --- | --- | --- |", *rows]) + "\n"
    for name, below in getattr(command, "commands", {}).items():
        inner = below.make_context(name, [], parent=context, resilient_parsing=True)
        yield from _sections(below, inner, (*path, name))


def _row(names: str, text: str) -> str:
    notes = _NOTES.search(text)
    described = text[: notes.start()] if notes else text
    return f"| `{_cell(_TYPE.sub('', names))}` | {_cell(described)} | {_cell(notes[1]) if notes else ''} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
