"""The workflows of GitHub call targets of the Makefile, and install what these need; they have no logic themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

TARGETS = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
_ACTION = re.compile(r"^ *(?:- )?uses: (.*)$", re.MULTILINE)
_PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
_STEP = re.compile(r"^ *- run: (.*)$", re.MULTILINE)


def test_there_are_workflows() -> None:
    assert {"matrix.yml", "release.yml", "tests.yml"} <= {each.name for each in WORKFLOWS}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_its_steps_are_targets_of_the_makefile_or_install_something(workflow: Path) -> None:
    steps = _STEP.findall(workflow.read_text(encoding="utf-8"))
    made = [step.removeprefix("make ") for step in steps if step.startswith("make ")]
    assert made
    assert set(made) <= TARGETS
    assert [step for step in steps if not step.startswith(("make ", "sudo "))] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_its_actions_are_pinned_by_digest(workflow: Path) -> None:
    actions = _ACTION.findall(workflow.read_text(encoding="utf-8"))
    assert actions
    assert [action for action in actions if not _PINNED.fullmatch(action)] == []


def test_all_workflows_use_one_version_of_an_action() -> None:
    actions = {action for each in WORKFLOWS for action in _ACTION.findall(each.read_text(encoding="utf-8"))}
    assert len(actions) == len({action.partition("@")[0] for action in actions})


def test_only_jobs_that_publish_may_write_and_they_run_nothing_of_the_repository() -> None:
    for workflow in WORKFLOWS:
        for name, job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].items():
            if "permissions" in job:
                assert (workflow.name, name) in {("release.yml", "package"), ("release.yml", "site")}
                assert job["environment"]
                assert [step for step in job["steps"] if "run" in step or "checkout" in step["uses"]] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_it_may_only_read_the_repository_by_default_and_ends(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    assert "permissions:\n  contents: read\n" in text
    assert text.count("timeout-minutes:") == text.count("runs-on:")
