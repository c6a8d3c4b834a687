"""The documents beside the code: links lead somewhere, and files, names, messages and lists are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest

from rackassign.clients.kafka_python.patches import PATCHES

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    str(file.relative_to(ROOT))
    for pattern in ("*.md", "llms.txt", "docs/**/*.md", "examples/**/*.md", "docker/**/*.md")
    for file in ROOT.glob(pattern)
)

_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    folder = (ROOT / document).parent
    assert [link for link in _LINK.findall(_FENCE.sub("", read(document))) if not (folder / link).exists()] == []


def test_there_are_documents() -> None:
    assert {"README.md", "SECURITY.md", "llms.txt", "docs/index.md", "docs/tutorial.md"} <= set(DOCUMENTS)


def test_nothing_is_installed_by_a_name_that_another_project_could_have() -> None:
    """Until the first release: see CONTRIBUTING.md."""
    files = [ROOT / document for document in DOCUMENTS]
    files += [file for file in (ROOT / "examples").rglob("*") if file.suffix in {".sh", ".txt", ".yaml", ".yml"}]
    # A path in front of the name is that of a clone.
    named = re.compile(r"""pip install[^\n]*[ "']rackassign\b|^rackassign\b\[""", re.MULTILINE)
    assert [str(file) for file in files if named.search(file.read_text("utf-8"))] == []


def test_the_layers_of_the_guide_are_those_that_are_checked() -> None:
    layers = read("pyproject.toml").partition("\nlayers = [")[2].partition("]")[0]
    checked = re.findall(r'^  "(rackassign\..*)",$', layers, re.MULTILINE)
    rows = re.findall(r"^\| (\d+) \| (`.*`) \|$", read("CONTRIBUTING.md"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(len(checked), 0, -1))
    assert [set(re.findall(r"`(\w+)`", packages)) for _, packages in rows] == [
        set(re.findall(r"rackassign\.(\w+)", packages)) for packages in checked
    ]


def test_the_summary_for_models_names_all_extras_for_users() -> None:
    section = read("pyproject.toml").partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)) - {"dev", "docs"}
    (named,) = re.findall(r"\(extras: ([^)]*)\)", read("llms.txt"))
    assert set(re.split(r",\s+", named)) == extras


def test_the_page_on_monitoring_has_each_alert() -> None:
    alerts = re.findall(r"- alert: (\w+)", read("examples/monitoring/rules.yml"))
    assert alerts
    assert re.findall(r"^\| `(Rackassign\w+)` \|", read("docs/how-to/monitor-groups.md"), re.MULTILINE) == alerts


def test_each_patch_has_a_text_for_upstream_and_each_text_is_of_a_patch() -> None:
    sections = re.findall(r"^## `(\w+)`$", read("rackassign/clients/kafka_python/patches/UPSTREAM.md"), re.MULTILINE)
    assert sections == [patch.name for patch in PATCHES]


DESIGN = read("DESIGN.md")
_QUOTED = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", DESIGN)
_FILE = re.compile(r"(?P<path>[\w./-]+\.(?:py|md|toml|tsv))(?::(?P<name>[A-Za-z_][\w.]*))?")
_FOLDER = re.compile(r"[\w.-]+(?:/[\w.-]+)*/")
_NAMED = [found for quoted in _QUOTED if (found := _FILE.fullmatch(quoted))]


def place(path: str) -> Path | None:
    # `internals/` is also named on its own, as a part of any client library's package.
    bases = (ROOT, ROOT / "rackassign", ROOT / "rackassign/clients/kafka_python")
    return next((base / path for base in bases if (base / path).exists()), None)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Return what a module defines: classes, functions, methods, and names that are assigned."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


FACES = sorted(
    ".".join(file.parent.relative_to(ROOT).parts)
    for file in (ROOT / "rackassign").rglob("__init__.py")
    if "__all__ = " in file.read_text("utf-8")
)


@pytest.mark.parametrize("face", FACES)
def test_each_name_of_a_face_has_a_docstring(face: str) -> None:
    package = import_module(face)
    named = {name: getattr(package, name) for name in package.__all__}
    # A dataclass without one gets its signature.
    bare = [
        name
        for name, each in named.items()
        if (isinstance(each, type) or isfunction(each)) and (each.__doc__ or f"{name}(").startswith(f"{name}(")
    ]
    assert bare == []


_QUOTED_NAME = re.compile(r"(?<!`)`([a-z_]+(?:\.[a-z_]+)*)`(?!`)")
_OF_OTHERS = re.compile(r"(rd_kafka_|rackassign_|spark\.|java\.|pytest|conftest)")


def test_docstrings_of_modules_name_only_modules_and_names_that_exist() -> None:
    files = sorted((ROOT / "rackassign").rglob("*.py"))
    known: set[str] = set()
    for file in files:
        known.update(names_in(file), file.with_suffix("").relative_to(ROOT).parts)
        known.update(word for node in ast.walk(ast.parse(file.read_text("utf-8"))) for word in _words(node))
    unknown = {
        (file.name, name)
        for file in files
        for name in _QUOTED_NAME.findall(ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "")
        if not _OF_OTHERS.match(name) and not known.issuperset(name.split("."))
    }
    assert unknown == set()


def _words(node: ast.AST) -> Iterator[str]:
    """Yield the names of arguments, attributes and imports, and texts that are names, as options are."""
    if isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield from node.name.split(".")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.split(r"[^a-z_]+", node.value) if len(node.value) < _LONGEST_NAME else ()


_LONGEST_NAME = 60


def test_the_design_names_only_files_folders_and_names_that_exist() -> None:
    paths = {each["path"] for each in _NAMED} | {quoted for quoted in _QUOTED if _FOLDER.fullmatch(quoted)}
    assert len(paths) > 50
    assert sorted(path for path in paths if place(path) is None) == []
    names = [(file, each["name"]) for each in _NAMED if each["name"] and (file := place(each["path"]))]
    assert names
    assert [(str(file), name) for file, name in names if not names_in(file).issuperset(name.split("."))] == []


def test_every_link_inside_the_design_leads_to_a_heading() -> None:
    headings = re.findall(r"^#+ (.+)$", DESIGN, re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    links = set(re.findall(r"\]\((#[^)]+)\)", DESIGN.replace("\n", " ")))
    assert links
    assert links <= anchors


_PLACEHOLDER = re.compile(r"'?\b[A-Z]+\b(?:[-=][A-Z]+\b)*'?(?!-\d)")
SHORTEST = 12
"""Fewer characters between two placeholders do not identify a log message."""


def messages() -> list[str]:
    """Return the messages of the page of log messages."""
    rows = re.findall(r"^\| (?!message \||---)(.*?) \| ", read("docs/reference/log-messages.md"), re.MULTILINE)
    return [message for row in rows for message in row.split("; ")]


def literals() -> Iterator[str]:
    """Yield the strings of the package."""
    for file in (ROOT / "rackassign").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_code_has_each_message_of_the_page_of_log_messages() -> None:
    text = "\n".join(literals())
    assert "no broker has a rack (broker.rack), so nothing is local" in messages()
    assert len(messages()) > 30
    for message in messages():
        parts = [part.strip(" .,:;()'") for part in _PLACEHOLDER.split(message)]
        assert [part for part in parts if len(part) >= SHORTEST and part not in text] == [], message
        assert max(map(len, parts)) >= SHORTEST, message
