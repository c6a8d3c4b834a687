"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackassign.testing import cache_dir


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    assert cache_dir() == cache


def test_the_cache_is_the_users_own_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RACKASSIGN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir().name == "rackassign"
    assert cache_dir().is_absolute()
