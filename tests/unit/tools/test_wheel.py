"""The list of extras that `make test-wheel` installs is that of the project."""

from __future__ import annotations

import re
from pathlib import Path

from tools.wheel import EXTRAS

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_each_extra_is_installed_alone() -> None:
    # Python 3.10 has no reader of TOML.
    section = PROJECT.read_text("utf-8").partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    declared = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE)) - {"dev"}
    assert {"cli", "spark", "msk"} <= declared
    assert declared <= {extra.name for extra in EXTRAS}
