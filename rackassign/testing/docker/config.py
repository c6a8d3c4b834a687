"""Configuration of brokers in containers, as the environment variables of the image apache/kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackassign.errors import ConfigError
from rackassign.testing.cluster import Broker
from rackassign.testing.local.broker_config import check_config, default_properties

CLIENT_PORT = 9092
"""Port of the listener for clients inside the container."""

_INTERNAL_PORT = 19092
_CONTROLLER_PORT = 9093
_FURTHER_PORT = 9094
"""Port of the first additional listener; the others have the ports after it."""

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
    """Validate racks and properties.

    Raises:
        ConfigError: There are no racks, a rack is empty, the cluster itself sets one of the properties, or the name of
            a property cannot be written as an environment variable of the image.
    """
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
    """Return the host name of a broker on the network of the cluster."""
    return f"kafka-{broker_id}"


def variable(name: str) -> str:
    """Return the environment variable that sets a broker property."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def environment(
    broker: Broker, brokers: int, cluster_id: str, config: Mapping[str, str | None], protocols: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of one broker's container.

    Args:
        broker: The broker with its published ports.
        brokers: Number of all brokers; IDs start at 1, and the first three are controllers as well.
        cluster_id: ID of the cluster, equal for all brokers.
        config: Properties for all brokers, which override the defaults; None removes a default.
        protocols: Protocols of the additional listeners by name.
    """
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
