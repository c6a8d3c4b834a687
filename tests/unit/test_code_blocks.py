"""Blocks of Python in the documentation: they compile, what they import of rackassign exists and has these options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from rackassign.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?P<indent> *)```python.*?\n(?P<code>.*?)^ *```$", re.DOTALL | re.MULTILINE)


def blocks() -> Iterator[tuple[str, str]]:
    """Yield each block, with the document and the line that it begins in."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
    for document in documents:
        text = document.read_text("utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{document.relative_to(ROOT).as_posix()}:{line}", dedent(found["code"])


def imported(tree: ast.AST, place: str) -> dict[str, Any]:
    """Return what a block imports of rackassign, by its name there."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None or not node.module.startswith("rackassign"):
            continue
        try:
            module = import_module(node.module)
        except MissingExtraError as error:
            # The one framework that cannot be installed beside the others.
            if error.extra != "quix":
                raise
            continue
        for name in node.names:
            assert hasattr(module, name.name), f"{place}: {node.module} has no {name.name}"
            found[name.asname or name.name] = getattr(module, name.name)
    return found


@pytest.mark.parametrize(("place", "code"), [*blocks()])
def test_a_block_compiles_and_what_it_uses_of_rackassign_exists(place: str, code: str) -> None:
    tree = compile(code, place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = imported(tree, place)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        used = names.get(ast.unparse(call.func))
        if used is None:
            continue
        parameters = signature(used).parameters
        if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
            continue
        given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        assert given <= parameters.keys(), f"{place}: {ast.unparse(call)}"


def test_there_are_blocks() -> None:
    assert len([*blocks()]) > 40
