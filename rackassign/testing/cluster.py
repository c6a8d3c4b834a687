"""What every kind of test cluster can do, wherever its brokers run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing.readiness import unready_brokers
from rackassign.testing.security import ClusterCertificates, check_listeners, create_user, secured

if TYPE_CHECKING:
    from typing_extensions import Self

READY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of a test cluster, where a client on this machine reaches it.

    Args:
        id: Its node id, from 1.
        rack: Its `broker.rack`; None for a broker without one.
        host: The address of its listener.
        port: The port of its listener; the same after every restart.
        listeners: The ports of its further listeners, by their names.
    """

    id: int
    rack: str | None
    host: str
    port: int
    listeners: Mapping[str, int] = field(default_factory=dict)


class Cluster(ABC):
    """A cluster of real brokers in racks, with the faults a test can give them.

    A subclass supplies the brokers and the five things that happen to one; everything by rack follows from that.
    All of it may be called in any order: asking for a state a broker is already in does nothing.

    Args:
        start_timeout_s: Seconds a start may take until all brokers are ready.
        listeners: Protocols of further listeners, by their names.

    Raises:
        ConfigError: A listener cannot be.
    """

    def __init__(self, start_timeout_s: float, listeners: Mapping[str, str]) -> None:
        check_listeners(listeners)
        self._start_timeout_s = start_timeout_s
        self._listeners = dict(listeners)
        self._security: ClusterCertificates | None = None
        self._user_made = False
        self._brokers: tuple[Broker, ...] = ()
        self._wanted: set[int] = set()
        self._paused: set[int] = set()

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers, by id, whether they are up or not."""
        return self._brokers

    @property
    def bootstrap(self) -> str:
        """The `bootstrap_servers` of a client, naming all brokers."""
        return ",".join(f"{broker.host}:{broker.port}" for broker in self._brokers)

    def client_config(self, listener: str | None = None) -> dict[str, Any]:
        """Return the arguments with which a kafka-python client reaches the brokers.

        Args:
            listener: Name of a further listener; the plain one if left out.

        Raises:
            ConfigError: There is no such listener.
        """
        if listener is None:
            return {"bootstrap_servers": self.bootstrap}
        if listener not in self._listeners:
            raise ConfigError(f"no listener {listener!r}: there are {', '.join(self._listeners) or 'none'}")
        return self._way_in(listener, self._brokers)

    def _secure(self, host: str, directory: Path) -> dict[str, str]:
        """Make certificates if a listener needs them; return what brokers are told of them."""
        if not secured(self._listeners):
            return {}
        self._security = ClusterCertificates.issued(host, directory)
        self._user_made = False
        return self._security.broker_properties(self._listeners)

    def _way_in(self, listener: str, brokers: Sequence[Broker]) -> dict[str, Any]:
        servers = ",".join(f"{broker.host}:{broker.listeners[listener]}" for broker in brokers)
        login = self._security.client_config() if self._security and listener in secured(self._listeners) else {}
        return {"bootstrap_servers": servers, **login}

    def start_all(self) -> None:
        """Bring every broker up, also one that was stopped, killed or paused, and wait until all are ready.

        Raises:
            ClusterError: A broker does not start; the message has the end of its log.
        """
        for broker in self._brokers:
            self.start(broker.id)
        self.wait_ready(self._start_timeout_s)
        if self._security is not None and not self._user_made:
            ways_in = [self._way_in(name, [b]) for name in secured(self._listeners) for b in self._brokers]
            create_user(self.bootstrap, ways_in, self._start_timeout_s)
            self._user_made = True

    def start(self, broker_id: int) -> None:
        """Start a broker that is down, with the port and the data it had; resume it if it is paused.

        Does not wait until it is ready: that is `wait_ready()`.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: Its process cannot be started.
        """
        broker = self._broker(broker_id)
        self.resume(broker_id)
        if broker_id not in self._wanted or not self._runs(broker):
            self._start([broker])
            self._wanted.add(broker_id)

    def stop(self, broker_id: int) -> None:
        """Shut a broker down in good order, handing over its partitions, and wait until its process has ended.

        One that cannot finish in 30 s, for lack of a controller to hand over to, is killed.

        Raises:
            ConfigError: There is no such broker.
        """
        self._end([self._broker(broker_id)], in_order=True)

    def kill(self, broker_id: int) -> None:
        """Kill a broker outright, as a crash would, and wait until its process is gone.

        The others take 6 s to notice, unless `broker.session.timeout.ms` says otherwise.

        Raises:
            ConfigError: There is no such broker.
        """
        self._end([self._broker(broker_id)], in_order=False)

    def pause(self, broker_id: int) -> None:
        """Freeze a broker: connections to it hang rather than break.

        Raises:
            ConfigError: There is no such broker.
            ClusterError: It is down.
        """
        broker = self._broker(broker_id)
        if broker_id not in self._paused:
            self._pause(broker)
            self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on.

        Raises:
            ConfigError: There is no such broker.
        """
        broker = self._broker(broker_id)
        if broker_id in self._paused:
            self._unpause(broker)
            self._paused.discard(broker_id)

    def start_rack(self, rack: str) -> None:
        """Start all brokers of a rack, see `start()`."""
        for broker in self._rack(rack):
            self.start(broker.id)

    def stop_rack(self, rack: str) -> None:
        """Shut all brokers of a rack down at once, see `stop()`."""
        self._end(self._rack(rack), in_order=True)

    def kill_rack(self, rack: str) -> None:
        """Kill all brokers of a rack at once, see `kill()`."""
        self._end(self._rack(rack), in_order=False)

    def pause_rack(self, rack: str) -> None:
        """Freeze all brokers of a rack, see `pause()`."""
        for broker in self._rack(rack):
            self.pause(broker.id)

    def resume_rack(self, rack: str) -> None:
        """Let all paused brokers of a rack go on, see `resume()`."""
        for broker in self._rack(rack):
            self.resume(broker.id)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until every broker that should be up (started, not paused) is registered and unfenced.

        Args:
            timeout_s: Seconds to wait at most.

        Raises:
            ClusterError: One of them has died, with the end of its log, or time is up, with what is missing.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            wanted = [broker for broker in self._brokers if broker.id in self._wanted - self._paused]
            self._check_alive(wanted)
            missing = unready_brokers([(b.id, b.host, b.port) for b in wanted], deadline)
            if not missing:
                return
            if time.monotonic() >= deadline:
                what = "; ".join(f"broker {broker} {problem}" for broker, problem in sorted(missing.items()))
                raise ClusterError(f"not ready within {timeout_s:g} s: {what}")
            self._pause_between_looks()

    @abstractmethod
    def close(self) -> None:
        """End all brokers and remove all they have written. May be called again, which does nothing."""

    @abstractmethod
    def _start(self, brokers: Sequence[Broker]) -> None:
        """Start brokers that are down."""

    @abstractmethod
    def _stop(self, brokers: Sequence[Broker]) -> None:
        """Shut down brokers together and wait for their end; those that are down already are no error."""

    @abstractmethod
    def _kill(self, brokers: Sequence[Broker]) -> None:
        """Kill brokers together and wait for their end; those that are down already are no error."""

    @abstractmethod
    def _pause(self, broker: Broker) -> None:
        """Stop a running broker's threads."""

    @abstractmethod
    def _unpause(self, broker: Broker) -> None:
        """Undo `_pause`."""

    @abstractmethod
    def _runs(self, broker: Broker) -> bool:
        """Return whether its process is there."""

    @abstractmethod
    def _check_alive(self, wanted: Sequence[Broker]) -> None:
        """Raise a ClusterError with its last words if one of the brokers has ended by itself."""

    @abstractmethod
    def _pause_between_looks(self) -> None:
        """Wait a moment, less if a broker ends."""

    def _end(self, brokers: Sequence[Broker], *, in_order: bool) -> None:
        if in_order:
            for broker in brokers:
                self.resume(broker.id)
        # Before the deed, so that nobody takes the end of its process for an accident.
        self._wanted -= {broker.id for broker in brokers}
        (self._stop if in_order else self._kill)(brokers)
        self._paused -= {broker.id for broker in brokers}

    def _broker(self, broker_id: int) -> Broker:
        for broker in self._brokers:
            if broker.id == broker_id:
                return broker
        raise ConfigError(f"no broker {broker_id}: there are {', '.join(str(b.id) for b in self._brokers)}")

    def _rack(self, rack: str) -> list[Broker]:
        found = [broker for broker in self._brokers if broker.rack == rack]
        if not found:
            racks = sorted({broker.rack for broker in self._brokers if broker.rack is not None})
            raise ConfigError(f"no rack {rack!r}: there are {', '.join(map(repr, racks)) or 'none'}")
        return found

    def __enter__(self) -> Self:
        self.start_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
