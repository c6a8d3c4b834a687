"""The page of all commands and options, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
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


def walk() -> Iterator[tuple[tuple[str, ...], Command, Any]]:
    """Yield all commands and groups of commands, each with its words and its context, in the order of the help."""
    root = typer.main.get_command(app)
    found: list[tuple[tuple[str, ...], Command, Any]] = [
        (("rackassign",), root, root.make_context("rackassign", [], resilient_parsing=True))
    ]
    while found:
        path, command, context = found.pop()
        yield path, command, context
        below = [
            ((*path, name), each, each.make_context(name, [], parent=context, resilient_parsing=True))
            for name in (command.list_commands(context) if hasattr(command, "list_commands") else ())
            for each in [command.get_command(context, name)]
        ]
        found += reversed(below)


def page() -> str:
    """Return the page, in Markdown."""
    return "\n".join([_HEAD, *chain.from_iterable(_section(*each) for each in walk())])


def _section(path: tuple[str, ...], command: Command, context: Any) -> Iterator[str]:
    """Yield the parts of the section of a command."""
    yield f"## `{' '.join(path)}`\n"
    # Typer marks paragraphs that are not to be wrapped again with this character.
    yield " ".join(command.help.replace("\b", "").split()) + "\n"
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [_row(*record) for record in records if record is not None]
    if rows:
        yield "\n".join(["| argument or option | description | default |", "| --- | --- | --- |", *rows]) + "\n"


def _row(names: str, text: str) -> str:
    notes = _NOTES.search(text)
    described = text[: notes.start()] if notes else text
    return f"| `{_cell(_TYPE.sub('', names))}` | {_cell(described)} | {_cell(notes[1]) if notes else ''} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
