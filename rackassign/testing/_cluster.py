"""Base class of test clusters, independent of where their brokers run.

Which brokers are registered and unfenced is requested from one given broker. The request is encoded here for two
reasons. An admin client chooses the broker it sends a request to, while here the broker that was just started has to
respond itself. And kafka-python leaves sockets to offline brokers open.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing._security import ClusterCertificates, check_listeners, create_user, secured
from rackassign.util.callbacks import Progress, ProgressCallback, ignore_progress

if TYPE_CHECKING:
    from typing_extensions import Self


DEFAULT_RACKS = ("a", "b", "c")


READY_TIMEOUT_S = 300.0
"""A guard against hanging: at a load of 75 on two processors, brokers were not ready within two minutes."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of a test cluster, with its addresses for clients on this machine.

    Args:
        id: Node ID; the first is 1.
        rack: The `broker.rack`; None for a broker without one.
        host: Address of the plain listener.
        port: Port of the plain listener; a restart does not change it.
        listeners: Ports of the additional listeners by name.
    """

    id: int
    rack: str | None
    host: str
    port: int
    listeners: Mapping[str, int] = field(default_factory=dict)


class Cluster(ABC):
    """A cluster of real brokers in racks, with methods that inject faults.

    A subclass implements the brokers and the operations on them, such as start, stop, kill, pause and unpause. Those
    on racks are built on these. Methods may be called in any order; an operation does nothing if the broker is already
    in the requested state.

    Args:
        start_timeout_s: Seconds until all brokers must be ready after a start.
        listeners: Protocols of additional listeners by name.

    Raises:
        ConfigError: The name or the protocol of a listener is invalid, or the timeout is no number above 0.
    """

    def __init__(
        self, start_timeout_s: float, listeners: Mapping[str, str], progress: ProgressCallback | None = None
    ) -> None:
        check_listeners(listeners)
        if type(start_timeout_s) not in {int, float} or not 0 < start_timeout_s < math.inf:
            raise ConfigError(f"start_timeout_s: expected a number of seconds above 0, got {start_timeout_s!r}")
        self._start_timeout_s = start_timeout_s
        self._listeners = dict(listeners)
        self._on_progress = progress or ignore_progress
        self._was_ready = False
        self._security: ClusterCertificates | None = None
        self._user_created = False
        self._brokers: tuple[Broker, ...] = ()
        self._should_run: set[int] = set()
        self._paused: set[int] = set()

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """All brokers in order of their IDs, whether they are up or not."""
        return self._brokers

    @property
    def bootstrap(self) -> str:
        """The `bootstrap_servers` for clients, with all brokers."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self._brokers)

    @property
    def running(self) -> frozenset[int]:
        """IDs of the brokers whose process or container exists, paused ones included."""
        return frozenset(broker.id for broker in self._brokers if self._runs(broker))

    def rack_brokers(self, rack: str) -> list[Broker]:
        """Return the brokers of a rack.

        Raises:
            ConfigError: There is no such rack; the message names those that exist.
        """
        found = [broker for broker in self._brokers if broker.rack == rack]
        if not found:
            racks = sorted({broker.rack for broker in self._brokers if broker.rack is not None})
            raise ConfigError(f"no rack {rack!r}: the cluster has {', '.join(map(repr, racks)) or 'none'}")
        return found

    def client_config(self, listener: str | None = None) -> dict[str, Any]:
        """Return the arguments for a kafka-python client that connects to the brokers.

        Args:
            listener: Name of an additional listener; None for the plain one.

        Raises:
            ConfigError: There is no such listener.
        """
        if listener is None:
            return {"bootstrap_servers": self.bootstrap}
        if listener not in self._listeners:
            raise ConfigError(f"no listener {listener!r}: the cluster has {', '.join(self._listeners) or 'none'}")
        return self._listener_config(listener, self._brokers)

    def _secure(self, host: str, directory: Path) -> dict[str, str]:
        """Create certificates if a listener needs them, and return the broker properties for them."""
        if not secured(self._listeners):
            return {}
        self._security = ClusterCertificates.issued(host, directory)
        self._user_created = False
        return self._security.broker_properties(self._listeners)

    def _listener_config(self, listener: str, brokers: Sequence[Broker]) -> dict[str, Any]:
        servers = ",".join(f"{broker.host}:{broker.listeners[listener]}" for broker in brokers)
        login = self._security.client_config() if self._security and listener in secured(self._listeners) else {}
        return {"bootstrap_servers": servers, **login}

    def start_all(self) -> None:
        """Start every broker, including stopped, killed and paused ones, and wait until all are ready.

        Raises:
            ClusterError: A broker does not start; the message has the end of its log.
        """
        for broker in self._brokers:
            self.start(broker.id)
        self.wait_ready(self._start_timeout_s)
        self._was_ready = True
        if self._security is not None and not self._user_created:
            client_configs = [
                self._listener_config(name, [b]) for name in secured(self._listeners) for b in self._brokers
            ]
            create_user(self.bootstrap, client_configs, self._start_timeout_s)
            self._user_created = True

    def start(self, broker_id: int) -> None:
        """Start a broker that is down, with its previous port and data; resume it if it is paused.

        This does not wait until the broker is ready; see `wait_ready()`.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The process of the broker cannot be started.
        """
        broker = self._broker(broker_id)
        self.resume(broker_id)
        if broker_id not in self._should_run or not self._runs(broker):
            self._start([broker])
            self._should_run.add(broker_id)

    def stop(self, broker_id: int) -> None:
        """Shut a broker down cleanly (controlled shutdown), and wait until its process has ended.

        The broker hands over its partitions. If it does not finish within 30 s because no controller is available, it
        is killed.

        Raises:
            ConfigError: There is no such broker.
        """
        self._end([self._broker(broker_id)], in_order=True)

    def kill(self, broker_id: int) -> None:
        """Kill a broker without shutdown, like a crash, and wait until its process has ended.

        The other brokers notice after 6 s, the `broker.session.timeout.ms` of test clusters, unless it is configured.

        Raises:
            ConfigError: There is no such broker.
        """
        self._end([self._broker(broker_id)], in_order=False)

    def pause(self, broker_id: int) -> None:
        """Suspend a broker, so that connections to it hang and do not break.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: The broker is down.
        """
        broker = self._broker(broker_id)
        if broker_id not in self._paused:
            self._pause(broker)
            self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker.

        Raises:
            ConfigError: There is no such broker.
        """
        broker = self._broker(broker_id)
        if broker_id in self._paused:
            self._unpause(broker)
            self._paused.discard(broker_id)

    def start_rack(self, rack: str) -> None:
        """Start all brokers of a rack; see `start()`."""
        for broker in self.rack_brokers(rack):
            self.start(broker.id)

    def stop_rack(self, rack: str) -> None:
        """Shut down all brokers of a rack at the same time; see `stop()`."""
        self._end(self.rack_brokers(rack), in_order=True)

    def kill_rack(self, rack: str) -> None:
        """Kill all brokers of a rack at the same time; see `kill()`."""
        self._end(self.rack_brokers(rack), in_order=False)

    def pause_rack(self, rack: str) -> None:
        """Suspend all brokers of a rack; see `pause()`."""
        for broker in self.rack_brokers(rack):
            self.pause(broker.id)

    def resume_rack(self, rack: str) -> None:
        """Resume all paused brokers of a rack; see `resume()`."""
        for broker in self.rack_brokers(rack):
            self.resume(broker.id)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every broker that should be up (started and not paused) is registered and unfenced.

        Args:
            timeout_s: Maximum time to wait in seconds.

        Raises:
            ClusterError: A broker has died, or the timeout has expired. The message has the end of the broker's log, or
                the brokers that are not ready.
        """
        deadline = time.monotonic() + timeout_s
        reported = 0
        while True:
            expected = [broker for broker in self._brokers if broker.id in self._should_run - self._paused]
            self._check_alive(expected)
            missing = unready_brokers([(b.id, b.host, b.port) for b in expected], deadline)
            ready = len(expected) - len(missing)
            # Of brokers that come back the caller knows.
            if ready != reported and not self._was_ready:
                reported = ready
                self._on_progress(Progress("Brokers that are ready", ready, len(expected), ""))
            if not missing:
                return
            if time.monotonic() >= deadline:
                what = "; ".join(f"broker {broker} {problem}" for broker, problem in sorted(missing.items()))
                raise ClusterError(f"not ready within {timeout_s:g} s: {what}")
            self._wait_between_polls()

    @abstractmethod
    def close(self) -> None:
        """End all brokers and remove all data they have written. Calling this again does nothing."""

    @abstractmethod
    def _start(self, brokers: Sequence[Broker]) -> None:
        """Start brokers that are down."""

    @abstractmethod
    def _stop(self, brokers: Sequence[Broker]) -> None:
        """Shut down brokers at the same time and wait until they have ended; ignore brokers that are already down."""

    @abstractmethod
    def _kill(self, brokers: Sequence[Broker]) -> None:
        """Kill brokers at the same time and wait until they have ended; ignore brokers that are already down."""

    @abstractmethod
    def _pause(self, broker: Broker) -> None:
        """Suspend the process of a running broker."""

    @abstractmethod
    def _unpause(self, broker: Broker) -> None:
        """Undo `_pause`."""

    @abstractmethod
    def _runs(self, broker: Broker) -> bool:
        """Return whether the process of a broker exists."""

    @abstractmethod
    def _check_alive(self, expected: Sequence[Broker]) -> None:
        """Raise a ClusterError with the end of its log if one of the brokers has ended unexpectedly."""

    @abstractmethod
    def _wait_between_polls(self) -> None:
        """Wait briefly; may return earlier if a broker ends."""

    def _end(self, brokers: Sequence[Broker], *, in_order: bool) -> None:
        if in_order:
            for broker in brokers:
                self.resume(broker.id)
        # Before the brokers end, so that the end of a process is not reported as a failure.
        self._should_run -= {broker.id for broker in brokers}
        (self._stop if in_order else self._kill)(brokers)
        self._paused -= {broker.id for broker in brokers}

    def _broker(self, broker_id: int) -> Broker:
        for broker in self._brokers:
            if broker.id == broker_id:
                return broker
        raise ConfigError(f"no broker {broker_id}: the cluster has {', '.join(str(b.id) for b in self._brokers)}")

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_METADATA = 3


_VERSION = 4
"""Version of the Metadata request: supported by every broker since 0.11, and with fixed-width fields."""


_CLIENT = b"rackassign-testing"


_ATTEMPT_S = 5.0


def unready_brokers(expected: Sequence[tuple[int, str, int]], deadline: float) -> dict[int, str]:
    """Return the brokers that are not up, with the reason; empty if all are up.

    A broker is up if it responds and all of the brokers list it as registered and unfenced. A broker responds only once
    it has caught up with its own registration, so an earlier registration with an equal ID is not mistaken for it.
    """
    problems: dict[int, str] = {}
    for broker, host, port in expected:
        timeout_s = max(0.5, min(_ATTEMPT_S, deadline - time.monotonic()))
        try:
            alive = alive_brokers(host, port, timeout_s)
        except OSError as error:
            problems[broker] = f"does not respond on {host}:{port} ({error})"
            continue
        for other, _, _ in expected:
            if other not in alive:
                problems.setdefault(other, f"is not registered or is fenced, according to broker {broker}")
    return problems


def alive_brokers(host: str, port: int, timeout_s: float) -> frozenset[int]:
    """Return the IDs of the registered and unfenced brokers that the broker at an address lists."""
    # Header: api key, version, correlation id, client id. Body: no topics, no automatic creation.
    request = struct.pack("!hhih", _METADATA, _VERSION, 1, len(_CLIENT)) + _CLIENT + struct.pack("!i?", 0, False)  # noqa: FBT003
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack("!i", len(request)) + request)
        (size,) = struct.unpack("!i", _receive(connection, 4))
        return _broker_ids(_receive(connection, size))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("the broker closed the connection")
        received += part
    return received


def _broker_ids(response: bytes) -> frozenset[int]:
    """Decode the list of brokers, which follows the correlation ID and the throttle time."""
    (count,) = struct.unpack_from("!i", response, 8)
    at = 12
    ids: set[int] = set()
    for _ in range(count):
        broker, host_length = struct.unpack_from("!ih", response, at)
        at += 6 + host_length + 4
        (rack_length,) = struct.unpack_from("!h", response, at)
        at += 2 + max(rack_length, 0)
        ids.add(broker)
    return frozenset(ids)
