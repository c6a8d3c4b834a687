"""The documents beside the code: their links lead somewhere, and what they list exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

DOCUMENTS = sorted(
    str(file.relative_to(ROOT))
    for pattern in ("*.md", "llms.txt", "docs/**/*.md", "examples/**/*.md", "docker/**/*.md")
    for file in ROOT.glob(pattern)
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    file = ROOT / document
    text = _FENCE.sub("", file.read_text("utf-8"))
    missing = [link for link in _LINK.findall(text) if not (file.parent / link).exists()]
    assert not missing


def test_nothing_is_installed_by_a_name_that_another_project_could_have() -> None:
    """Until the first release: see CONTRIBUTING.md."""
    files = [ROOT / document for document in DOCUMENTS]
    files += [file for file in (ROOT / "examples").rglob("*") if file.suffix in {".sh", ".txt", ".yaml", ".yml"}]
    # A path in front of the name is that of a clone.
    named = re.compile(r"""pip install[^\n]*[ "']rackassign\b|^rackassign\b\[""", re.MULTILINE)
    assert [str(file) for file in files if named.search(file.read_text("utf-8"))] == []


def test_there_are_documents() -> None:
    assert {"README.md", "SECURITY.md", "llms.txt", "docs/index.md", "docs/tutorial.md"} <= set(DOCUMENTS)


def test_the_layers_of_the_guide_are_those_that_are_checked() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    checked = re.findall(
        r'^  "(rackassign\..*)",$', project.partition("\nlayers = [")[2].partition("]")[0], re.MULTILINE
    )
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (`.*`) \|$", guide, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(len(checked), 0, -1))
    assert [set(re.findall(r"`(\w+)`", packages)) for _, packages in rows] == [
        set(re.findall(r"rackassign\.(\w+)", packages)) for packages in checked
    ]


def test_the_summary_for_models_names_all_extras_for_users() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)) - {"dev", "docs"}
    (named,) = re.findall(r"\(extras: ([^)]*)\)", (ROOT / "llms.txt").read_text("utf-8"))
    assert set(re.split(r",\s+", named)) == extras


def test_the_page_on_monitoring_has_each_alert() -> None:
    rules = (ROOT / "examples" / "monitoring" / "rules.yml").read_text("utf-8")
    page = (ROOT / "docs" / "how-to" / "monitor-groups.md").read_text("utf-8")
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert alerts
    assert re.findall(r"^\| `(Rackassign\w+)` \|", page, re.MULTILINE) == alerts
