"""What `make test-wheel` installs, and what it looks for in the files that it builds."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tools.wheel import EXTRAS, metadata, not_ready, relative_links

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
    assert (metadata(wheel)["Version"], metadata(wheel)["Description"]) == ("1.0", text)
    assert relative_links(metadata(wheel)["Description"]) == ["docs/a.svg", "#c"]


@pytest.mark.parametrize(
    ("tag", "description", "changelog", "found"),
    [
        ("v1.0", "pip install it", "\n## 1.0 (2026-01-02)\n", []),
        ("1.0", "", "\n## 1.0 (2026-01-02)\n", ["version 1.0 has the tag v1.0, not 1.0"]),
        ("v1.0", "", "\n## Unreleased (1.0)\n\n## 1.0.1 (2026-01-03)\n", ["CHANGELOG.md has no section 1.0"]),
        ("v1.0", "It is not on a\npackage index yet", "\n## 1.0 (2026-01-02)\n", ["README.md installs from a clone"]),
    ],
)
def test_a_tag_is_published_with_its_version_changelog_and_install(
    tag: str, description: str, changelog: str, found: list[str]
) -> None:
    assert not_ready(tag, "1.0", description, changelog) == found
