"""Real Kafka brokers as processes of this machine, without Docker, Maven, or an installed Kafka or Java.

The feature levels of a cluster stay as they are while its brokers get a newer version of Kafka.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackassign import broker_plugin
from rackassign.errors import ClusterError, ConfigError
from rackassign.testing._broker_config import (
    HOST,
    KAFKA_VERSION,
    BrokerSpec,
    broker_command,
    broker_versions,
    check_config,
    checkpoint_file,
    plan_brokers,
    ports_needed,
    resolve_version,
    sort_key,
    write_files,
)
from rackassign.testing._cluster import DEFAULT_RACKS, READY_TIMEOUT_S, Broker, Cluster
from rackassign.testing._jars import kafka_jars
from rackassign.testing._machine import cache_errors, check_cache_path, reserve_ports
from rackassign.testing._processes import ProcessSupervisor, create_cluster_directory
from rackassign.testing._runtime import (
    KafkaRuntime,
    bootstrap_checkpoint,
    class_archive,
    find_java,
    is_formatted,
    make_class_archive,
)
from rackassign.testing._topics import admin_client
from rackassign.text import counted, join_ids
from rackassign.util.callbacks import Progress, ProgressCallback

_log = logging.getLogger(__name__)


_LOG_LINES = 30


_LARGEST_PORT = 65_535


_STOP_TIMEOUT_S = 30.0


_KILL_TIMEOUT_S = 30.0


_POLL_INTERVAL_S = 0.1


_PORT_TAKEN = "Address already in use"


_MOST_PORT_CLASHES = 3
"""So often a broker is started again because another program had its port; a program that keeps it is an error."""


class LocalCluster(Cluster):
    """Apache Kafka brokers on loopback, one for each given rack, as a KRaft cluster.

    `start_all()` creates and starts everything; a `with` block calls it. `close()` and the end of this process, however
    it ends, remove all processes and data.

    A new cluster has the features of the oldest version of its brokers (`metadata.version` and others), so brokers of
    several versions can be in it. `start(1, kafka_version="4.4")` starts a stopped broker with another version, and
    `finish_upgrade()` raises the features after all brokers have the new one.

    Args:
        racks: One entry per broker; IDs start at 1, and None is a broker without a rack. A rack may occur more than
            once. By default three brokers in the racks a, b and c.
        config: Broker properties for all brokers, which override the defaults; None removes a default.
        listeners: Protocols of additional listeners by name. `{"SECURE": "SASL_SSL"}` adds a listener with a password
            and TLS, see `client_config()`; "PLAINTEXT" adds another plain one.
        start_timeout_s: Seconds until all brokers must be ready, without the time of the first download of Kafka.
        progress: Callback for progress reports, including those of a download.
        first_port: Port of the plain listener of the first broker; each other broker has the next one. A free port
            takes the place of one that is not free, see `refused_ports`. By default all ports are free ones.
        kafka_version: Version of all brokers, or a list with one for each: "3.9.2", or "3.9" for the last patch release
            of 3.9. `rackassign.testing.VERSIONS` has those that exist, and `KAFKA_VERSION` is the default.
        broker_plugins: Whether brokers load the assignor of `rackassign.broker_plugin`, as the first of
            their list. It needs Kafka 4.0 or newer.

    Raises:
        ConfigError: There are no racks, a rack is empty, a listener is invalid, there are not enough ports from
            `first_port` on, the cluster itself sets one of the properties, or there is no such version of Kafka.
    """

    def __init__(
        self,
        racks: Sequence[str | None] = DEFAULT_RACKS,
        *,
        config: Mapping[str, str | None] | None = None,
        listeners: Mapping[str, str] | None = None,
        start_timeout_s: float = READY_TIMEOUT_S,
        progress: ProgressCallback | None = None,
        first_port: int | None = None,
        kafka_version: str | Sequence[str] | None = None,
        broker_plugins: bool = False,
    ) -> None:
        super().__init__(start_timeout_s, listeners or {}, progress)
        if not _are_racks(racks):
            raise ConfigError(f"racks: expected a list with a name or None for each broker, got {racks!r}")
        check_config(config or {})
        if first_port is not None and (
            type(first_port) is not int or not 1 <= first_port <= _LARGEST_PORT + 1 - len(racks)
        ):
            raise ConfigError(f"first_port: expected 1 to {_LARGEST_PORT + 1 - len(racks)}, got {first_port!r}")
        self._racks = tuple(racks)
        self._versions = dict(enumerate(broker_versions(kafka_version, len(racks)), 1))
        self._broker_plugins = broker_plugins
        self._check_plugins(*self._versions.values())
        self._preferred_ports = () if first_port is None else range(first_port, first_port + len(racks))
        self._refused_ports: Mapping[int, str] = {}
        assignors = {broker_plugin.PROPERTY: broker_plugin.ASSIGNORS} if broker_plugins else {}
        self._config = {**assignors, **(config or {})}
        self._supervisor: ProcessSupervisor | None = None
        self._specs: dict[int, BrokerSpec] = {}
        self._port_clashes: Counter[int] = Counter()
        self._java = Path()
        self._jars: dict[str, tuple[Path, ...]] = {}

    @property
    def versions(self) -> Mapping[int, str]:
        """Version of Kafka of each broker by broker ID; that of the last start for a broker that is down."""
        return dict(self._versions)

    @property
    def refused_ports(self) -> Mapping[int, str]:
        """Ports from `first_port` on that were not free at the start, each with the reason."""
        return self._refused_ports

    @property
    def pids(self) -> dict[int, int]:
        """Process IDs of the running brokers by broker ID."""
        return {int(name): pid for name, pid in self._running().items() if name.isdigit()}

    def start_all(self) -> None:
        """Start every broker, including stopped, killed and paused ones, and wait until all are ready.

        Raises:
            ConfigError: The path of the cache contains a character that Kafka or Java cannot read.
            ClusterError: There is no Java, Kafka cannot be fetched, or a broker does not start; in the last case the
                message has the end of its log.
        """
        if self._supervisor is not None:
            super().start_all()
            return
        check_cache_path()
        self._java = find_java().path
        versions = sorted(set(self._versions.values()), key=sort_key)
        for version in versions:
            self._fetch(version)
        brokers = f"{counted(len(self._racks), 'broker')} of Kafka {' and '.join(versions)}"
        try:
            # At the first starts, Kafka's tools run before the brokers do.
            self._on_progress(Progress(f"Preparing {brokers}"))
            with cache_errors():
                self._create(versions[0])
            self._on_progress(Progress(f"Starting {brokers}"))
            super().start_all()
        except BaseException:
            self.close()
            raise

    def start(self, broker_id: int, *, kafka_version: str | None = None) -> None:
        """Start a broker that is down, with its previous port and data; resume it if it is paused.

        This does not wait until the broker is ready; see `wait_ready()`.

        Args:
            broker_id: ID of the broker.
            kafka_version: Version of Kafka that the broker has from now on; None for its previous one. It must support
                the features of the cluster.

        Raises:
            ConfigError: There is no such broker or no such version, or the broker is running with another version.
            ClusterError: The process of the broker cannot be started, or its jars cannot be fetched.
        """
        broker = self._broker(broker_id)
        before = self._versions[broker_id]
        version = before if kafka_version is None else resolve_version(kafka_version)
        if version != before:
            if self._runs(broker):
                raise ConfigError(f"broker {broker_id} is running with Kafka {before}: stop it first")
            self._check_plugins(version)
            self._fetch(version)
            self._versions[broker_id] = version
        super().start(broker_id)

    def finish_upgrade(self) -> dict[str, int]:
        """Raise every feature of the cluster, such as `metadata.version`, to the level of the brokers' version.

        Returns:
            The level of each feature by name.

        Raises:
            ClusterError: The brokers have several versions, one is down, or the controller refuses a level.
        """
        versions = sorted(set(self._versions.values()), key=sort_key)
        if len(versions) > 1:
            raise ClusterError(f"the brokers have several versions of Kafka: {', '.join(versions)}")
        self.wait_ready(self._start_timeout_s)
        return raise_features(self.client_config())

    def close(self) -> None:
        """End all brokers and remove all data they have written. Calling this again does nothing.

        Raises:
            ClusterError: A process or a directory could not be removed.
        """
        supervisor, self._supervisor = self._supervisor, None
        self._should_run.clear()
        self._paused.clear()
        atexit.unregister(self.close)
        if supervisor is not None:
            supervisor.close()

    def log_tail(self, broker_id: int, lines: int = _LOG_LINES) -> str:
        """Return the last lines of a broker's log, including its standard error.

        Raises:
            ConfigError: There is no such broker.
        """
        log = self._specs[self._broker(broker_id).id].log
        if not log.exists():
            return ""
        return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])

    def _fetch(self, version: str) -> None:
        if version not in self._jars:
            self._jars[version] = kafka_jars(self._on_progress, version=version)

    def _check_plugins(self, *versions: str) -> None:
        oldest = broker_plugin.OLDEST_KAFKA
        older = sorted({version for version in versions if sort_key(version) < sort_key(oldest)}, key=sort_key)
        if self._broker_plugins and older:
            names = ", ".join(older)
            raise ConfigError(f"broker_plugins: the broker plug-in needs Kafka {oldest} or newer, got {names}")

    def _create(self, oldest: str) -> None:
        """Create the resources that the cluster keeps until it is closed: ports, directory, process supervisor."""
        cluster_dir = create_cluster_directory()
        try:
            ports = reserve_ports(ports_needed(len(self._racks), len(self._listeners)), self._preferred_ports)
            self._refused_ports = ports.refused
            try:
                self._supervisor = ProcessSupervisor(cluster_dir, inherit=ports.descriptors)
            finally:
                ports.close()
        finally:
            # The supervisor holds it from here on; without one, the start of the next cluster removes the directory.
            os.close(cluster_dir.descriptor)
        atexit.register(self.close)
        used_before = is_formatted(oldest)
        checkpoint = bootstrap_checkpoint(
            self._supervisor, self._java, oldest, self._jars[oldest], cluster_dir.directory / "format"
        )
        if used_before and oldest == KAFKA_VERSION:
            # A cluster in a fresh container may be the only one: it would wait for an archive in vain.
            scratch = cluster_dir.directory / "class-archive"
            runtime = KafkaRuntime(self._java, oldest, self._jars[oldest])
            make_class_archive(self._supervisor, runtime, checkpoint, scratch)
        specs = plan_brokers(self._racks, ports.numbers, cluster_dir.directory, list(self._listeners))
        config = self._config | self._secure(HOST, cluster_dir.directory)
        write_files(specs, config, (checkpoint_file(oldest), checkpoint), self._listeners)
        self._specs = {spec.id: spec for spec in specs}
        self._brokers = tuple(Broker(spec.id, spec.rack, HOST, spec.port, spec.listeners) for spec in specs)

    def _require_supervisor(self) -> ProcessSupervisor:
        if self._supervisor is None:
            raise ClusterError("the cluster is not running: start_all() first, or use it in a with block")
        return self._supervisor

    def _running(self) -> dict[str, int]:
        return {} if self._supervisor is None else self._supervisor.running()

    def _start(self, brokers: Sequence[Broker]) -> None:
        supervisor = self._require_supervisor()
        for broker in brokers:
            spec, version = self._specs[broker.id], self._versions[broker.id]
            jars = self._jars[version]
            archive = class_archive(KafkaRuntime(self._java, version, jars))
            options = [f"-XX:SharedArchiveFile={archive}"] if archive else []
            # Behind the others: an archive of classes fits a class path that begins with its own.
            plugins = [broker_plugin.jar_path()] if self._broker_plugins else []
            command = broker_command(self._java, version, [*jars, *plugins], spec, *options)
            supervisor.start(str(broker.id), command, spec.log)

    def _stop(self, brokers: Sequence[Broker]) -> None:
        self._signal(brokers, signal.SIGTERM)
        if not self._require_supervisor().wait_exit([str(broker.id) for broker in brokers], _STOP_TIMEOUT_S):
            late = ", ".join(str(broker.id) for broker in brokers if self._runs(broker))
            _log.warning("broker %s has not shut down within %g s, and is killed", late, _STOP_TIMEOUT_S)
            self._kill(brokers)

    def _kill(self, brokers: Sequence[Broker]) -> None:
        self._signal(brokers, signal.SIGKILL)
        if not self._require_supervisor().wait_exit([str(broker.id) for broker in brokers], _KILL_TIMEOUT_S):
            raise ClusterError(
                f"brokers {', '.join(str(broker.id) for broker in brokers)} are still running after SIGKILL"
            )

    def _pause(self, broker: Broker) -> None:
        if not self._runs(broker):
            raise ClusterError(f"broker {broker.id} cannot be paused: it is down")
        self._require_supervisor().signal(str(broker.id), signal.SIGSTOP)

    def _unpause(self, broker: Broker) -> None:
        self._signal([broker], signal.SIGCONT)

    def _signal(self, brokers: Sequence[Broker], number: int) -> None:
        for broker in brokers:
            self._require_supervisor().signal(str(broker.id), number)

    def _runs(self, broker: Broker) -> bool:
        return str(broker.id) in self._require_supervisor().running()

    def _check_alive(self, expected: Sequence[Broker]) -> None:
        running = self._require_supervisor().running()
        for broker in expected:
            if str(broker.id) not in running:
                code = self._require_supervisor().exit_code(str(broker.id))
                problem = f"broker {broker.id} has ended with {code}"
                log = self.log_tail(broker.id)
                if code == 1 and _PORT_TAKEN in log:
                    problem += f"; another program uses one of its ports {join_ids(self._ports(broker))}"
                    self._port_clashes[broker.id] += 1
                    if self._port_clashes[broker.id] <= _MOST_PORT_CLASHES:
                        # A reservation keeps out other test clusters, and no program that knows nothing of it.
                        _log.warning("%s; it is started again", problem)
                        self._start([broker])
                        continue
                raise ClusterError(f"{problem}; the end of its log:\n{log}")

    def _ports(self, broker: Broker) -> list[int]:
        spec = self._specs[broker.id]
        return [port for port in (spec.port, spec.controller_port, *spec.listeners.values()) if port is not None]

    def _wait_between_polls(self) -> None:
        self._require_supervisor().wait_change(_POLL_INTERVAL_S)


def _are_racks(racks: object) -> bool:
    """Return whether this is a list of racks; a set has no order, and of a mapping either side might be meant."""
    listed = isinstance(racks, Sequence) and not isinstance(racks, (str, bytes)) and bool(racks)
    return listed and all(rack is None or (isinstance(rack, str) and rack) for rack in racks)  # type: ignore[attr-defined]


_KEPT = frozenset({"kraft.version"})
"""Features that a cluster of `LocalCluster` cannot raise: its list of controllers is part of the configuration."""


_TIMEOUT_S = 180.0


def raise_features(client_config: Mapping[str, Any]) -> dict[str, int]:
    """Raise every feature of a cluster, whose brokers have one version, to the highest level; return all levels."""
    with admin_client(client_config, _TIMEOUT_S) as admin:
        described = admin.describe_features()
        levels = {name: known["finalized"][1] for name, known in described.items() if "finalized" in known}
        supported = {name: known["supported"][1] for name, known in described.items() if "supported" in known}
        raised = {n: most for n, most in supported.items() if most > levels.get(n, 0) and n not in _KEPT}
        if raised:
            _update(admin, raised)
    return levels | raised


def _update(admin: Any, levels: Mapping[str, int]) -> None:  # noqa: ANN401 - kafka-python is untyped
    from kafka.errors import KafkaError  # noqa: PLC0415 - a cluster can be started without an installed client

    try:
        results = admin.update_features(levels)
    except KafkaError as error:
        raise ClusterError(f"the features cannot be raised: {error}") from error
    # Brokers before 4.0 return an error for each feature.
    refused = [f"{name}: {result}" for name, result in results.items() if result != "OK"]
    if refused:
        raise ClusterError(f"the features cannot be raised: {'; '.join(refused)}")
