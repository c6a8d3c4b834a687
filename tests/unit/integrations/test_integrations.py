"""The versions of a framework that are supported."""

from __future__ import annotations

import logging

import pytest

from rackassign import integrations, text
from rackassign.text import WarnOnce


@pytest.mark.parametrize(
    ("installed", "warnings"),
    [("0.11.3", 0), ("0.15.9", 0), ("0.10.24", 1), ("0.16.0", 1), ("1.11", 1), ("unknown", 1)],
)
def test_another_version_is_warned_about(
    installed: str, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(integrations, "version", lambda _: installed)
    monkeypatch.setattr(text, "version", lambda _: installed)
    once = WarnOnce(logging.getLogger("test"))
    for _ in range(2):
        integrations.warn_of_version("faust-streaming", (0, 11), (0, 15), once)
    expected = f"faust-streaming {installed} is not a version that rackassign supports: 0.11 to 0.15"
    assert [record.getMessage() for record in caplog.records] == [expected] * warnings
