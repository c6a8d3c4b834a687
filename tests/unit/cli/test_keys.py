"""What terminals send, as keys."""

from __future__ import annotations

import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from rackassign.cli.commands.top import decode_keys, pressed_keys


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("a/b", ["a", "/", "b"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA", ["up"]),
        ("\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page up", "page down", "home", "end"]),
        ("\x1b", ["escape"]),
        ("\x1bq", ["escape", "q"]),
        ("\x7f\r\n", ["backspace", "enter", "enter"]),
        ("é", ["é"]),
        # Sequences of other keys, whole or cut off, are no text.
        ("\x1b[1;5Cx", ["x"]),
        ("\x1b[200~", []),
        ("\x1b[", []),
        ("\x1bO", []),
        ("\x00\x02", []),
    ],
)
def test_keys(sent: str, keys: list[str]) -> None:
    assert decode_keys(sent) == keys


def test_a_terminal_is_read_key_by_key_and_then_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with os.fdopen(theirs, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pressed_keys() as keys:
            assert keys is not None
            assert keys(0.0) == []
            os.write(ours, b"s\x1b[B")
            assert keys(60.0) == ["s", "down"]
        assert termios.tcgetattr(theirs) == before
    os.close(ours)


def test_there_are_no_keys_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pressed_keys() as keys:
            assert keys is None


def test_there_are_no_keys_where_stdin_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pressed_keys() as keys:
        assert keys is None
