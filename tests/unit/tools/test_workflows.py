"""The workflows of GitHub call targets of the Makefile, and install what these need; they have no logic themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

TARGETS = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
_STEP = re.compile(r"^ *- run: (.*)$", re.MULTILINE)


def test_there_are_workflows() -> None:
    assert {"matrix.yml", "tests.yml"} <= {each.name for each in WORKFLOWS}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_its_steps_are_targets_of_the_makefile_or_install_something(workflow: Path) -> None:
    steps = _STEP.findall(workflow.read_text(encoding="utf-8"))
    made = [step.removeprefix("make ") for step in steps if step.startswith("make ")]
    assert made
    assert set(made) <= TARGETS
    assert [step for step in steps if not step.startswith(("make ", "sudo "))] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_it_may_only_read_the_repository_and_ends(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    assert "permissions:\n  contents: read\n" in text
    assert text.count("timeout-minutes:") == text.count("runs-on:")
