"""The blocks of code in the documentation, and whether a command has shown what a page promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

RUNNABLE = ("console", "python")
"""Languages of blocks that a test of their page runs."""

_BLOCK = re.compile(
    r'^(?P<indent> *)```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^ *```$', re.DOTALL | re.MULTILINE
)
_PROMPT = "$ "
_ANYTHING = ".."
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SIZE = re.compile(r"# [kMG]?B\b")
_RULE = re.compile(r"[─-╿]+")
_SPACE = re.compile(r"\s+")


class Block(NamedTuple):
    """A block of code."""

    document: str
    line: int
    language: str
    # Name of the file that it is; empty if it is none.
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """The commands of a console, each with what it shows."""
        found: list[Command] = []
        for number, line in enumerate(self.text.splitlines(), start=self.line + 1):
            if line.startswith(_PROMPT):
                found.append(Command(f"{self.document}:{number}", line.removeprefix(_PROMPT), []))
            else:
                assert found, f"{self.place}: output without a command"
                found[-1].shown.append(line)
        return found


class Command(NamedTuple):
    """A command of a console."""

    place: str
    text: str
    shown: list[str]


def documents() -> list[str]:
    """Return the documents that users read, relative to the repository."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file.relative_to(ROOT).as_posix() for file in found]


def blocks(document: str) -> Iterator[Block]:
    """Yield the blocks of a document that name a language."""
    text = (ROOT / document).read_text("utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(document, line, found["language"], found["title"] or "", dedent(found["text"]))


def missing_lines(shown: list[str], output: str) -> list[str]:
    """Return the lines that a page shows and a command has not shown.

    Lines are compared by shape: without regard to numbers, the unit of a size, the width of columns, the lines of
    tables, and their order, since programs beside each other end in any. A line of the page that ends with `..` is the
    beginning of a line, and `..` alone stands for any lines.
    """
    actual = [_shape(line) for line in output.splitlines()]
    missing = []
    for line in shown:
        expected = _shape(line)
        if not expected or expected == _ANYTHING:
            continue
        begins = expected.removesuffix(_ANYTHING)
        found = [each for each in actual if each == expected or (begins != expected and each.startswith(begins))]
        if found:
            # Each is found once.
            actual.remove(found[0])
        else:
            missing.append(line)
    return missing


def _shape(line: str) -> str:
    line = _SPACE.sub(" ", _RULE.sub(" ", line)).strip()
    return _SIZE.sub("# B", _NUMBER.sub("#", line))
