"""What is shown of a test on brokers that has failed, besides its error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.helpers.kafka.failure_context import LINES, failure_context, of_groups, tails


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


def test_of_the_group_coordinator_only_lines_about_groups_of_the_test_are_shown() -> None:
    manager = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
    ours = f"[t] INFO Preparing to rebalance group test-x-1 with old generation 3 (reason: left) {manager}"
    others = [f"[t] WARN line {number} (kafka.server.X)" for number in range(100)]
    found = of_groups([ours, *others, f"[t] INFO group test-y-1 stabilized {manager}"], "test-x")
    assert found == ([ours], others[-LINES:])
