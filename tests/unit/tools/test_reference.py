"""Pages of the reference, and the names that programs of users rely on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rackassign.cli import ExitCode
from tools.reference import PAGES, STABLE_NAMES, error_classes, exit_code, stable_names

COMMANDS = Path(__file__).parents[3] / "rackassign" / "cli" / "commands"


def test_the_list_of_stable_names_is_that_of_the_code() -> None:
    # A name that is gone breaks programs of users: see docs/reference/stability.md before it is written again.
    assert STABLE_NAMES.read_text("utf-8") == stable_names(), "the code has changed: make reference"


def test_the_page_of_the_python_api_has_each_name_once() -> None:
    described = re.findall(r"^::: (\S+)$", PAGES["reference/python-api.md"](), re.MULTILINE)
    assert len(described) == len({*described}) > 60
    assert {"rackassign.attach", "rackassign.clients.aiokafka.attach", "rackassign.testing.LocalCluster"} <= {
        *described
    }
    # The same object as that of `rackassign`.
    assert "rackassign.clients.kafka_python.attach" not in described


def test_every_command_has_its_options() -> None:
    text = PAGES["reference/command-options.md"]()
    assert "## `rackassign plan`" in text
    assert "## `rackassign state reset`" in text
    inspect = text.partition("## `rackassign inspect`")[2].partition("## ")[0]
    assert (
        "* `--bootstrap-server <str>`: Brokers to connect to: HOST:PORT, or several separated by commas.  [required]\n"
        in inspect
    )
    # They are code, with an empty line before them.
    assert "\nExamples:\n\n      rackassign inspect --" in inspect


def test_errors_that_commands_answer_with_no_have_that_exit_code() -> None:
    nodes = (node for file in COMMANDS.glob("*.py") for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler) and node.type is not None]
    answered = {
        ast.unparse(each.type) for each in handlers if each.type and "ExitCode.NO\n" in ast.unparse(each) + "\n"
    }
    assert answered == {"NotEnoughBrokersError", "UnevenError"}
    assert {kind.__name__ for kind in error_classes() if exit_code(kind) == ExitCode.NO} == answered
