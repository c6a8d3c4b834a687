"""Real Kafka brokers in containers: clusters like those of `LocalCluster`, with a separate address for each broker."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackassign.errors import ClusterError
from rackassign.testing.cluster import Broker, Cluster
from rackassign.testing.docker.cleanup import sweep
from rackassign.testing.docker.config import check_docker, environment
from rackassign.testing.docker.engine import engine_errors, find_image
from rackassign.testing.docker.resources import DockerResources
from rackassign.testing.local.broker_config import HOST, new_uuid
from rackassign.util.progress import Progress, ProgressCallback, ignore_progress

__all__ = ["DockerCluster", "find_image", "sweep"]

START_TIMEOUT_S = 180.0

_LOG_LINES = 30
_STOP_TIMEOUT_S = 30
_END_TIMEOUT_S = 30
_LOOK_EVERY_S = 0.1
_UP = frozenset({"running", "paused"})


class DockerCluster(Cluster):
    """Apache Kafka brokers in containers, one for each given rack, on a separate network.

    `start_all()` creates and starts everything; a `with` block calls it. `close()` and a normal exit of this process
    remove everything. If the process is killed, the start of the next cluster removes the remains, as does `sweep()`.

    Args:
        racks: One entry per broker; IDs start at 1, and None is a broker without a rack. A rack may occur more than
            once.
        config: Broker properties for all brokers, which override the defaults; None removes a default.
        listeners: Additional listeners by name, as for `LocalCluster`.
        image: An image with the environment variables of apache/kafka; `find_image` selects the default.
        start_timeout_s: Seconds until all brokers must be ready, without the time to pull an image.
        progress: Callback for progress reports.

    Raises:
        ConfigError: There are no racks, a rack is empty, or the cluster itself sets one of the properties.
    """

    def __init__(
        self,
        racks: Sequence[str | None],
        *,
        config: Mapping[str, str | None] | None = None,
        listeners: Mapping[str, str] | None = None,
        image: str | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        progress: ProgressCallback | None = None,
    ) -> None:
        super().__init__(start_timeout_s, listeners or {})
        check_docker(racks, config or {})
        self._racks = tuple(racks)
        self._config = dict(config or {})
        self._told: dict[str, str | None] = {}
        self._image = image
        self._tell = progress or ignore_progress
        self._process = os.getpid()
        self._claim: DockerResources | None = None
        self._cluster_id = new_uuid()
        self._containers: dict[int, Any] = {}
        self._cut: set[int] = set()

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
        if self._claim is None:
            image = find_image(self._image, self._tell)
            sweep()
            self._tell(Progress(f"Starting {len(self._racks)} containers of {image}"))
            brokers = len(self._racks)
            self._claim = claim = DockerResources(image, brokers * (1 + len(self._listeners)))
            atexit.register(self.close)
            self._told = {**self._config, **self._secure(HOST, claim.directory)}
            self._brokers = tuple(
                Broker(
                    position + 1,
                    rack,
                    HOST,
                    claim.ports[position],
                    {name: claim.ports[i * brokers + position] for i, name in enumerate(self._listeners, 1)},
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
        claim, self._claim = self._claim, None
        self._wanted.clear()
        self._paused.clear()
        self._containers.clear()
        self._cut.clear()
        atexit.unregister(self.close)
        if claim is not None:
            claim.give_up()

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
        if broker_id not in self._cut:
            # Before disconnecting, so that `wait_ready` does not wait for the broker.
            self._wanted.discard(broker_id)
            self._cut.add(broker_id)
            with engine_errors(f"broker {broker_id} cannot be cut off"):
                self._claimed().disconnect(container)

    def reconnect(self, broker_id: int) -> None:
        """Reconnect a disconnected broker to the network, with its previous ports.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The engine refuses the request.
        """
        broker = self._broker(broker_id)
        if broker_id in self._cut:
            with engine_errors(f"broker {broker_id} cannot be put on the network again"):
                self._claimed().reconnect(self._container(broker), broker)
            self._cut.discard(broker_id)
            if self._runs(broker):
                self._wanted.add(broker_id)

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
        claim = self._claimed()
        for broker in brokers:
            with engine_errors(f"broker {broker.id} cannot be started"):
                if broker.id in self._containers:
                    self._containers[broker.id].start()
                else:
                    told = environment(broker, len(self._brokers), self._cluster_id, self._told, self._listeners)
                    self._containers[broker.id] = claim.run(broker, told)

    def _stop(self, brokers: Sequence[Broker]) -> None:
        self._end_together(brokers, lambda container: container.stop(timeout=_STOP_TIMEOUT_S))

    def _kill(self, brokers: Sequence[Broker]) -> None:
        self._end_together(brokers, lambda container: container.kill())

    def _end_together(self, brokers: Sequence[Broker], end: Callable[[Any], None]) -> None:
        def end_one(broker: Broker) -> None:
            if not self._runs(broker):
                return
            container = self._container(broker)
            try:
                with engine_errors(f"broker {broker.id} cannot be ended"):
                    end(container)
                    container.wait(timeout=_END_TIMEOUT_S)
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
        return self._state(broker) in _UP

    def _state(self, broker: Broker) -> str:
        """Return the state of a broker's container; an empty string if there is no container yet."""
        self._claimed()
        container = self._containers.get(broker.id)
        if container is None:
            return ""
        with engine_errors(f"broker {broker.id} cannot be looked at"):
            container.reload()
            return str(container.status)

    def _check_alive(self, wanted: Sequence[Broker]) -> None:
        for broker in wanted:
            if not self._runs(broker):
                code = self._container(broker).attrs["State"]["ExitCode"]
                raise ClusterError(
                    f"broker {broker.id} has ended with {code}; the end of its log:\n{self.log_tail(broker.id)}"
                )

    def _pause_between_looks(self) -> None:
        # The engine could report the end of a container but not readiness, which has to be polled.
        time.sleep(_LOOK_EVERY_S)

    def _container(self, broker: Broker) -> Any:  # noqa: ANN401 - docker-py is untyped
        self._claimed()
        container = self._containers.get(broker.id)
        if container is None:
            raise ClusterError(f"broker {broker.id} was never started")
        return container

    def _claimed(self) -> DockerResources:
        if self._claim is None:
            raise ClusterError("the cluster is not running: start_all() first, or use it in a with block")
        return self._claim
