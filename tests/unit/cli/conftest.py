"""The command line in this process, for all tests of it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rackassign.cli.app import run

SCENARIO: dict[str, Any] = {
    "format": "rackassign/1",
    "brokers": [{"id": 1, "rack": "a"}, {"id": 2, "rack": "b"}],
    "topics": {"t": [[2], [1]]},
    "members": [{"id": "m1", "rack": "a", "topics": ["t"]}, {"id": "m2", "rack": "b", "topics": ["t"]}],
}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    # A cluster that the developer has up is none of a test.
    monkeypatch.setenv("RACKASSIGN_CACHE", str(tmp_path / "cache"))

    def call(*words: str, given: str | bytes = "") -> Ended:
        data = given.encode() if isinstance(given, str) else given
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = run(list(words))
        return Ended(code, *capsys.readouterr())

    return call
