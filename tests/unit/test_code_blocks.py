"""Blocks of Python in the documentation: they compile, what they import of rackassign exists and has these options."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, signature
from typing import Any
from unittest.mock import Mock

import pytest

from rackassign.errors import MissingExtraError
from tests.helpers.documents import ROOT, RUNNABLE, blocks, documents, missing_lines


def programs() -> Iterator[tuple[str, str]]:
    """Yield each block of Python, with its place."""
    examples = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "examples").rglob("*.md"))]
    for document in [*documents(), *examples]:
        yield from ((block.place, block.text) for block in blocks(document) if block.language == "python")


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


@pytest.mark.parametrize(("place", "code"), [*programs()])
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


@pytest.mark.parametrize(
    ("share", "printed"), [(None, "a: nothing was read\n"), (0.666, "a: 67% of the bytes were local\n")]
)
def test_readers_of_the_tutorial_report_also_that_nothing_was_read(
    share: float | None, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = [block.text for block in blocks("docs/tutorial.md") if block.title == "reader.py"]
    assert len(readers) == 2
    for text in readers:
        consumer = Mock()
        consumer.locality.return_value.local_share.return_value = share
        # What comes behind the loop.
        exec(text[text.index("share = ") :], {"consumer": consumer, "zone": "a"})  # noqa: S102 - our own documentation
    assert capsys.readouterr().out == printed * 2


def test_there_are_blocks() -> None:
    assert len([*programs()]) > 40


def test_each_page_with_commands_or_programs_is_run() -> None:
    tests = "".join(file.read_text("utf-8") for file in (ROOT / "integration" / "docs").glob("test_*.py"))
    # Within a page, the tests of `make test-docs` fail if they leave out anything without a reason.
    pages = [name for name in documents() if any(block.language in RUNNABLE for block in blocks(name))]
    assert [name for name in pages if f'"{name}"' not in tests] == []
    assert len(pages) > 20


def test_what_a_command_shows_is_compared_by_shape() -> None:
    output = "┃ broker  ┃ local ┃\n│ 1 │ 66.7% │\n12 partitions, 3.1 MB to copy; now\nsecond\nfirst"
    assert missing_lines(["broker local", "2 100.0%", "1 partitions, 512 B to copy; ..", "..", "first"], output) == []
    assert missing_lines(["broker  lokal", "first", "first", "a line"], output) == ["broker  lokal", "first", "a line"]
