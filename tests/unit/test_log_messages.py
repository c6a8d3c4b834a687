"""Each warning of a consumer is on the page of log messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/log-messages.md"
PACKAGES = (
    "admin/describe.py",
    "assignor",
    "clients",
    "integrations",
    "monitoring/byte_rates.py",
    "monitoring/consumer_pool.py",
    "stateful",
)

BETWEEN = re.compile(r"%[.\d]*[a-z]|[?] .*|`.*")
SHORTEST = 12
"""Fewer characters between two placeholders tell nothing."""


def messages() -> Iterator[tuple[str, str]]:
    """Yield the literal messages of warnings, each with the file that it is in."""
    for package in PACKAGES:
        path = ROOT / "rackassign" / package
        for file in [path] if path.suffix else sorted(path.rglob("*.py")):
            nodes = [*ast.walk(ast.parse(file.read_text("utf-8")))]
            constants = {
                ast.unparse(node.targets[0]): node.value
                for node in nodes
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            }
            for call in (node for node in nodes if isinstance(node, ast.Call)):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                given = (constants.get(ast.unparse(each), each) for each in call.args)
                texts = [each.value for each in given if isinstance(each, ast.Constant)]
                # The first argument of the others is the key of the warning.
                found = {"warning": texts, "warn": texts[1:], "_warn": texts[1:]}.get(name, [])
                yield from ((file.relative_to(ROOT).as_posix(), text) for text in found if isinstance(text, str))


def parts(message: str) -> list[str]:
    """Return what is the same in all messages of this form, without hints behind them."""
    text = re.sub(r"^\S+ differs: ", "", message)
    found = [part.strip(" .,:;()'") for part in BETWEEN.split(text)]
    return [part for part in found if len(part) >= SHORTEST]


@pytest.mark.parametrize(("file", "message"), sorted({*messages()}))
def test_each_warning_is_on_the_page(file: str, message: str) -> None:
    page = " ".join(PAGE.read_text("utf-8").split())
    for part in parts(message):
        assert part in page, f"{file}: {message}: docs/reference/log-messages.md has no {part!r}"


def test_warnings_are_found() -> None:
    found = {message for _, message in messages()}
    assert "%s: no member of the group sends a rack" in found
    assert len(found) > 70
