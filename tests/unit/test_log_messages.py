"""The page of log messages: each message on it is one of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/log-messages.md"

PLACEHOLDER = re.compile(r"'?\b[A-Z]+\b(?:[-=][A-Z]+\b)*'?(?!-\d)")
SHORTEST = 12
"""Fewer characters between two placeholders do not identify a message."""


def messages() -> list[str]:
    """Return the messages of the page."""
    rows = re.findall(r"^\| (?!message \||---)(.*?) \| ", PAGE.read_text("utf-8"), re.MULTILINE)
    return [message for row in rows for message in row.split("; ")]


def literals() -> Iterator[str]:
    """Yield the strings of the package."""
    for file in (ROOT / "rackassign").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


TEXT = "\n".join(literals())


@pytest.mark.parametrize("message", messages())
def test_the_code_has_each_message_of_the_page(message: str) -> None:
    parts = [part.strip(" .,:;()'") for part in PLACEHOLDER.split(message)]
    assert [part for part in parts if len(part) >= SHORTEST and part not in TEXT] == []
    assert max(map(len, parts)) >= SHORTEST


def test_messages_are_read() -> None:
    assert "no broker has a rack (broker.rack), so nothing is local" in messages()
    assert len(messages()) > 30
