"""Files and command lines of local brokers, configured for low memory, fast start and fast failure detection.

Brokers can have the versions of Kafka whose jars are recorded in `kafka_jars/`.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackassign.errors import ConfigError

KAFKA_VERSION = "4.4.0"
"""Version of brokers unless another one is asked for."""

VERSIONS = ("3.5.2", "3.7.2", "3.9.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.0", "4.3.1", "4.4.0")
"""All recorded versions, the oldest first; the last one of each minor version is its last patch release."""


def resolve_version(version: str | None) -> str:
    """Return the full version of a version: "3.9" is its last patch release, and None the default.

    Raises:
        ConfigError: There is no such version, and the message names those that exist; or it is no string. The number
            4.10 would be 4.1.
    """
    if version is None:
        return KAFKA_VERSION
    if not isinstance(version, str):
        raise ConfigError(f'kafka_version: expected a string, such as "3.9", got {version!r}')
    matching = [known for known in VERSIONS if version in {known, known.rpartition(".")[0]}]
    if not matching:
        names = ", ".join(VERSIONS)
        raise ConfigError(f'kafka_version: expected one of {names}, or a prefix such as "3.9", got {version!r}')
    return matching[-1]


def sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def broker_versions(versions: str | Sequence[str] | None, brokers: int) -> tuple[str, ...]:
    """Return the full version of each broker, from one version for all or from a list with one for each."""
    if versions is None or isinstance(versions, str) or not isinstance(versions, Sequence):
        return (resolve_version(versions),) * brokers
    if len(versions) != brokers:
        raise ConfigError(f"kafka_version: expected a version or a list of {brokers}, one a broker, got {versions!r}")
    return tuple(resolve_version(version) for version in versions)


HOST = "127.0.0.1"
_OLD_CHECKPOINT = "bootstrap.checkpoint"
_CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
_CHECKPOINT_IN_LOG = (4, 4)
"""First version of Kafka with the features of a new cluster in the metadata log. It still reads the older file."""

_MAX_CONTROLLERS = 3
_LOG4J_2 = (4, 0)
"""First version of Kafka that logs with log4j 2."""

_RESERVED = frozenset(
    {
        "advertised.listeners",
        "broker.rack",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = out
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
# That others are down is what the tests are about.
logger.network.name = org.apache.kafka.clients.NetworkClient
logger.network.level = ERROR
logger.fetcher.name = kafka.server.ReplicaFetcherThread
logger.fetcher.level = ERROR
# Why groups rebalance.
logger.groups.name = org.apache.kafka.coordinator.group.GroupMetadataManager
logger.groups.level = INFO
"""
_LOGGING_1 = """\
log4j.rootLogger = WARN, out
log4j.appender.out = org.apache.log4j.ConsoleAppender
log4j.appender.out.layout = org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern = [%d] %p %m (%c)%n
log4j.logger.kafka.server.KafkaRaftServer = INFO
log4j.logger.org.apache.kafka.clients.NetworkClient = ERROR
log4j.logger.kafka.server.ReplicaFetcherThread = ERROR
log4j.logger.kafka.coordinator.group.GroupCoordinator = INFO
"""
"""The same for the log4j 1 of Kafka 3."""


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    id: int
    rack: str | None
    port: int
    # None for a broker that is no controller.
    controller_port: int | None
    listeners: Mapping[str, int]
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def data(self) -> Path:
        """Log directory of the broker (`log.dirs`), which contains the data."""
        return self.directory / "data"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"


def ports_needed(brokers: int, listeners: int = 0) -> int:
    """Return the number of ports of a cluster with the given number of additional listeners on each broker."""
    return brokers * (1 + listeners) + min(brokers, _MAX_CONTROLLERS)


def plan_brokers(
    racks: Sequence[str | None], ports: Sequence[int], directory: Path, listeners: Sequence[str] = ()
) -> tuple[BrokerSpec, ...]:
    """Return the ports and the directory of every broker; the first three brokers are controllers as well."""
    brokers = len(racks)
    clients, further, controllers = (
        ports[:brokers],
        ports[brokers : brokers * (1 + len(listeners))],
        ports[brokers * (1 + len(listeners)) :],
    )
    return tuple(
        BrokerSpec(
            id=position + 1,
            rack=rack,
            port=clients[position],
            controller_port=controllers[position] if position < len(controllers) else None,
            listeners={name: further[i * brokers + position] for i, name in enumerate(listeners)},
            directory=directory / f"broker-{position + 1}",
        )
        for position, rack in enumerate(racks)
    )


def check_config(config: Mapping[str, str | None]) -> None:
    """Validate that properties are not among those that the cluster itself has to set."""
    # Callers need not check types.
    unchecked: object = config
    if not isinstance(unchecked, Mapping) or not all(isinstance(name, str) for name in unchecked):
        raise ConfigError(f"config: expected properties by name, got {unchecked!r}")
    reserved = sorted(_RESERVED & set(config))
    if reserved:
        raise ConfigError(f"config: {', '.join(reserved)} cannot be set: the cluster sets it for each broker")
    for name, value in config.items():
        parsed: object = value
        if parsed is not None and not isinstance(parsed, str):
            raise ConfigError(f"config: {name!r}: expected a string, or None to leave it out, got {parsed!r}")
    broken = [name for name, value in config.items() if set("\r\n") & set(name + (value or ""))]
    if broken:
        raise ConfigError(f"config: {broken[0]!r} contains a line break")


def checkpoint_file(version: str) -> str:
    """Return the file below a log directory with the features of a new cluster, as a version of Kafka writes it."""
    return _OLD_CHECKPOINT if sort_key(version) < _CHECKPOINT_IN_LOG else _CHECKPOINT


def write_files(
    specs: Sequence[BrokerSpec],
    config: Mapping[str, str | None],
    checkpoint: tuple[str, Path],
    protocols: Mapping[str, str],
) -> None:
    """Write the files that brokers need before their first start: properties, logging, formatted storage."""
    # The storage is formatted here, as Kafka's tool needs a JVM for each broker. Only `meta.properties` differs.
    # `checkpoint`: the name of the `checkpoint_file` below a log directory, and where Kafka's tool has written one.
    cluster_id = new_uuid()
    for spec in specs:
        spec.data.mkdir(parents=True)
        (spec.directory / "tmp").mkdir()
        _write_logging(spec.directory)
        chosen = {**default_properties(len(specs)), **config, **_identity(spec, specs, protocols)}
        properties = {name: value for name, value in chosen.items() if value is not None}
        spec.properties.write_text(_render(properties), "ascii")
        meta = f"version=1\ncluster.id={cluster_id}\nnode.id={spec.id}\ndirectory.id={new_uuid()}\n"
        (spec.data / "meta.properties").write_text(meta, "ascii")
        if spec.controller_port:
            name, written = checkpoint
            (spec.data / name).parent.mkdir(exist_ok=True)
            (spec.data / name).write_bytes(written.read_bytes())


def _write_logging(directory: Path) -> None:
    # Both: a broker can be started again with another version.
    (directory / "log4j.properties").write_text(_LOGGING_1, "ascii")
    (directory / "log4j2.properties").write_text(_LOGGING, "ascii")


def _java_command(
    java: Path, version: str, jars: Sequence[Path], directory: Path, main: str, *arguments: str
) -> list[str]:
    """Return the command line of one of Kafka's main classes, which writes all of its files below `directory`."""
    logging = (
        f"-Dlog4j.configuration=file:{directory / 'log4j.properties'}"
        if sort_key(version) < _LOG4J_2
        else f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    )
    return [
        str(java),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        # A killed JVM would leave these files in another directory.
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={directory / 'tmp'}",
        "-Djava.awt.headless=true",
        logging,
        "-cp",
        ":".join(map(str, jars)),
        main,
        *arguments,
    ]


def broker_command(java: Path, version: str, jars: Sequence[Path], spec: BrokerSpec, *options: str) -> list[str]:
    """Return the command line of a broker of a version, with additional options of the JVM."""
    command = _java_command(java, version, jars, spec.directory, "kafka.Kafka", str(spec.properties))
    return [command[0], *options, *command[1:]]


def format_command(java: Path, version: str, jars: Sequence[Path], scratch: Path) -> list[str]:
    """Return the command line with which Kafka's storage tool formats `data` below a scratch directory."""
    spec = BrokerSpec(1, None, 1, 2, {}, scratch)
    (scratch / "tmp").mkdir()
    _write_logging(scratch)
    spec.properties.write_text(_render(_identity(spec, [spec], {})), "ascii")
    options = ("format", "--cluster-id", new_uuid(), "--config", str(spec.properties))
    return _java_command(java, version, jars, scratch, "kafka.tools.StorageTool", *options)


def default_properties(brokers: int) -> dict[str, str]:
    """Return the default properties of all brokers of a cluster of the given size, for every provider."""
    replicas = str(min(3, brokers))
    return {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "auto.create.topics.enable": "false",
        # Minutes after a broker is back, it would move coordinators in the middle of another test.
        "auto.leader.rebalance.enable": "false",
        # With the default of 0.5 s, records without content cost a third of what an idle cluster uses of a processor.
        "metadata.max.idle.interval.ms": "10000",
        "default.replication.factor": replicas,
        # Short enough for tests; with 3 s, brokers are briefly fenced on a busy machine.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
        # With the default of 60 s a broker that restarted on a machine with a load of 30 gave up.
        "initial.broker.registration.timeout.ms": "300000",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "5",
        # For small data directories and low memory.
        "log.segment.bytes": str(16 << 20),
        "log.index.size.max.bytes": str(64 << 10),
        "log.segment.delete.delay.ms": "1000",
        "metadata.log.segment.bytes": str(8 << 20),
        # Fetches that have ended stay in memory until so many have, with all their partitions: with 2,000 replicated
        # partitions the default of 1,000 needs more than the whole heap.
        "fetch.purgatory.purge.interval.requests": "50",
        "log.cleaner.threads": "1",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.replica.fetchers": "1",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
    }


def _identity(spec: BrokerSpec, specs: Sequence[BrokerSpec], protocols: Mapping[str, str]) -> dict[str, str]:
    voters = [f"{n.id}@{HOST}:{n.controller_port}" for n in specs if n.controller_port]
    clients = [f"{name}://{HOST}:{port}" for name, port in {"PLAINTEXT": spec.port, **spec.listeners}.items()]
    control = [f"CONTROLLER://{HOST}:{spec.controller_port}"] if spec.controller_port else []
    known = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **protocols}
    identity = {
        "node.id": str(spec.id),
        "process.roles": "broker,controller" if spec.controller_port else "broker",
        "listeners": ",".join(clients + control),
        "advertised.listeners": ",".join(clients),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in known.items()),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": str(spec.data),
    }
    return identity if spec.rack is None else {**identity, "broker.rack": spec.rack}


def _render(properties: Mapping[str, str]) -> str:
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in properties.items())


def _escape(text: str) -> str:
    """Escape a name or a value for a Java properties file."""
    escaped = "".join(f"\\{char}" if char in "\\=:#! " else char for char in text)
    # Java's escapes are UTF-16 code units.
    return "".join(char if char.isascii() else _utf16(char) for char in escaped)


def _utf16(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def new_uuid() -> str:
    """Return a random UUID in Kafka's format; like Kafka's, it never starts with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text
