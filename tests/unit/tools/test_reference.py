"""Pages of the reference, and the names that programs of users rely on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.reference.files import FILES


@pytest.mark.parametrize(("path", "text"), FILES.items(), ids=[path.name for path in FILES])
def test_files_that_are_made_from_the_code_are_those_of_the_code(path: Path, text: Callable[[], str]) -> None:
    # A name that is gone breaks programs of users: see docs/reference/stability.md before it is written again.
    assert path.read_text("utf-8") == text(), "the code has changed: make reference"


def test_every_command_has_its_options() -> None:
    text = next(path for path in FILES if path.name == "command-options.md").read_text("utf-8")
    assert "## `rackassign plan`" in text
    assert "## `rackassign state reset`" in text
    inspect = text.partition("## `rackassign inspect`")[2].partition("## ")[0]
    assert (
        "| `--bootstrap-server` | Brokers to connect to: HOST:PORT, or several separated by commas. | required |"
        in inspect
    )
