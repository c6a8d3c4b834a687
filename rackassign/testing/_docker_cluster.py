"""Brokers in containers (extra `docker`): one container and one rack for each broker, on a separate network."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackassign import broker_plugin
from rackassign.errors import ClusterError
from rackassign.testing._broker_config import HOST, new_uuid
from rackassign.testing._cluster import DEFAULT_RACKS, READY_TIMEOUT_S, Broker, Cluster
from rackassign.testing.docker_resources import (
    DockerResources,
    check_docker,
    engine_errors,
    environment,
    find_image,
    sweep,
)
from rackassign.util.callbacks import Progress, ProgressCallback

__all__ = ["DockerCluster", "find_image", "sweep"]

_LOG_LINES = 30
_STOP_TIMEOUT_S = 30
_EXIT_TIMEOUT_S = 30
_POLL_INTERVAL_S = 0.1
_RUNNING_STATES = frozenset({"running", "paused"})


class DockerCluster(Cluster):
    """Apache Kafka brokers in containers, one for each given rack, on a separate network.

    `start_all()` creates and starts everything; a `with` block calls it. `close()` and a normal exit of this process
    remove everything. If the process is killed, the start of the next cluster removes the remains, as does `sweep()`.

    Args:
        racks: One entry per broker; IDs start at 1, and None is a broker without a rack. A rack may occur more than
            once. By default three brokers in the racks a, b and c.
        config: Broker properties for all brokers, which override the defaults; None removes a default.
        listeners: Additional listeners by name, as for `LocalCluster`.
        image: An image with the environment variables of apache/kafka; `find_image` selects the default.
        start_timeout_s: Seconds until all brokers must be ready, without the time to pull an image.
        progress: Callback for progress reports.
        broker_plugins: Whether brokers load the assignor of `rackassign.broker_plugin`, as the first of their list. It
            is mounted, so the engine must be on this machine.

    Raises:
        ConfigError: There are no racks, a rack is empty, or the cluster itself sets one of the properties.
    """

    def __init__(
        self,
        racks: Sequence[str | None] = DEFAULT_RACKS,
        *,
        config: Mapping[str, str | None] | None = None,
        listeners: Mapping[str, str] | None = None,
        image: str | None = None,
        start_timeout_s: float = READY_TIMEOUT_S,
        progress: ProgressCallback | None = None,
        broker_plugins: bool = False,
    ) -> None:
        super().__init__(start_timeout_s, listeners or {}, progress)
        check_docker(racks, config or {})
        self._racks = tuple(racks)
        self._plugins = (broker_plugin.jar_path(),) if broker_plugins else ()
        assignors = {broker_plugin.PROPERTY: broker_plugin.ASSIGNORS} if broker_plugins else {}
        self._config = {**assignors, **(config or {})}
        self._properties: dict[str, str | None] = {}
        self._image = image
        self._process = os.getpid()
        self._resources: DockerResources | None = None
        self._cluster_id = new_uuid()
        self._containers: dict[int, Any] = {}
        self._disconnected: set[int] = set()

    @property
    def pids(self) -> dict[int, int]:
        """Process IDs of the running brokers on this machine, by broker ID."""
        running = [broker for broker in self._brokers if self._runs(broker)]
        return {broker.id: int(self._container(broker).attrs["State"]["Pid"]) for broker in running}

    def start_all(self) -> None:
        """Start every broker, including stopped, killed and paused ones, and wait until all are ready.

        Raises:
            ClusterError: No Docker engine responds, there is no image, or a broker does not start; in the last case the
                message has the end of its log.
            MissingExtraError: testcontainers is not installed.
        """
        if self._resources is None:
            image = find_image(self._image, self._on_progress)
            sweep()
            self._on_progress(Progress(f"Starting {len(self._racks)} containers of {image}"))
            brokers = len(self._racks)
            self._resources = resources = DockerResources(image, brokers * (1 + len(self._listeners)))
            atexit.register(self.close)
            self._properties = {**self._config, **self._secure(HOST, resources.directory)}
            self._brokers = tuple(
                Broker(
                    position + 1,
                    rack,
                    HOST,
                    resources.ports[position],
                    {name: resources.ports[i * brokers + position] for i, name in enumerate(self._listeners, 1)},
                )
                for position, rack in enumerate(self._racks)
            )
            try:
                super().start_all()
            except BaseException:
                self.close()
                raise
        else:
            super().start_all()

    def close(self) -> None:
        """Remove all containers and the network. Calling this again does nothing.

        Raises:
            ClusterError: The engine does not remove them.
        """
        if os.getpid() != self._process:
            # A forked child of the owner owns no resources.
            return
        resources, self._resources = self._resources, None
        self._should_run.clear()
        self._paused.clear()
        self._containers.clear()
        self._disconnected.clear()
        atexit.unregister(self.close)
        if resources is not None:
            resources.close()

    def start(self, broker_id: int) -> None:
        """Start a broker that is down, resume it if it is paused, and reconnect it if it is disconnected.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: Its container cannot be started.
        """
        self.reconnect(broker_id)
        super().start(broker_id)

    def disconnect(self, broker_id: int) -> None:
        """Disconnect a broker from the network: its connections end, and neither clients nor brokers can reach it.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The broker was never started, or the engine refuses the request.
        """
        container = self._container(self._broker(broker_id))
        if broker_id not in self._disconnected:
            # Before disconnecting, so that `wait_ready` does not wait for the broker.
            self._should_run.discard(broker_id)
            self._disconnected.add(broker_id)
            with engine_errors(f"broker {broker_id} cannot be disconnected"):
                self._require_resources().disconnect(container)

    def reconnect(self, broker_id: int) -> None:
        """Reconnect a disconnected broker to the network, with its previous ports.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The engine refuses the request.
        """
        broker = self._broker(broker_id)
        if broker_id in self._disconnected:
            with engine_errors(f"broker {broker_id} cannot be reconnected"):
                self._require_resources().reconnect(self._container(broker), broker)
            self._disconnected.discard(broker_id)
            if self._runs(broker):
                self._should_run.add(broker_id)

    def log_tail(self, broker_id: int, lines: int = _LOG_LINES) -> str:
        """Return the last lines of a broker's log, including its standard error.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The cluster is not running.
        """
        container = self._container(self._broker(broker_id))
        with engine_errors(f"the log of broker {broker_id} cannot be read"):
            return str(container.logs(tail=lines).decode("utf-8", "replace")).rstrip("\n")

    def _start(self, brokers: Sequence[Broker]) -> None:
        resources = self._require_resources()
        for broker in brokers:
            with engine_errors(f"broker {broker.id} cannot be started"):
                if broker.id in self._containers:
                    self._containers[broker.id].start()
                else:
                    variables = environment(
                        broker, len(self._brokers), self._cluster_id, self._properties, self._listeners
                    )
                    self._containers[broker.id] = resources.run(broker, variables, self._plugins)

    def _stop(self, brokers: Sequence[Broker]) -> None:
        self._end_all(brokers, lambda container: container.stop(timeout=_STOP_TIMEOUT_S))

    def _kill(self, brokers: Sequence[Broker]) -> None:
        self._end_all(brokers, lambda container: container.kill())

    def _end_all(self, brokers: Sequence[Broker], end: Callable[[Any], None]) -> None:
        def end_one(broker: Broker) -> None:
            if not self._runs(broker):
                return
            container = self._container(broker)
            try:
                with engine_errors(f"broker {broker.id} cannot be stopped"):
                    end(container)
                    container.wait(timeout=_EXIT_TIMEOUT_S)
            except ClusterError:
                # The container may have ended by itself just before.
                if self._runs(broker):
                    raise

        with ThreadPoolExecutor(len(brokers), thread_name_prefix="rackassign-docker") as pool:
            for _ in pool.map(end_one, brokers):
                pass

    def _pause(self, broker: Broker) -> None:
        if not self._runs(broker):
            raise ClusterError(f"broker {broker.id} cannot be paused: it is down")
        with engine_errors(f"broker {broker.id} cannot be paused"):
            self._container(broker).pause()

    def _unpause(self, broker: Broker) -> None:
        if self._state(broker) == "paused":
            with engine_errors(f"broker {broker.id} cannot be resumed"):
                self._container(broker).unpause()

    def _runs(self, broker: Broker) -> bool:
        return self._state(broker) in _RUNNING_STATES

    def _state(self, broker: Broker) -> str:
        """Return the state of a broker's container; an empty string if there is no container yet."""
        self._require_resources()
        container = self._containers.get(broker.id)
        if container is None:
            return ""
        with engine_errors(f"broker {broker.id} cannot be inspected"):
            container.reload()
            return str(container.status)

    def _check_alive(self, expected: Sequence[Broker]) -> None:
        for broker in expected:
            if not self._runs(broker):
                code = self._container(broker).attrs["State"]["ExitCode"]
                raise ClusterError(
                    f"broker {broker.id} has ended with {code}; the end of its log:\n{self.log_tail(broker.id)}"
                )

    def _wait_between_polls(self) -> None:
        # The engine could report the end of a container but not readiness, which has to be polled.
        time.sleep(_POLL_INTERVAL_S)

    def _container(self, broker: Broker) -> Any:  # noqa: ANN401 - docker-py is untyped
        self._require_resources()
        container = self._containers.get(broker.id)
        if container is None:
            raise ClusterError(f"broker {broker.id} was never started")
        return container

    def _require_resources(self) -> DockerResources:
        if self._resources is None:
            raise ClusterError("the cluster is not running: start_all() first, or use it in a with block")
        return self._resources
