"""What all commands that print have in common."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from rackassign.errors import ConfigError, printable


def check_output(output: str, *known: str) -> None:
    """Refuse a form of output that the command does not have; `ConfigError` names those it has."""
    if output not in known:
        raise ConfigError(f"output must be one of {', '.join(known)}, got {output!r}")


def safe(text: str) -> Text:
    """Return a text that rich and the terminal show as it is: names of groups and clients are chosen by others."""
    return Text("\n".join(map(printable, text.split("\n"))))


def plain() -> Console:
    """Return a console that shows text as it is: names are chosen by others, and brackets are no commands."""
    return Console(highlight=False, markup=False)


def complain(problem: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"rackassign: {printable(problem)}\n")
