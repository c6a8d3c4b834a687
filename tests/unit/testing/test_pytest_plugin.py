"""Racks and replicas of the fixtures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.testing._local_cluster import LocalCluster
from rackassign.testing.pytest_plugin import _local_cluster, _maker, _racks, _spread, pytest_generate_tests


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


class Test:
    """A test that is collected, as pytest shows it to the plugin."""

    __test__ = False

    def __init__(self, *versions: str, fixtures: tuple[str, ...] = ("rack_cluster", "kafka_version")) -> None:
        self.name = "test_it"
        self.fixturenames = fixtures
        self.definition = self
        self.parameters: list[tuple[str, list[str]]] = []
        self._versions = versions

    def get_closest_marker(self, name: str) -> object:
        return SimpleNamespace(args=self._versions) if name == "kafka_version" else None

    def parametrize(self, name: str, values: list[str]) -> None:
        self.parameters.append((name, values))


def generated(test: Any) -> list[tuple[str, list[str]]]:
    pytest_generate_tests(test)
    parameters: list[tuple[str, list[str]]] = test.parameters
    return parameters


def test_a_marker_runs_a_test_once_with_each_version() -> None:
    assert generated(Test("3.9", "4.4.0")) == [("kafka_version", ["3.9.2", "4.4.0"])]
    assert generated(Test("3.9", fixtures=("tmp_path",))) == []


def test_a_marker_needs_a_version_that_exists() -> None:
    with pytest.raises(pytest.fail.Exception, match="test_it: the marker kafka_version needs a version") as without:
        generated(Test())
    with pytest.raises(
        pytest.fail.Exception, match=r"test_it: kafka_version: expected one of 3\.5\.2, .* got '2\.8'"
    ) as unknown:
        generated(Test("2.8"))
    assert not without.value.pytrace
    assert not unknown.value.pytrace
    assert unknown.value.__context__ is None


def chosen(**options: str) -> Any:
    return SimpleNamespace(getoption=options.get, getini=lambda _: "")


def test_versions_of_containers_are_left_to_the_image() -> None:
    with pytest.raises(ConfigError, match="KAFKA_IMAGE selects the version of containers"):
        _maker(chosen(rack_cluster_provider="docker", kafka_version="3.9"), "3.9")
    with pytest.raises(pytest.skip.Exception, match=r"Kafka 3\.9\.2 is asked for"):
        _maker(chosen(rack_cluster_provider="docker"), "3.9.2")


def test_a_cluster_of_a_test_can_have_another_version_than_the_test() -> None:
    assert _local_cluster("3.9", ["a"]).versions == {1: "3.9.2"}
    cluster = _local_cluster("3.9", ["a", None], kafka_version=["4.0", "4.4"])
    assert isinstance(cluster, LocalCluster)
    assert cluster.versions == {1: "4.0.2", 2: "4.4.0"}
