"""What all commands that print have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rackassign.errors import ConfigError
from rackassign.util.text import strip_control_chars

Output = Annotated[str, typer.Option("--output", help="Output format: table or json.")]
HtmlFile = Annotated[
    str, typer.Option("--html", help="HTML file for a report: one page without scripts or network access.")
]


def check_output(output: str, *known: str) -> None:
    """Refuse a form of output that the command does not have; `ConfigError` names those it has."""
    if output not in known:
        raise ConfigError(f"output must be one of {', '.join(known)}, got {output!r}")


def plain_line(text: str) -> Text:
    """Return one line that rich and the terminal show as it is: a name that others have chosen, or a text with names.

    Control characters and line ends are shown escaped, so a name is one line wherever it stands.
    """
    return Text(strip_control_chars(text))


def plain_lines(lines: Iterable[str]) -> Text:
    """Return several lines, each as from `plain_line`."""
    return Text("\n".join(map(strip_control_chars, lines)))


def plain_console() -> Console:
    """Return a console that shows text as it is: names are chosen by others, and brackets are no commands."""
    return Console(highlight=False, markup=False)


def warn(problem: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"rackassign: {strip_control_chars(problem)}\n")


def check_writable(option: str, name: str) -> None:
    """Refuse a file that cannot be written, before all the work is done; an empty name is none.

    Raises:
        ConfigError: Names the option.
    """
    if not name:
        return
    try:
        problem = _unwritable(Path(name))
    except OSError as error:
        # `pathlib` raises it for a folder that may not be searched, and for a name that is too long.
        problem = error.strerror
    if problem:
        raise ConfigError(f"{option}: cannot write {name}: {problem}")


def _unwritable(file: Path) -> str | None:
    """Return why a file cannot be written; None if nothing is known to prevent it."""
    if file.is_dir():
        return "it is a folder"
    if not file.parent.is_dir():
        return "there is no such folder"
    return None if os.access(file if file.exists() else file.parent, os.W_OK) else "permission denied"


def write_text(option: str, name: str, text: str) -> None:
    """Write a file; `ConfigError` names the option if that fails."""
    try:
        Path(name).write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {name}: {error.strerror}") from None
