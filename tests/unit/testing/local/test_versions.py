"""Which versions of Kafka there are, and how they are named."""

from __future__ import annotations

from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.testing import KAFKA_VERSION, VERSIONS, LocalCluster
from rackassign.testing.local.versions import broker_versions, resolve_version, sort_key


@pytest.mark.parametrize(
    ("version", "full"),
    [(None, KAFKA_VERSION), ("3.9", "3.9.2"), ("3.9.1", "3.9.1"), ("3.5", "3.5.2"), ("4.3", "4.3.1"), ("4.4", "4.4.0")],
)
def test_two_numbers_are_the_last_patch_release(version: str | None, full: str) -> None:
    assert resolve_version(version) == full


@pytest.mark.parametrize("version", ["", "3", "2.8", "3.9.9", "3.", "latest", "4.4.0.1", " 3.9"])
def test_unknown_versions_are_refused_with_those_that_exist(version: str) -> None:
    with pytest.raises(ConfigError, match=r"expected one of 3\.5\.2, .*4\.4\.0, or a prefix") as caught:
        LocalCluster(["a"], kafka_version=version)
    assert "\n" not in str(caught.value)
    assert repr(version) in str(caught.value)


@pytest.mark.parametrize("version", [3.9, 4, ["3.9", 4.1]])
def test_a_number_is_no_version(version: Any) -> None:
    # 4.10 and 4.1 would be the same.
    with pytest.raises(ConfigError, match=r'expected a string, such as "3\.9", got [34]'):
        LocalCluster(["a", "b"], kafka_version=version)


def test_versions_are_in_order_and_contain_the_default() -> None:
    assert list(VERSIONS) == sorted(VERSIONS, key=sort_key)
    assert KAFKA_VERSION in VERSIONS


def test_each_broker_has_a_version() -> None:
    assert broker_versions("3.7", 2) == ("3.7.2", "3.7.2")
    assert broker_versions(["3.7", "4.0.2"], 2) == ("3.7.2", "4.0.2")
    assert LocalCluster(["a", "b"], kafka_version=("4.4", "3.9.1")).versions == {1: "4.4.0", 2: "3.9.1"}
    with pytest.raises(ConfigError, match=r"a list of 3, one a broker, got \['3\.7'\]"):
        LocalCluster(["a", "b", "c"], kafka_version=["3.7"])
