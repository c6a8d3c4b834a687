"""The configuration files of brokers.

Which versions of Kafka there are, and how they are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rackassign.errors import ConfigError
from rackassign.testing import KAFKA_VERSION, VERSIONS, LocalCluster
from rackassign.testing._broker_config import (
    broker_command,
    broker_versions,
    checkpoint_file,
    plan_brokers,
    ports_needed,
    resolve_version,
    sort_key,
    write_files,
)


def test_the_first_three_brokers_are_controllers(tmp_path: Path) -> None:
    racks = ["a", "b", "c", None]
    assert ports_needed(4) == 7
    nodes = plan_brokers(racks, range(1, 8), tmp_path)
    assert [(node.id, node.rack, node.port, node.controller_port) for node in nodes] == [
        (1, "a", 1, 5),
        (2, "b", 2, 6),
        (3, "c", 3, 7),
        (4, None, 4, None),
    ]


def test_files_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"features")
    nodes = plan_brokers(["rack ä:1", None], [11, 12, 21, 22], tmp_path)
    write_files(
        nodes, {"num.io.threads": "9", "key": "back\\slash 😀"}, ("bootstrap.checkpoint", tmp_path / "checkpoint"), {}
    )
    first, second = (dict(_properties(node.properties)) for node in nodes)
    assert first["broker.rack"] == "rack\\ \\u00e4\\:1"
    assert "broker.rack" not in second
    assert first["num.io.threads"] == "9"
    assert first["key"] == "back\\\\slash\\ \\ud83d\\ude00"
    assert first["process.roles"] == "broker,controller"
    assert first["controller.quorum.voters"] == "1@127.0.0.1\\:21,2@127.0.0.1\\:22"
    assert first["offsets.topic.replication.factor"] == "2"
    metas = [dict(_properties(node.data / "meta.properties")) for node in nodes]
    assert [meta["node.id"] for meta in metas] == ["1", "2"]
    assert metas[0]["cluster.id"] == metas[1]["cluster.id"]
    assert metas[0]["directory.id"] != metas[1]["directory.id"]
    assert (nodes[1].data / "bootstrap.checkpoint").read_bytes() == b"features"


def test_the_checkpoint_is_where_the_version_has_it_and_only_at_controllers(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"features")
    nodes = plan_brokers([None] * 4, range(1, 8), tmp_path)
    assert checkpoint_file("4.3.1") == "bootstrap.checkpoint"
    write_files(nodes, {}, (checkpoint_file("4.4.0"), tmp_path / "checkpoint"), {})
    found = [list(node.data.rglob("*.checkpoint")) for node in nodes]
    assert [len(files) for files in found] == [1, 1, 1, 0]
    assert found[0] == [nodes[0].data / "__cluster_metadata-0" / f"{0:020}-{0:010}.checkpoint"]


@pytest.mark.parametrize(
    ("version", "logging"),
    [("3.9.2", "-Dlog4j.configuration=file:{}/log4j.properties"), ("4.0.2", "-Dlog4j2.configurationFile={}/log4j2.")],
)
def test_a_broker_logs_with_the_log4j_of_its_version(tmp_path: Path, version: str, logging: str) -> None:
    (node,) = plan_brokers([None], [1, 2], tmp_path)
    command = broker_command(Path("java"), version, [Path("a.jar"), Path("b.jar")], node)
    assert [option for option in command if option.startswith(logging.format(node.directory))]
    assert command[-4:] == ["-cp", "a.jar:b.jar", "kafka.Kafka", str(node.properties)]


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text("ascii").splitlines():
        name, _, value = line.partition("=")
        yield name, value


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


def test_versions_are_in_order_and_contain_the_default() -> None:
    assert list(VERSIONS) == sorted(VERSIONS, key=sort_key)
    assert KAFKA_VERSION in VERSIONS


def test_each_broker_has_a_version() -> None:
    assert broker_versions("3.7", 2) == ("3.7.2", "3.7.2")
    assert broker_versions(["3.7", "4.0.2"], 2) == ("3.7.2", "4.0.2")
    assert LocalCluster(["a", "b"], kafka_version=("4.4", "3.9.1")).versions == {1: "4.4.0", 2: "3.9.1"}
    with pytest.raises(ConfigError, match=r"a list of 3, one a broker, got \['3\.7'\]"):
        LocalCluster(["a", "b", "c"], kafka_version=["3.7"])
