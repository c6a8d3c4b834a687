"""The pictures of the documentation."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.helpers.documents import ROOT, documents
from tools.pictures import FOLDER, pictures
from tools.pictures.sequence import Arrow, Note, Sequence


def test_the_files_are_what_is_drawn_and_each_is_on_a_page() -> None:
    drawn = pictures()
    assert {file.name: file.read_text("utf-8") for file in FOLDER.glob("*.svg")} == drawn, "make reference"
    pages = "".join((ROOT / document).read_text("utf-8") for document in documents())
    assert [name for name in drawn if f"assets/{name})" not in pages] == []


def test_the_assignment_is_valid_and_shows_what_the_documentation_claims() -> None:
    root = ET.fromstring(pictures()["assignment.svg"])  # noqa: S314 - it is our own
    titles = [element.text for element in root.iter() if element.get("class") == "title"]
    assert titles == [
        "Without racks: 4 of 6 partitions cross zones",
        "With rackassign: 0 of 6 partitions cross zones",
    ]
    lines = [element.get("class") for element in root.iter() if element.tag.endswith("line")]
    assert (lines.count("cross"), lines.count("local")) == (4, 8)


@pytest.mark.parametrize("name", [*pictures()])
def test_no_text_leaves_its_picture(name: str) -> None:
    root = ET.fromstring(pictures()[name])  # noqa: S314 - it is our own
    width = float(root.get("width", "0"))
    for element in root.iter():
        if element.tag.endswith("}text") and element.get("text-anchor") == "middle" and element.text:
            middle, reach = float(element.get("x", "0")), 7 * len(element.text) / 2
            assert middle - reach >= 0
            assert middle + reach <= width


@pytest.mark.parametrize("step", [Note(2, "n"), Arrow(0, 2, "n"), Arrow(-1, 0, "n"), Arrow(1, 1, "n")])
def test_a_step_of_no_column_is_refused(step: Arrow | Note) -> None:
    with pytest.raises(ValueError, match=r"column|itself"):
        Sequence("d", ("a", "b"), (step,))
