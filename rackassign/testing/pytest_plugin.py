"""Pytest fixtures with real multi-rack clusters.

pytest finds them by itself, by the entry point `pytest11`, and loads no Kafka client before a test uses one of them.
Without entry points (`PYTEST_DISABLE_PLUGIN_AUTOLOAD`), `-p rackassign.testing.pytest_plugin` enables them, or
`pytest_plugins = ["rackassign.testing.pytest_plugin"]` in a `conftest.py`; doing both is no error.

By default the cluster has one broker in each of the racks a, b and c; the ini option `rack_cluster_racks` and the
command-line option `--rack-cluster-racks a,a,b` set other racks. By default brokers are processes of this machine. The
command-line option `--rack-cluster-provider docker`, the ini option `rack_cluster_provider` or the environment variable
`RACKASSIGN_PROVIDER`, in this order, selects containers.

The command-line option `--kafka-version` and the ini option `kafka_version` select the version of Kafka of local
brokers. A test with the marker `kafka_version("3.9")` has brokers of that version, and one with several versions runs
once with each. One with the marker `broker_plugins` has local brokers that load the assignor of rackassign for groups
of KIP-848.

Tests are skipped with the reason if there is no Java or no Docker engine, or if Kafka cannot be fetched. With `CI=true`
in the environment they fail instead.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

# Its names are imported when they are first used, as the docstring promises.
from rackassign import testing
from rackassign.errors import ClusterError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from rackassign.testing import Cluster, LocalCluster

_OPTION = "rack_cluster_racks"
_DEFAULT = "a,b,c"
_PROVIDER = "rack_cluster_provider"
_LOCAL, _DOCKER = "local", "docker"
_VERSION = "kafka_version"
_PLUGINS = "broker_plugins"

MakeCluster: TypeAlias = "Callable[..., Cluster]"
"""`make_cluster(racks, *, config=None, listeners=None, kafka_version=None) -> cluster`; the cluster is up."""

MakeTopic = Callable[..., str]
"""`make_topic(partitions=1, *, replication_factor=None, replicas=None, config=None) -> name`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = (
        "racks of the brokers of the fixture rack_cluster, separated by commas; empty for a broker without a rack"
    )
    parser.addini(_OPTION, help_text, default=_DEFAULT)
    group = parser.getgroup("rackassign")
    group.addoption("--rack-cluster-racks", dest=_OPTION, default=None, help=help_text)
    help_text = f"where the brokers of rack_cluster run: {_LOCAL} (the default) or {_DOCKER}"
    parser.addini(_PROVIDER, help_text, default="")
    group.addoption("--rack-cluster-provider", dest=_PROVIDER, default=None, help=help_text)
    help_text = "version of Kafka of local brokers, such as 3.9.2, or 3.9 for its last patch release"
    parser.addini(_VERSION, help_text, default="")
    group.addoption("--kafka-version", dest=_VERSION, default=None, help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers for what the brokers of a test are, and let kafka-python be imported.

    kafka-python 3.0.12 reads its schemas, while it is imported, in a way that Python 3.11 and 3.12 deprecate and 3.13
    allows again: where warnings are errors, tests could not import it.
    """
    config.addinivalue_line("markers", f"{_VERSION}(version, ...): versions of Kafka that the test runs with")
    config.addinivalue_line("markers", f"{_PLUGINS}: local brokers have the broker plug-in of rackassign")
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with each version of its marker.

    A marker without a version, or with one that does not exist, is an error of the test's module, as a wrong
    `parametrize` is.
    """
    marker = metafunc.definition.get_closest_marker(_VERSION)
    if marker is None or _VERSION not in metafunc.fixturenames:
        return
    problem, versions = f'the marker {_VERSION} needs a version, such as "3.9"', list[str]()
    try:
        versions = [testing.resolve_version(version) for version in marker.args]
    except ConfigError as error:
        problem = str(error)
    if not versions:
        # The calls between pytest and this function would hide the message.
        pytest.fail(f"{metafunc.definition.name}: {problem}", pytrace=False)
    metafunc.parametrize(_VERSION, versions)


@pytest.fixture
def kafka_version(request: pytest.FixtureRequest) -> str | None:
    """The version of Kafka that local brokers of the test have; None for the default.

    A marker `kafka_version` of the test, or a parameter of this name, overrides the options.
    """
    return _chosen_version(request.config)


@pytest.fixture(scope="session")
def rack_cluster_session(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of the test session, in the state that earlier tests left it in; prefer `rack_cluster`."""
    with _maker(request.config, _chosen_version(request.config))(_racks(request.config)) as cluster:
        yield cluster


class OtherCluster:
    """A cluster of another kind than that of the test session: of another version, or with the broker plug-in.

    It is kept for further tests until one needs a cluster of another kind, as idle brokers take processor time.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._opened = ExitStack()
        self._kind: tuple[str | None, bool] = (None, False)
        self._cluster: Cluster | None = None

    def of(self, version: str | None, *, plugins: bool) -> Cluster:
        """Return the cluster of a version, None for that of the session, and close one of another kind."""
        if self._cluster is None or self._kind != (version, plugins):
            self.close()
            options = {_PLUGINS: True} if plugins else {}
            made = _maker(self._config, version)(_racks(self._config), **options)
            self._cluster, self._kind = self._opened.enter_context(made), (version, plugins)
        return self._cluster

    def close(self) -> None:
        self._cluster = None
        self._opened.close()


@pytest.fixture(scope="session")
def other_cluster(request: pytest.FixtureRequest) -> Iterator[OtherCluster]:
    """The cluster for tests whose brokers are not those of the test session; prefer `rack_cluster`."""
    with closing(OtherCluster(request.config)) as other:
        yield other


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest, kafka_version: str | None) -> Iterator[MakeCluster]:
    """A factory of additional clusters for tests that need a special one; they are closed when the test ends.

    It takes the arguments that `LocalCluster` and `DockerCluster` have in common. Local brokers also take a
    `kafka_version`.
    """
    with ExitStack() as opened:

        def make(racks: Sequence[str | None], **options: Any) -> Cluster:  # noqa: ANN401 - arguments of the cluster class
            return opened.enter_context(_maker(request.config, kafka_version)(racks, **options))

        yield make


@pytest.fixture
def rack_cluster(request: pytest.FixtureRequest, kafka_version: str | None, other_cluster: OtherCluster) -> Cluster:
    """The cluster of the test session with every broker up and unfenced, whatever earlier tests have done to it.

    A test with another version of Kafka, or with the marker `broker_plugins`, has another cluster.
    """
    chosen = _chosen_version(request.config)
    version = chosen if testing.resolve_version(kafka_version) == testing.resolve_version(chosen) else kafka_version
    plugins = request.node.get_closest_marker(_PLUGINS) is not None
    cluster: Cluster
    if not plugins and version == chosen:
        other_cluster.close()
        cluster = request.getfixturevalue("rack_cluster_session")
    else:
        cluster = other_cluster.of(version, plugins=plugins)
    cluster.start_all()
    return cluster


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A factory of names for topics and groups that are unique on the cluster."""
    test = "".join(char if char.isascii() and char.isalnum() else "-" for char in request.node.name)[:80]
    run = secrets.token_hex(3)
    numbers = itertools.count(1)
    return lambda: f"{test}-{run}-{next(numbers)}"


@pytest.fixture
def make_topic(rack_cluster: Cluster, unique_name: Callable[[], str]) -> MakeTopic:
    """A factory of topics; when it returns a name, all replicas are in sync and the preferred leaders lead.

    The replicas are either given for each partition or spread round-robin, with broker p + 1 as leader of partition p.
    The replication factor is 3 by default, or the number of brokers if that is smaller.
    """

    def make(
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
        config: dict[str, str] | None = None,
    ) -> str:
        ids = [broker.id for broker in rack_cluster.brokers]
        name = unique_name()
        factor = min(3, len(ids)) if replication_factor is None else replication_factor
        placed = replicas if replicas is not None else _spread(ids, partitions, factor)
        testing.create_topic(rack_cluster.bootstrap, name, placed, config=config)
        return name

    return make


def _spread(ids: Sequence[int], partitions: int, factor: int) -> list[list[int]]:
    if partitions < 1 or not 1 <= factor <= len(ids):
        raise ConfigError(f"{partitions} partitions of {factor} replicas cannot be put on {len(ids)} brokers")
    return [[ids[(number + copy) % len(ids)] for copy in range(factor)] for number in range(partitions)]


def _racks(config: pytest.Config) -> list[str | None]:
    chosen = config.getoption(_OPTION) or config.getini(_OPTION)
    return [rack.strip() or None for rack in str(chosen).split(",")]


def _provider(config: pytest.Config) -> str:
    chosen = str(
        config.getoption(_PROVIDER) or config.getini(_PROVIDER) or os.environ.get("RACKASSIGN_PROVIDER") or _LOCAL
    )
    if chosen not in {_LOCAL, _DOCKER}:
        raise ConfigError(f"{_PROVIDER}: expected {_LOCAL} or {_DOCKER}, got {chosen!r}")
    return chosen


def _chosen_version(config: pytest.Config) -> str | None:
    return str(config.getoption(_VERSION) or config.getini(_VERSION)) or None


def _maker(config: pytest.Config, version: str | None) -> Callable[..., Cluster]:
    """Return a factory of clusters of a version after checking that they can start, or skip the test."""
    provider = _provider(config)
    if provider == _DOCKER and version is not None:
        if version == _chosen_version(config):
            raise ConfigError(f"{_VERSION} is for local brokers: KAFKA_IMAGE selects the version of containers")
        pytest.skip(f"Kafka {version} is asked for, and KAFKA_IMAGE alone selects the version of containers")
    try:
        if provider == _DOCKER:
            return partial(testing.DockerCluster, image=testing.find_image())
        testing.find_java()
        testing.kafka_jars(version=version)
    except (ClusterError, MissingExtraError) as error:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip(f"no {provider} Kafka: {error}")
    return testing.LocalCluster if version is None else partial(_local_cluster, version)


def _local_cluster(version: str, racks: Sequence[str | None], **options: Any) -> LocalCluster:  # noqa: ANN401
    return testing.LocalCluster(racks, **{"kafka_version": version, **options})
