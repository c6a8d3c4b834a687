"""What is shown of a test on brokers that has failed, besides its error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.helpers.kafka.failure_context import LINES, failure_context, tails


def test_the_last_lines_of_what_programs_have_written_are_shown(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "member.err").write_text("".join(f"line {number}\n" for number in range(100)))
    (tmp_path / "empty.out").touch()
    (tmp_path / "state.sqlite").write_bytes(b"\0" * 100)
    (found,) = tails(tmp_path)
    assert found[0] == "a/member.err: last lines"
    assert found[1].splitlines() == [f"line {number}" for number in range(100 - LINES, 100)]


def test_what_cannot_be_looked_at_hides_no_error(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Path, "rglob", lambda *_: 1 / 0)
    item: Any = SimpleNamespace(name="test_x", funcargs={"tmp_path": tmp_path})
    ((title, text),) = failure_context(item)
    assert (title, text) == ("files", "not available: ZeroDivisionError('division by zero')")
