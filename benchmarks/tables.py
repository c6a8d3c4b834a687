"""Tables, for a terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

WIDTH = 180
"""Where nobody says how wide: in a file or a pipe."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """Write it as the documentation shows it."""
        ruler = ("---", *("--:" for _ in self.headings[1:]))
        lines = [" | ".join(row) for row in (self.headings, ruler, *self.rows)]
        return f"**{self.title}**\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"


def spread(ratios: Sequence[float]) -> str:
    """Write the median of some figures, and the lowest and the highest."""
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def show(sheets: Iterable[Sheet]) -> None:
    """Print on a terminal, or as wide as it takes."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for sheet in sheets:
        table = Table(title=sheet.title, title_justify="left")
        for i, heading in enumerate(sheet.headings):
            table.add_column(heading, justify="right" if i else "left", no_wrap=not i)
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)


def show_or_print(sheet: Sheet, *, markdown: bool) -> None:
    """Show a table on a terminal, or print it as the documentation has it."""
    if markdown:
        print(sheet.markdown())
    else:
        show([sheet])


def write_markdown(file: Path, name: str, sheets: Iterable[Sheet], *, above: str = "") -> None:
    """Write tables into a document, with paragraphs above them that end with a newline; see `write_between`."""
    write_between(file, name, "\n".join([*([above] if above else []), *(sheet.markdown() for sheet in sheets)]))


def write_between(file: Path, name: str, text: str) -> None:
    """Write a text into a document, in place of what is between its marks of that name."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    before, found, rest = file.read_text("utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{file}: the marks {begin.strip()} and {end.strip()} are missing")
    file.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
