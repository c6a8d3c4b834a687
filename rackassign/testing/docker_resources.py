"""What a cluster in containers has of a Docker engine: its image, containers and networks, and their removal.

Labels name the lock file that the owner holds while it runs. The kernel releases the lock however the process ends.
So the remains of a crash are identified with certainty, and resources of other live runs are never removed.

`python -m rackassign.testing.docker_resources` removes the remains.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackassign.errors import ClusterError, ConfigError, MissingExtraError
from rackassign.testing._broker_config import KAFKA_VERSION, check_config, default_properties
from rackassign.testing._cluster import Broker
from rackassign.testing._machine import reserve_ports
from rackassign.testing._processes import ClusterDirectory, create_cluster_directory
from rackassign.util.callbacks import Progress, ProgressCallback, ignore_progress
from rackassign.util.files import try_lock

if TYPE_CHECKING:
    from typing_extensions import Self


CLIENT_PORT = 9092
"""Port of the listener for clients inside the container."""

_INTERNAL_PORT = 19092
_CONTROLLER_PORT = 9093
_FURTHER_PORT = 9094
"""Port of the first additional listener; the others have the ports after it."""

_LIBRARIES = "/opt/kafka/libs"
"""Folder of jars in the image, as in that of Apache Kafka."""

_MAX_CONTROLLERS = 3
_LOGGERS = {
    "kafka": "WARN",
    "org.apache.kafka": "WARN",
    "kafka.server.KafkaRaftServer": "INFO",
    # Tests stop brokers intentionally, so warnings about offline brokers are noise.
    "org.apache.kafka.clients.NetworkClient": "ERROR",
    "kafka.server.ReplicaFetcherThread": "ERROR",
}
_JVM = {
    # By default both images take a gigabyte for each broker.
    "KAFKA_HEAP_OPTS": "-Xmx300m -Xms64m",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # Not the root logger's level: with it, the setup step of Kafka 4.3 drops its appender, and nothing is logged.
    "KAFKA_LOG4J_LOGGERS": ",".join(f"{name}={level}" for name, level in _LOGGERS.items()),
}
_NOT_PROPERTIES = frozenset(
    {
        *_JVM,
        "KAFKA_VERSION",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    }
)


def check_docker(racks: Sequence[str | None], config: Mapping[str, str | None]) -> None:
    if isinstance(racks, str) or not racks or any(rack == "" for rack in racks):
        raise ConfigError(f"racks: expected a name or None for each broker, got {racks!r}")
    check_config(config)
    if "inter.broker.listener.name" in config:
        raise ConfigError(
            "config: inter.broker.listener.name cannot be set: brokers use a separate listener between each other"
        )
    for name in config:
        if name != name.lower() or variable(name) in _NOT_PROPERTIES:
            raise ConfigError(f"config: {name!r} cannot be set by an environment variable of the image")


def alias(broker_id: int) -> str:
    return f"kafka-{broker_id}"


def variable(name: str) -> str:
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def environment(
    broker: Broker, brokers: int, cluster_id: str, config: Mapping[str, str | None], protocols: Mapping[str, str]
) -> dict[str, str]:
    chosen = {**default_properties(brokers), **config, **_identity(broker, brokers, protocols)}
    properties = {name: value for name, value in chosen.items() if value is not None}
    return {"CLUSTER_ID": cluster_id, **_JVM, **{variable(name): value for name, value in properties.items()}}


def published(broker: Broker) -> dict[int, int]:
    """Return the ports for clients inside a broker's container, each with its published port."""
    return {CLIENT_PORT: broker.port} | {_FURTHER_PORT + i: port for i, port in enumerate(broker.listeners.values())}


def _identity(broker: Broker, brokers: int, protocols: Mapping[str, str]) -> dict[str, str]:
    controllers = range(1, min(brokers, _MAX_CONTROLLERS) + 1)
    is_controller = broker.id in controllers
    clients = dict(zip(("EXTERNAL", *broker.listeners), published(broker).items(), strict=True))
    listeners = [*(f"{name}://:{port}" for name, (port, _) in clients.items()), f"INTERNAL://:{_INTERNAL_PORT}"]
    if is_controller:
        listeners.append(f"CONTROLLER://:{_CONTROLLER_PORT}")
    advertised = [f"{name}://{broker.host}:{port}" for name, (_, port) in clients.items()]
    known = dict.fromkeys(("EXTERNAL", "INTERNAL", "CONTROLLER"), "PLAINTEXT") | dict(protocols)
    identity = {
        "node.id": str(broker.id),
        "process.roles": "broker,controller" if is_controller else "broker",
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join([*advertised, f"INTERNAL://{alias(broker.id)}:{_INTERNAL_PORT}"]),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in known.items()),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{n}@{alias(n)}:{_CONTROLLER_PORT}" for n in controllers),
        # In the container's own layer: a volume would outlive the container, and memory would not survive a kill.
        "log.dirs": "/tmp/kafka-data",  # noqa: S108 - a path inside a container
    }
    return identity if broker.rack is None else {**identity, "broker.rack": broker.rack}


OFFICIAL_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
OWN_IMAGE = f"rackassign/kafka:{KAFKA_VERSION}"


def connect() -> Any:  # noqa: ANN401 - docker-py is untyped
    """Return a client of the Docker engine that testcontainers would use; the caller has to close it."""
    try:
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - only for this provider
    except ImportError as error:
        raise MissingExtraError("testcontainers", "docker") from error
    try:
        with engine_errors("no Docker engine responds"):
            # The constructor requests the version of the engine immediately.
            return DockerClient(version="auto").client
    except ClusterError as error:
        _drop_socket(error)
        raise


@contextmanager
def engine_errors(problem: str) -> Iterator[None]:
    """Convert exceptions of Docker's client into a ClusterError that starts with the problem."""
    from docker.errors import DockerException  # noqa: PLC0415 - only for this provider
    from requests import RequestException  # noqa: PLC0415 - only for this provider

    try:
        yield
    except (DockerException, RequestException) as error:
        raise ClusterError(f"{problem}: {' '.join(str(error).split())[:500]}") from error


def find_image(image: str | None = None, progress: ProgressCallback | None = None) -> str:
    """Return the image to run: the given one, else `KAFKA_IMAGE`, else apache/kafka, else the one of `docker/build.sh`.

    The image is on the engine afterwards; it is pulled if it was missing.

    Args:
        image: The image to use; None selects one.
        progress: Callback for progress reports of a pull.

    Raises:
        ClusterError: No engine responds, or there is no image and none can be pulled.
        MissingExtraError: testcontainers is not installed.
    """
    requested = image or os.environ.get("KAFKA_IMAGE") or None
    on_progress = progress or ignore_progress
    client = connect()
    try:
        name = requested or OFFICIAL_IMAGE
        problem = _pull_if_missing(client, name, on_progress)
        if not problem:
            return name
        if requested is None and _has_image(client, OWN_IMAGE):
            return OWN_IMAGE
    finally:
        client.close()
    raise ClusterError(
        f"no image of Kafka: {name} cannot be pulled ({problem})"
        + (f", and {OWN_IMAGE} is not built" if requested is None else "")
        + f"; docker/build.sh in a checkout of rackassign builds {OWN_IMAGE} without a registry"
    )


def _has_image(client: Any, image: str) -> bool:  # noqa: ANN401
    from docker.errors import ImageNotFound  # noqa: PLC0415 - only for this provider

    try:
        with engine_errors("the Docker engine does not respond"):
            client.images.get(image)
    except ClusterError as error:
        if isinstance(error.__cause__, ImageNotFound):
            return False
        raise
    return True


def _pull_if_missing(client: Any, image: str, on_progress: ProgressCallback) -> str:  # noqa: ANN401
    """Pull an image unless the engine has it; return the reason of a failure, or an empty string."""
    if _has_image(client, image):
        return ""
    on_progress(Progress(f"Pulling {image}"))
    try:
        with engine_errors("pull"):
            client.images.pull(image)
    except ClusterError as error:
        return str(error)
    return ""


def _drop_socket(error: BaseException) -> None:
    """Release the socket that docker-py leaves open when no engine responds."""
    # Otherwise its ResourceWarning appears at some later time. If warnings are errors, it then fails an unrelated test.
    cause: BaseException | None = error.__cause__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__cause__ or cause.__context__


_RUN = "rackassign.run"
_HOST = "rackassign.owner.host"
_LOCK = "rackassign.owner.lock"

_IN_USE = frozenset({403, 409})
"""Statuses with which an engine refuses to remove a network that has endpoints (403 of Docker 20.10), and a container
that is being removed (409)."""

_PATIENCE_S, _PAUSE_S = 60.0, 0.2


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    run: str
    # Machine of the owner's process; the state of other machines' processes is unknown here.
    host: str
    lock: str

    @classmethod
    def for_this_process(cls, lock: Path) -> Self:
        """Return this process as the owner of a cluster with the name of the lock file it holds."""
        return cls(lock.stem, platform.node(), str(lock))

    @classmethod
    def from_labels(cls, labels: Mapping[str, str] | None) -> Self | None:
        """Return the owner that labels name; None if rackassign did not create the resource."""
        own = labels or {}
        if not {_RUN, _HOST, _LOCK} <= set(own):
            return None
        return cls(own[_RUN], own[_HOST], own[_LOCK])

    @property
    def labels(self) -> dict[str, str]:
        return {_RUN: self.run, _HOST: self.host, _LOCK: self.lock}

    def is_gone(self) -> bool:
        """Return whether the owner's process is known to have ended."""
        if self.host != platform.node():
            return False
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            # Removed by the owner when it finished, or by a cleanup of lock files after it ended.
            return True
        except PermissionError:
            # The lock file belongs to another user.
            return False
        try:
            return try_lock(descriptor)
        finally:
            os.close(descriptor)


def sweep() -> int:
    """Remove all containers and networks of clusters whose process has ended; return their number."""
    client = connect()
    try:
        return remove(client, ResourceOwner.is_gone)
    finally:
        client.close()


def remove(
    client: Any,  # noqa: ANN401 - docker-py is untyped
    should_remove: Callable[[ResourceOwner], bool],
    patience_s: float = _PATIENCE_S,
) -> int:
    """Remove containers with their volumes, then networks, of owners that `should_remove` selects; return how many."""
    # Two processes may clean up at the same time, and what a killed process had requested may still be going on. The
    # engine then refuses to remove a container that is being removed, and a network to which a container is connected.
    removed: set[str] = set()
    until = time.monotonic() + patience_s
    with engine_errors("containers and networks cannot be removed"):
        while (refusal := _remove_all(client, should_remove, removed)) is not None:
            if time.monotonic() >= until:
                raise refusal
            time.sleep(_PAUSE_S)
    return len(removed)


def _remove_all(client: Any, should_remove: Callable[[ResourceOwner], bool], removed: set[str]) -> Exception | None:  # noqa: ANN401 - as above
    """Remove what there is, and add its IDs to `removed`; return why something has to wait, None if nothing has to."""
    from docker.errors import APIError, NotFound  # noqa: PLC0415 - only for this provider

    refusal: Exception | None = None

    def attempt(found: Any, **options: bool) -> None:  # noqa: ANN401 - as above
        nonlocal refusal
        try:
            found.remove(**options)
        except NotFound:
            # Another process has removed it.
            pass
        except APIError as error:
            if error.status_code not in _IN_USE:
                raise
            refusal = error
            return
        removed.add(found.id)

    for container in client.containers.list(all=True, filters={"label": _RUN}, ignore_removed=True):
        owner = ResourceOwner.from_labels(container.labels)
        if owner and should_remove(owner):
            attempt(container, force=True, v=True)
    for network in client.networks.list(filters={"label": _RUN}):
        owner = ResourceOwner.from_labels(network.attrs.get("Labels"))
        if owner and should_remove(owner):
            attempt(network)
    return refusal


class DockerResources:
    """A lock that marks the cluster as running, its ports, its network, and its containers."""

    def __init__(self, image: str, ports: int) -> None:
        self._image = image
        with ExitStack() as undo:
            cluster_dir = create_cluster_directory()
            undo.callback(_remove_directory, cluster_dir)
            self.directory = cluster_dir.directory
            reserved = reserve_ports(ports)
            undo.callback(reserved.close)
            self.ports = reserved.numbers
            self._client = connect()
            undo.callback(self._client.close)
            self._owner = ResourceOwner.for_this_process(cluster_dir.lock)
            undo.callback(self._remove_all)
            self._network = self._new_network()
            self._undo = undo.pop_all()

    def run(self, broker: Broker, environment: Mapping[str, str], plugins: Iterable[Path] = ()) -> Any:  # noqa: ANN401
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only for this provider

        container = (
            DockerContainer(self._image)
            .with_envs(**environment)
            # The other brokers address it by this name only, wherever the containers are started.
            .with_kwargs(labels=self._owner.labels, hostname=alias(broker.id))
            .with_network(self._network)
            .with_network_aliases(alias(broker.id))
        )
        for jar in plugins:
            # The class path has all that is there; a jar of this name in the image gives way.
            container.with_volume_mapping(str(jar), f"{_LIBRARIES}/{jar.name}", "ro")
        # with_bind_ports cannot restrict a port to one interface.
        for inside, outside in published(broker).items():
            container.ports[f"{inside}/tcp"] = (broker.host, outside)  # type: ignore[assignment]
        try:
            with _without_reaper():
                container.start()
            return self._client.containers.get(container.get_wrapped_container().id)
        finally:
            container.get_docker_client().client.close()

    def disconnect(self, container: Any) -> None:  # noqa: ANN401
        self._client.networks.get(self._network.id).disconnect(container, force=True)

    def reconnect(self, container: Any, broker: Broker) -> None:  # noqa: ANN401
        self._client.networks.get(self._network.id).connect(container, aliases=[alias(broker.id)])

    def close(self) -> None:
        """Remove the containers and the network, then release the ports and the lock."""
        self._undo.close()

    def _new_network(self) -> Any:  # noqa: ANN401
        from testcontainers.core.network import Network  # noqa: PLC0415 - only for this provider

        network = Network(docker_network_kw={"labels": self._owner.labels})
        try:
            with engine_errors("no network can be created"), _without_reaper():
                return network.create()
        finally:
            # Only its name is needed from here on, and the class has no method to close its client.
            network._docker.client.close()  # noqa: SLF001

    def _remove_all(self) -> None:
        remove(self._client, lambda owner: owner.run == self._owner.run)


@contextmanager
def _without_reaper() -> Iterator[None]:
    """Prevent testcontainers from starting its reaper, which needs one more image and duplicates `sweep()`."""
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - only for this provider

    # This applies only while rackassign starts something, so the user's other containers keep their reaper.
    before = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = before


def _remove_directory(cluster_dir: ClusterDirectory) -> None:
    shutil.rmtree(cluster_dir.directory)
    cluster_dir.lock.unlink(missing_ok=True)
    os.close(cluster_dir.descriptor)


if __name__ == "__main__":
    print(f"Removed {sweep()} containers and networks of runs that have ended")  # noqa: T201 - a command prints
