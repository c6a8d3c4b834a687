"""Real Kafka brokers in containers: the same clusters as `LocalCluster`, each broker with an address of its own."""

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
    """Apache Kafka brokers in containers, one for each rack given, on a network of their own.

    Everything is in place after `start_all()`, which a `with` block calls. Nothing survives `close()` or an ordinary
    end of this process; what it leaves if it is killed, the next cluster's start removes, as does `sweep()`.

    Args:
        racks: One entry a broker, whose ids count from 1; None is a broker without a rack. A rack may be named
            more than once.
        config: Server properties for all brokers, over our defaults; None takes a default away.
        listeners: Further listeners besides the plain one, by name, as for `LocalCluster`.
        image: An image with the variables of apache/kafka; see `find_image` for what is taken otherwise.
        start_timeout_s: Seconds until all brokers must be ready, without the pull of an image.
        progress: Told what is being done.

    Raises:
        ConfigError: No racks, an empty rack, or a property that the cluster sets itself.
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
        """The process ids, on this machine, of the brokers that run, by broker id."""
        running = [broker for broker in self._brokers if self._runs(broker)]
        return {broker.id: int(self._container(broker).attrs["State"]["Pid"]) for broker in running}

    def start_all(self) -> None:
        """Bring every broker up, also one that was stopped, killed or paused, and wait until all are ready.

        Raises:
            ClusterError: No Docker engine answers, there is no image, or a broker does not start; the message then
                has the end of its log.
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
        """Remove all containers and the network. May be called again, which does nothing.

        Raises:
            ClusterError: The engine does not remove them.
        """
        if os.getpid() != self._process:
            # A forked copy of the owner owns nothing.
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
        """Start a broker that is down, resume it if it is paused, and put it on the network if it is cut off.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: Its container cannot be started.
        """
        self.reconnect(broker_id)
        super().start(broker_id)

    def disconnect(self, broker_id: int) -> None:
        """Take a broker off the network: its connections end, and neither clients nor brokers reach it.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: It was never started, or the engine refuses.
        """
        container = self._container(self._broker(broker_id))
        if broker_id not in self._cut:
            # Before the deed, so that nobody waits for it to be ready.
            self._wanted.discard(broker_id)
            self._cut.add(broker_id)
            with engine_errors(f"broker {broker_id} cannot be cut off"):
                self._claimed().disconnect(container)

    def reconnect(self, broker_id: int) -> None:
        """Put a broker that is cut off on the network again, with the ports it had.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The engine refuses.
        """
        broker = self._broker(broker_id)
        if broker_id in self._cut:
            with engine_errors(f"broker {broker_id} cannot be put on the network again"):
                self._claimed().reconnect(self._container(broker), broker)
            self._cut.discard(broker_id)
            if self._runs(broker):
                self._wanted.add(broker_id)

    def log_tail(self, broker_id: int, lines: int = _LOG_LINES) -> str:
        """Return the last lines a broker has logged, its standard error included.

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
                # It may have ended by itself a moment before.
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
        """Return what the engine says of a broker's container; nothing if there is none yet."""
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
        # The engine could tell of an end but not of readiness, which can only be asked for again.
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
