"""What `make test-wheel` installs, and what it looks for in the files that it builds."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from tools.wheel import EXTRAS, description, relative_links

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_each_extra_is_installed_alone() -> None:
    # Python 3.10 has no reader of TOML.
    section = PROJECT.read_text("utf-8").partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    declared = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)) - {"dev"}
    assert {"cli", "spark", "msk"} <= declared
    assert declared <= {extra.name for extra in EXTRAS}


def test_links_and_pictures_that_a_package_index_cannot_show_are_found(tmp_path: Path) -> None:
    wheel = tmp_path / "it-1.0-py3-none-any.whl"
    text = "![two\nlines](docs/a.svg) and [b](https://example.com/b.md), [c](#c)\n"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("it-1.0.dist-info/METADATA", f"Metadata-Version: 2.4\nName: it\nVersion: 1.0\n\n{text}")
    assert description(wheel) == text
    assert relative_links(description(wheel)) == ["docs/a.svg", "#c"]
