"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from rackassign.errors import ConfigError
from rackassign.testing import cache_dir


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    assert cache_dir() == cache


def test_the_cache_is_the_users_own_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RACKASSIGN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir().name == "rackassign"
    assert cache_dir().is_absolute()


def test_a_home_directory_of_nobody_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKASSIGN_CACHE", "~no-such-user/cache")
    with pytest.raises(ConfigError, match=r'RACKASSIGN_CACHE: the home directory in "~no-such-user/cache" is unknown'):
        cache_dir()


def test_a_user_without_a_home_directory_is_referred_to_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: object, **__: object) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("RACKASSIGN_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_dir", no_home)
    with pytest.raises(ConfigError, match="set RACKASSIGN_CACHE"):
        cache_dir()
