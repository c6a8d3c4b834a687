"""Racks and replicas of the fixtures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.testing.pytest_plugin import _racks, _spread


def test_topics_are_spread_round_robin() -> None:
    assert _spread([1, 2, 3], 4, 2) == [[1, 2], [2, 3], [3, 1], [1, 2]]
    with pytest.raises(ConfigError, match="1 partitions of 4 replicas"):
        _spread([1, 2, 3], 1, 4)


@pytest.mark.parametrize(
    ("option", "ini", "expected"),
    [(None, "a,b,c", ["a", "b", "c"]), ("x, x ,", "a", ["x", "x", None])],
)
def test_racks_of_the_fixture(option: str | None, ini: str, expected: list[str | None]) -> None:
    config: Any = SimpleNamespace(getoption=lambda _: option, getini=lambda _: ini)
    assert _racks(config) == expected
