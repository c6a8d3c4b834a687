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
