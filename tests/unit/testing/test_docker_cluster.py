"""Clusters in containers, as far as that can be told without a Docker engine."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, ImageNotFound, NotFound

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
from rackassign.testing import Broker
from rackassign.testing import docker_resources as engine
from rackassign.testing._docker_cluster import DockerCluster
from rackassign.testing.docker_resources import (
    OFFICIAL_IMAGE,
    OWN_IMAGE,
    ResourceOwner,
    connect,
    environment,
    find_image,
    remove,
    variable,
)
from rackassign.testing.pytest_plugin import _provider

NOWHERE = "unix:///nowhere/docker.sock"

# What a broker is told


def as_the_image_reads_it(name: str) -> str:
    """The property a variable sets, by the rule of Kafka's own set-up step."""
    return name.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_")


@pytest.mark.parametrize("name", ["broker.rack", "log.dirs", "a_b.c", "a-b.c"])
def test_a_variable_sets_the_property_it_is_made_for(name: str) -> None:
    assert as_the_image_reads_it(variable(name)) == name


def told(broker: Broker, brokers: int, **config: str) -> dict[str, str]:
    names = {name.replace("_", "."): value for name, value in config.items()}
    return {
        as_the_image_reads_it(name): value
        for name, value in environment(broker, brokers, "id", names, {}).items()
        if name.startswith("KAFKA_")
    }


def test_a_broker_is_told_who_and_where_it_is() -> None:
    properties = told(Broker(2, "b", "127.0.0.1", 4711), 3)
    assert properties["node.id"] == "2"
    assert properties["broker.rack"] == "b"
    assert properties["process.roles"] == "broker,controller"
    assert properties["advertised.listeners"] == "EXTERNAL://127.0.0.1:4711,INTERNAL://kafka-2:19092"
    assert properties["controller.quorum.voters"] == "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"
    assert properties["replica.selector.class"].endswith("RackAwareReplicaSelector")
    assert properties["default.replication.factor"] == "3"


def test_only_the_first_three_are_controllers_and_a_rack_may_be_missing() -> None:
    properties = told(Broker(4, None, "127.0.0.1", 1), 5)
    assert properties["process.roles"] == "broker"
    assert "CONTROLLER" not in properties["listeners"]
    assert "broker.rack" not in properties
    assert properties["controller.quorum.voters"].count("@") == 3


def test_the_user_s_properties_go_over_the_defaults() -> None:
    assert told(Broker(1, "a", "127.0.0.1", 1), 1, num_io_threads="9")["num.io.threads"] == "9"


def test_the_cluster_s_id_is_the_same_for_all() -> None:
    assert environment(Broker(1, "a", "127.0.0.1", 1), 2, "the-id", {}, {})["CLUSTER_ID"] == "the-id"


@pytest.mark.parametrize("racks", [[], "abc", ["a", ""]])
def test_racks_that_cannot_be(racks: Any) -> None:
    with pytest.raises(ConfigError, match="racks: "):
        DockerCluster(racks)


@pytest.mark.parametrize("name", ["node.id", "log.dirs", "inter.broker.listener.name", "Upper.case", "heap.opts"])
def test_properties_that_cannot_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=f"config: .*{name}"):
        DockerCluster(["a"], config={name: "x"})


def test_nothing_can_be_asked_of_a_cluster_that_is_not_started() -> None:
    cluster = DockerCluster(["a"])
    assert cluster.brokers == ()
    with pytest.raises(ConfigError, match="no broker 1"):
        cluster.kill(1)
    cluster.close()


# Whose it is


def test_an_owner_can_be_read_from_labels(tmp_path: Path) -> None:
    owner = ResourceOwner.for_this_process(tmp_path / "abc.lock")
    assert owner == ResourceOwner("abc", platform.node(), str(tmp_path / "abc.lock"))
    assert ResourceOwner.from_labels({**owner.labels, "more": "x"}) == owner


@pytest.mark.parametrize("labels", [None, {}, {"rackassign.run": "x"}, {"rackassign.digest": "x"}])
def test_what_is_not_a_cluster_s_has_no_owner(labels: dict[str, str] | None) -> None:
    assert ResourceOwner.from_labels(labels) is None


def test_an_owner_lives_as_long_as_its_lock_is_held(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    owner = ResourceOwner.for_this_process(lock)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not owner.is_gone()
    assert owner.is_gone()
    lock.unlink()
    assert owner.is_gone()


def test_of_other_machines_nothing_is_known(tmp_path: Path) -> None:
    assert not ResourceOwner("run", platform.node() + "-other", str(tmp_path / "missing.lock")).is_gone()


class Thing:
    """A container or a network."""

    def __init__(self, labels: dict[str, str], *, vanishes: bool = False, refusals: Iterable[int] = ()) -> None:
        self.id = f"id-{id(self)}"
        self.labels = labels
        self.attrs = {"Labels": labels}
        self.removed = False
        self._vanishes = vanishes
        self._refusals = iter(refusals)

    def remove(self, **_: bool) -> None:
        if (status := next(self._refusals, None)) is not None:
            response = requests.Response()
            response.status_code = status
            raise APIError("not now", response=response)
        if self._vanishes:
            raise NotFound("somebody was faster")
        self.removed = True


def engine_with(containers: list[Thing], networks: list[Thing]) -> Any:
    return SimpleNamespace(
        containers=SimpleNamespace(list=lambda **_: containers), networks=SimpleNamespace(list=lambda **_: networks)
    )


def test_only_the_condemned_are_removed() -> None:
    dead, alive = ResourceOwner("dead", "h", "l"), ResourceOwner("alive", "h", "l")
    containers = [Thing(dead.labels), Thing(alive.labels), Thing(dead.labels, vanishes=True), Thing({})]
    networks = [Thing(alive.labels), Thing(dead.labels)]
    assert remove(engine_with(containers, networks), lambda owner: owner.run == "dead") == 3
    assert [thing.removed for thing in containers + networks] == [True, False, False, False, False, True]


def test_what_another_process_still_removes_is_waited_for() -> None:
    dead = ResourceOwner("dead", "h", "l")
    container, network = Thing(dead.labels, refusals=[409]), Thing(dead.labels, refusals=[403, 403])
    assert remove(engine_with([container], [network]), lambda _: True) == 2
    assert (container.removed, network.removed) == (True, True)


@pytest.mark.parametrize(("status", "patience_s"), [(403, 0.0), (500, 600.0)])
def test_a_removal_that_the_engine_refuses_for_good_is_an_error(status: int, patience_s: float) -> None:
    stuck = Thing(ResourceOwner("dead", "h", "l").labels, refusals=repeat(status))
    with pytest.raises(ClusterError, match="containers and networks cannot be removed"):
        remove(engine_with([], [stuck]), lambda _: True, patience_s)


# The engine and the image


def fake_engine(monkeypatch: pytest.MonkeyPatch, here: set[str], remote: set[str]) -> None:
    def get(image: str) -> None:
        if image not in here:
            raise ImageNotFound(image)

    def pull(image: str) -> None:
        if image not in remote:
            raise APIError("registry: no such host")
        here.add(image)

    images = SimpleNamespace(get=get, pull=pull)
    monkeypatch.setattr(engine, "connect", lambda: SimpleNamespace(images=images, close=lambda: None))


@pytest.fixture(autouse=True)
def no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_IMAGE", raising=False)
    monkeypatch.delenv("RACKASSIGN_PROVIDER", raising=False)


@pytest.mark.parametrize(
    ("here", "remote", "found"),
    [
        ({OFFICIAL_IMAGE, OWN_IMAGE}, set(), OFFICIAL_IMAGE),
        ({OWN_IMAGE}, {OFFICIAL_IMAGE}, OFFICIAL_IMAGE),
        ({OWN_IMAGE}, set(), OWN_IMAGE),
    ],
)
def test_the_official_image_is_taken_where_it_can_be_had(
    monkeypatch: pytest.MonkeyPatch, here: set[str], remote: set[str], found: str
) -> None:
    fake_engine(monkeypatch, here, remote)
    assert find_image() == found
    assert found in here


def test_a_wish_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine(monkeypatch, {OFFICIAL_IMAGE, "mine"}, {"ours"})
    monkeypatch.setenv("KAFKA_IMAGE", "mine")
    assert find_image() == "mine"
    heard: list[str] = []
    assert find_image("ours", lambda progress: heard.append(str(progress))) == "ours"
    assert heard == ["Pulling ours"]


@pytest.mark.parametrize("wish", [None, "mine"])
def test_no_image_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, wish: str | None) -> None:
    fake_engine(monkeypatch, set(), set())
    with pytest.raises(ClusterError, match=r"no such host.*docker/build\.sh") as caught:
        find_image(wish)
    assert "\n" not in str(caught.value)


def test_a_missing_engine_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    with pytest.raises(ClusterError, match="no Docker engine responds: ") as caught:
        connect()
    assert "\n" not in str(caught.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers.core.docker_client", None)
    with pytest.raises(MissingExtraError, match=r"rackassign\[docker\]"):
        connect()


# The fixtures


def options(option: str | None = None, ini: str = "") -> Any:
    return SimpleNamespace(getoption=lambda _: option, getini=lambda _: ini)


def test_the_provider_is_chosen_by_option_then_ini_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _provider(options()) == "local"
    monkeypatch.setenv("RACKASSIGN_PROVIDER", "docker")
    assert _provider(options()) == "docker"
    assert _provider(options(ini="local")) == "local"
    assert _provider(options("docker", "local")) == "docker"
    with pytest.raises(ConfigError, match="'podman'"):
        _provider(options("podman"))


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_without_an_engine_tests_are_skipped_and_fail_in_ci(tmp_path: Path, ci: str, code: int) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rackassign.testing.pytest_plugin"]\n', "utf-8")
    (tmp_path / "test_users.py").write_text("def test_uses(rack_cluster):\n    pass\n", "utf-8")
    # The arguments keep the outer run's settings and cache out of it.
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-c", os.devnull, "-p", "no:cacheprovider", "--rootdir"]
    ran = subprocess.run(
        [*command, str(tmp_path), "--rack-cluster-provider", "docker", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "CI": ci,
            "DOCKER_HOST": NOWHERE,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "no Docker engine responds" in ran.stdout
