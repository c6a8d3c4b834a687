"""A local cluster, without its brokers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

import pytest

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing import Broker, Java, LocalCluster
from rackassign.testing._broker_config import BrokerSpec


def test_unknown_brokers_and_racks_are_named_with_those_that_exist() -> None:
    cluster = LocalCluster(["a", "b", None])
    cluster._brokers = tuple(Broker(n, rack, "127.0.0.1", n) for n, rack in ((1, "a"), (2, "b"), (3, None)))
    assert cluster.bootstrap == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    with pytest.raises(ConfigError, match="no broker 4: the cluster has 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ConfigError, match="no rack 'z': the cluster has 'a', 'b'"):
        cluster.stop_rack("z")


def test_a_cluster_that_was_never_started_says_so_and_closes() -> None:
    cluster = LocalCluster(["a"])
    cluster._brokers = (Broker(1, "a", "127.0.0.1", 1),)
    with pytest.raises(ClusterError, match="not running"):
        cluster.kill(1)
    cluster.close()
    cluster.close()
    assert cluster.pids == {}


class EndedBrokers:
    """A supervisor whose processes have all ended."""

    def running(self) -> dict[str, int]:
        return {}

    def exit_code(self, _: str) -> int:
        return 1


def test_a_port_that_stays_taken_ends_the_wait_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, started = LocalCluster(["a"]), list[Broker]()
    spec = BrokerSpec(1, "a", 9092, None, {}, tmp_path)
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.write_text("Caused by: java.net.BindException: Address already in use\n", "ascii")
    cluster._brokers, cluster._specs = (Broker(1, "a", "127.0.0.1", 9092),), {1: spec}
    cluster._supervisor, cluster._should_run = cast("Any", EndedBrokers()), {1}
    monkeypatch.setattr(cluster, "_start", started.extend)
    monkeypatch.setattr(cluster, "_wait_between_polls", lambda: None)
    monkeypatch.setattr("rackassign.testing._cluster.unready_brokers", lambda *_: {1: "does not respond"})
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ClusterError, match="ended with 1; another program uses one of its ports 9092; the end"),
    ):
        cluster.wait_ready()
    assert len(started) == len(caplog.records) == 3
    assert caplog.messages[0].endswith("one of its ports 9092; it is started again")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(
            ({"racks": racks}, "racks: expected a list with a name or None")
            for racks in ([], ["a", ""], "abc", {"a", "b"}, {1: "a"}, ["a", 1], None, 3, b"ab", iter("a"))
        ),
        *(
            ({"racks": ["a", "b", None], "first_port": port}, f"first_port: expected 1 to 65533, got {port}")
            for port in (0, -1, 65_534, 70_000)
        ),
        ({"first_port": "9092"}, "first_port: expected 1 to 65533, got '9092'"),
        ({"first_port": True}, "first_port: expected 1 to 65533, got True"),
        ({"start_timeout_s": -1}, "start_timeout_s: expected a number of seconds above 0, got -1"),
        ({"start_timeout_s": float("nan")}, "start_timeout_s: expected a number"),
        ({"start_timeout_s": "60"}, "start_timeout_s: expected a number"),
        ({"config": ["a"]}, r"config: expected properties by name, got \['a'\]"),
        ({"config": {1: "a"}}, "config: expected properties by name"),
        # What the cluster sets itself.
        *(
            ({"config": {name: "x"}}, f"config: {name} cannot be set")
            for name in ("log.dirs", "listeners", "broker.rack")
        ),
        *(
            ({"config": {"num.partitions": value}}, r"config: 'num\.partitions': expected a string")
            for value in (3, 0, True, 1.5, ["x"])
        ),
        ({"config": {"key": "x\nlog.dirs=elsewhere"}}, "'key' contains a line break"),
        # 4.10 and 4.1 would be the same number.
        *(
            ({"racks": ["a", "b"], "kafka_version": version}, r'expected a string, such as "3\.9", got [34]')
            for version in (3.9, 4, ["3.9", 4.1])
        ),
        ({"listeners": {"secure": "SASL_SSL"}}, "a name of capital letters and digits .* got 'secure'"),
        (
            {"listeners": {"CONTROLLER": "PLAINTEXT"}},
            "other than CONTROLLER, EXTERNAL, INTERNAL, PLAINTEXT, got 'CONTROLLER'",
        ),
        ({"listeners": {"SECURE": "SSL"}}, "listeners.SECURE: expected PLAINTEXT or SASL_SSL, got 'SSL'"),
        ({"listeners": ["SECURE"]}, r"listeners: expected protocols by name, got \['SECURE'\]"),
        ({"listeners": {1: "SASL_SSL"}}, "listeners: expected a name of capital letters"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_started(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LocalCluster(**options)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cluster needs is there, up to the files of the cluster itself."""
    java = Java(Path("/usr/bin/java"), 17, "PATH")
    monkeypatch.setattr("rackassign.testing._local_cluster.find_java", lambda: java)
    monkeypatch.setattr("rackassign.testing._local_cluster.kafka_jars", lambda *_, **__: (Path("a.jar"),))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("folder", ["clusters", "ports", "formatted"])
def test_a_cache_that_cannot_be_written_to_is_one_message(
    folder: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    # Root may write anywhere; a file in the place of the folder is an obstacle for root too.
    (cache / folder).write_text("", "ascii")
    monkeypatch.setattr("rackassign.testing._local_cluster.ProcessSupervisor", lambda *_, **__: Supervisor())
    monkeypatch.setattr("rackassign.testing._local_cluster.is_formatted", lambda _: False)
    with pytest.raises(ClusterError, match=rf"no cluster can be created in {cache}: \[Errno \d+\] .*{folder}"):
        LocalCluster(["a"]).start_all()


class Supervisor:
    """A supervisor with a tool that succeeds."""

    def start(self, _name: str, _argv: list[str], log: Path) -> int:
        written = log.parent / "data" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
        written.parent.mkdir(parents=True)
        written.write_bytes(b"")
        return 1

    def wait_exit(self, *_: object) -> bool:
        return True

    def exit_code(self, _: str) -> int:
        return 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", ["Doe, Jane", "a:b", "a\nb"])
def test_a_cache_whose_path_java_cannot_read_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKASSIGN_CACHE", str(tmp_path / name))
    with pytest.raises(ConfigError, match="a comma, a colon or a line break: set RACKASSIGN_CACHE"):
        LocalCluster(["a"]).start_all()
    assert not (tmp_path / name).exists()
