"""The page of what works on which version: how results become cells, and where they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackassign.testing import VERSIONS
from tools.compatibility.__main__ import COVERS, DOCUMENT, last_patches, markdown
from tools.compatibility.checks import CHECKS, Cell, Check, NotOnThisVersionError, Place

NOWHERE: Any = None
BEGIN, END = "<!-- begin compatibility -->\n", "<!-- end compatibility -->\n"


def nowhere(name: str, home: Path) -> Place:
    return Place(NOWHERE, name, home, lambda: None)


def raising(error: Exception) -> Any:
    def run(_: object) -> str:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda _: "it works", Cell(works=True, reason="it works")),
        (raising(NotOnThisVersionError("too old")), Cell(works=False, reason="too old")),
        (raising(KeyError("endpoint_type")), Cell(works=False, reason="KeyError: 'endpoint_type'", is_defect=True)),
        (raising(ValueError("two\n  lines")), Cell(works=False, reason="ValueError: two lines", is_defect=True)),
        (raising(TimeoutError()), Cell(works=False, reason="TimeoutError: no message", is_defect=True)),
    ],
)
def test_every_outcome_is_one_line(run: Any, expected: Cell) -> None:
    assert Check("c", "feature", run).result(nowhere) == expected


def test_adjacent_versions_with_equal_results_share_a_reason() -> None:
    old, new = Cell(works=False, reason="a | b"), Cell(works=True, reason="fine")
    check = Check("c", "a feature", lambda _: "")
    text = markdown([check], {"3.5.2": {"c": old}, "3.7.2": {"c": old}, "4.0.2": {"c": new}})
    assert text.startswith(f"{COVERS}\n| feature | 3.5.2 | 3.7.2 | 4.0.2 |\n")
    assert "| a feature | no | no | yes |\n" in text
    assert "| a feature | 3.5.2 to 3.7.2 | no | a \\| b |\n| a feature | 4.0.2 | yes | fine |\n" in text


def test_the_page_links_to_that_of_clients_whenever_it_is_written() -> None:
    assert "[Clients and Python versions](clients.md)" in COVERS
    assert (DOCUMENT.parent / "clients.md").exists()
    assert f"{BEGIN}\n{COVERS}\n| feature |" in DOCUMENT.read_text("utf-8")


def test_the_page_has_every_feature_on_the_last_patch_of_every_minor_version() -> None:
    assert last_patches() == [v for v in VERSIONS if v not in {"3.9.1", "4.3.0"}]
    lines = DOCUMENT.read_text("utf-8").splitlines()
    assert f"| feature | {' | '.join(last_patches())} |" in lines
    for check in CHECKS:
        assert [line for line in lines if line.startswith(f"| {check.feature} | ")]
