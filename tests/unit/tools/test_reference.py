"""Pages of the reference, and the names that programs of users rely on."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackassign.cli import ExitCode
from tests.helpers.documents import ROOT
from tools.reference import FILES, error_classes, exit_code

COMMANDS = Path(__file__).parents[3] / "rackassign" / "cli" / "commands"


@pytest.mark.parametrize(("path", "text"), FILES.items(), ids=[path.name for path in FILES])
def test_files_that_are_made_from_the_code_are_those_of_the_code(path: Path, text: Callable[[], str]) -> None:
    # A name that is gone breaks programs of users: see docs/reference/stability.md before it is written again.
    assert path.read_text("utf-8") == text(), "the code has changed: make reference"


def test_the_pages_of_the_python_api_have_all_names_that_are_stable() -> None:
    pages = ("python-api.md", "testing-api.md")
    lines = "".join((ROOT / "docs" / "reference" / page).read_text("utf-8") for page in pages).splitlines()
    described = {line.rpartition(".")[2] for line in lines if line.startswith("::: ")}
    stable = json.loads((ROOT / "tests" / "data" / "stable_names.json").read_text("utf-8"))["names"]
    # Errors have a page of their own, which is made from the code.
    missing = {module: set(names) - described for module, names in stable.items() if module != "rackassign.errors"}
    assert {module: names for module, names in missing.items() if names} == {}


def test_every_command_has_its_options() -> None:
    text = next(path for path in FILES if path.name == "command-options.md").read_text("utf-8")
    assert "## `rackassign plan`" in text
    assert "## `rackassign state reset`" in text
    inspect = text.partition("## `rackassign inspect`")[2].partition("## ")[0]
    assert (
        "| `--bootstrap-server` | Brokers to connect to: HOST:PORT, or several separated by commas. | required |"
        in inspect
    )


def test_errors_that_commands_answer_with_no_have_that_exit_code() -> None:
    nodes = (node for file in COMMANDS.glob("*.py") for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler) and node.type is not None]
    answered = {
        ast.unparse(each.type) for each in handlers if each.type and "ExitCode.NO\n" in ast.unparse(each) + "\n"
    }
    assert answered == {"NotEnoughBrokersError", "UnevenError"}
    assert {kind.__name__ for kind in error_classes() if exit_code(kind) == ExitCode.NO} == answered
