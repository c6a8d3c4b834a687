"""The page of all commands and options."""

from __future__ import annotations

from tools.command_reference import PAGE, page


def test_the_page_is_that_of_the_commands() -> None:
    assert PAGE.read_text("utf-8") == page(), "the commands have changed: make reference"


def test_every_command_has_its_options() -> None:
    text = page()
    assert "## `rackassign plan`" in text
    assert "## `rackassign state reset`" in text
    inspect = text.partition("## `rackassign inspect`")[2].partition("## ")[0]
    assert (
        "| `--bootstrap-server` | Brokers to connect to: HOST:PORT, or several separated by commas. | required |"
        in inspect
    )
