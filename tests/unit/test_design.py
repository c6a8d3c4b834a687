"""DESIGN.md names only files, classes and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")

QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"(?P<path>[\w./-]+\.(?:py|md|toml|tsv))(?::(?P<name>[A-Za-z_][\w.]*))?")
FOLDER = re.compile(r"[\w.-]+(?:/[\w.-]+)*/")


def found(path: str) -> Path | None:
    return next((place for place in (ROOT / path, ROOT / "rackassign" / path) if place.exists()), None)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return what a module defines: classes, functions, methods, and names that are assigned."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


@pytest.mark.parametrize("path", sorted({m["path"] for q in QUOTED.findall(DESIGN) if (m := FILE.fullmatch(q))}))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert found(path) is not None


@pytest.mark.parametrize("path", sorted({q for q in QUOTED.findall(DESIGN) if FOLDER.fullmatch(q)}))
def test_every_folder_that_is_named_exists(path: str) -> None:
    # `internals/` is also named on its own, as a part of any client library's package.
    assert found(path) is not None or found(f"clients/kafka_python/{path}") is not None


def test_every_name_in_a_file_is_defined_there() -> None:
    named = [(m["path"], m["name"]) for q in QUOTED.findall(DESIGN) if (m := FILE.fullmatch(q)) and m["name"]]
    missing = {
        f"{path}:{name}"
        for path, name in named
        if (file := found(path)) is not None and not names_in(file).issuperset(name.split("."))
    }
    assert not missing


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((#[^)]+)\)", DESIGN.replace("\n", " ")))))
def test_every_link_inside_leads_to_a_heading(link: str) -> None:
    headings = re.findall(r"^#+ (.+)$", DESIGN, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert link.removeprefix("#") in anchors
