"""The pictures of the documentation."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tools.pictures import FILE, picture


def test_the_file_is_what_the_plans_give() -> None:
    assert FILE.read_text("utf-8") == picture(), "the picture has changed: python -m tools.pictures"


def test_it_is_valid_and_shows_what_the_documentation_claims() -> None:
    root = ET.fromstring(picture())  # noqa: S314 - it is our own
    titles = [element.text for element in root.iter() if element.get("class") == "title"]
    assert titles == [
        "Without racks: 4 of 6 partitions cross zones",
        "With rackassign: 0 of 6 partitions cross zones",
    ]
    lines = [element.get("class") for element in root.iter() if element.tag.endswith("line")]
    assert (lines.count("cross"), lines.count("local")) == (4, 8)
