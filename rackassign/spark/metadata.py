"""The requests of the driver to the brokers: partitions, the racks of their replicas, and offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.spark.java_regex import compiled
from rackassign.spark.offsets import EARLIEST, LATEST
from rackassign.spark.offsets import places as named
from rackassign.spark.options import Topics
from rackassign.util.redaction import without_secrets
from rackassign.util.text import strip_control_chars, truncate

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

NO_LATER = -1
"""Returned in place of an offset if no record has the timestamp or a later one."""

_Answer = TypeVar("_Answer")

_ANSWER_MS = 30_000
_FIRST_TRY_S = 3.0
_GRACE_S = 1.0
"""Seconds to wait beyond the timeout of a request, because librdkafka itself ends it at the timeout."""

_SETTLED_S = 3.0
"""Seconds after the creation of a topic during which a broker's metadata may lack it."""

_AGAIN_S = 0.2
_SELECTOR = "replica.selector.class"


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Partitions with their replicas, and the racks of brokers.

    Args:
        partitions: The partitions with their replicas.
        racks: The rack of each broker that has one, including offline brokers that were seen before.
    """

    partitions: Mapping[TopicPartition, Partition]
    racks: Mapping[int, str]

    def racks_of(self, place: TopicPartition) -> tuple[str, ...]:
        """Return the racks with a replica of a partition, sorted."""
        replicas = self.partitions[place].replicas
        return tuple(sorted({self.racks[replica] for replica in replicas if replica in self.racks}))


class KafkaMetadata:
    """Requests metadata and offsets with one long-lived client of the driver.

    Args:
        client: Properties for librdkafka.

    Raises:
        ConfigError: librdkafka rejects a property.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - loaded on first use

        self._bootstrap = client["bootstrap.servers"]
        self._answer_s = int(client.get("socket.timeout.ms", _ANSWER_MS)) / 1000
        self._committed = client.get("isolation.level") == "read_committed"
        self._memory = BrokerRackCache()
        # An admin client logs a warning for properties of consumers.
        self._client: dict[str, str | int | float | bool] = {
            name: value for name, value in client.items() if name not in _OF_CONSUMERS
        }
        try:
            self._admin: AdminClient = AdminClient(self._client)
        except KafkaException as error:
            said = without_secrets(error.args[0].str().strip(), self._client)
            raise ConfigError(f"kafka.*: librdkafka refuses it: {strip_control_chars(said)}") from None

    def describe_topics(self, topics: Topics) -> TopicLayout:
        """Return the partitions of topics.

        Raises:
            ConfigError: A named topic or partition does not exist.
            KafkaUnavailableError: Kafka does not respond, or refuses the request.
        """
        names = topics.names or tuple(sorted({place.topic for place in topics.assigned})) or self._like(topics.pattern)
        partitions: dict[TopicPartition, Partition] = {}
        if names:
            # A missing topic that matches the pattern was deleted after the topics were listed.
            partitions = self._described(names, internal=False)[0] if topics.pattern else self._named(names)
        if topics.assigned:
            absent = sorted(set(topics.assigned) - set(partitions))
            if absent:
                raise ConfigError(f"assign: there is no partition {absent[0].topic}-{absent[0].partition}")
            partitions = {place: partitions[place] for place in topics.assigned}
        self._memory.update(self.brokers())
        known = {broker: rack for broker, rack in self._memory.racks().items() if rack is not None}
        return TopicLayout(partitions, known)

    def brokers(self) -> list[Broker]:
        """Return the brokers that are online.

        Raises:
            KafkaUnavailableError: Kafka does not respond, or refuses the request.
        """
        described = self._asked(
            lambda admin, limit_s: admin.describe_cluster(request_timeout=limit_s).result(limit_s + _GRACE_S)
        )
        return [Broker(node.id, node.rack or None) for node in described.nodes]

    def follower_reads(self) -> bool | None:
        """Return whether all brokers have a replica selector for follower fetching; None if they do not report it."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

        resource = _host().ConfigResource
        # librdkafka allows one broker per request.
        asked = [resource(resource.Type.BROKER, str(broker.id)) for broker in self.brokers()]
        try:
            futures = [self._admin.describe_configs([each], request_timeout=self._answer_s)[each] for each in asked]
            answers = [future.result(self._answer_s) for future in futures]
        except KafkaException:
            # Usually the permission is missing, which readers do not need.
            return None
        return all((answer[_SELECTOR].value or "") for answer in answers if _SELECTOR in answer)

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        """Return the earliest or the latest offsets; the latest depend on the isolation level.

        Args:
            places: The partitions.
            logical: `LATEST` or `EARLIEST`.

        Raises:
            KafkaUnavailableError: Kafka does not respond, or refuses the request.
        """
        specs = _host().OffsetSpec
        spec = {LATEST: specs.latest, EARLIEST: specs.earliest}[logical]()
        return self._listed(dict.fromkeys(places, spec), committed=self._committed)

    def high_watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, which include open transactions.

        Args:
            places: The partitions.

        Raises:
            KafkaUnavailableError: Kafka does not respond, or refuses the request.
        """
        return self._listed(dict.fromkeys(places, _host().OffsetSpec.latest()), committed=False)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset of the first record with the timestamp or a later one, `NO_LATER` if there is none.

        Args:
            timestamps: A timestamp in milliseconds for each partition.

        Raises:
            KafkaUnavailableError: Kafka does not respond, or refuses the request.
        """
        specs = _host().OffsetSpec
        return self._listed(
            {place: specs.for_timestamp(timestamp) for place, timestamp in timestamps.items()},
            committed=self._committed,
        )

    def _listed(self, specs: Mapping[TopicPartition, Any], *, committed: bool) -> dict[TopicPartition, int]:
        from confluent_kafka import IsolationLevel  # noqa: PLC0415 - loaded on first use
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415 - loaded on first use

        if not specs:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {HostPartition(*place): spec for place, spec in specs.items()}

        def ask(admin: AdminClient, limit_s: float) -> dict[TopicPartition, int]:
            answers = admin.list_offsets(asked, isolation_level=level, request_timeout=limit_s)
            found = {
                TopicPartition(at.topic, at.partition): answer.result(limit_s + _GRACE_S).offset
                for at, answer in answers.items()
            }
            silent = [place for place, offset in found.items() if offset < NO_LATER]
            if silent:
                # librdkafka reports no error, but leaves the offset unset if a leader has not responded in time.
                raise LateError(f"the leaders of {named(silent)} do not answer")
            return found

        return self._asked(ask)

    def _like(self, pattern: str) -> tuple[str, ...]:
        known = self._asked(lambda admin, limit_s: admin.list_topics(timeout=limit_s).topics)
        # The pattern may match anywhere in the name, as with the JVM source.
        finds = compiled(pattern).search
        return tuple(sorted(name for name in known if finds(name)))

    def _named(self, names: Iterable[str]) -> dict[TopicPartition, Partition]:
        """Return the partitions of topics that must exist, waiting until the metadata contains new ones."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            found, missing = self._described(names)
            if not missing:
                return found
            if time.monotonic() >= deadline:
                raise ConfigError(f"subscribe: there is no topic {truncate(missing[0])}")
            time.sleep(_AGAIN_S)

    def _described(
        self, names: Iterable[str], *, internal: bool = True
    ) -> tuple[dict[TopicPartition, Partition], list[str]]:
        """Return the partitions of topics, and the topics that the metadata of the broker lacks.

        Args:
            names: The names of the topics.
            internal: Whether to include internal topics, which the JVM source reads only if they are named.
        """
        from confluent_kafka import TopicCollection  # noqa: PLC0415 - loaded on first use

        def ask(admin: AdminClient, limit_s: float) -> dict[str, Any]:
            answers = admin.describe_topics(TopicCollection(list(names)), request_timeout=limit_s)
            return {name: _if_known(answer, limit_s + _GRACE_S) for name, answer in answers.items()}

        described = self._asked(ask)
        found: dict[TopicPartition, Partition] = {}
        for name, topic in described.items():
            if topic is None or (topic.is_internal and not internal):
                continue
            for each in topic.partitions:
                leader = None if each.leader is None or each.leader.id < 0 else each.leader.id
                replicas = tuple(node.id for node in each.replicas)
                found[TopicPartition(name, each.id)] = Partition(replicas, leader)
        return found, [name for name, topic in described.items() if topic is None]

    def _asked(self, ask: Callable[[AdminClient, float], _Answer]) -> _Answer:
        """Return the response to a request, retrying with a new client until there is one.

        A client continues to use the broker that was the controller or leader for minutes after that broker has failed.

        Args:
            ask: Sends the request with a client and a timeout in seconds.

        Raises:
            KafkaUnavailableError: Kafka does not respond, or refuses the request.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - loaded on first use

        deadline = time.monotonic() + self._answer_s
        limit_s = min(_FIRST_TRY_S, self._answer_s)
        while True:
            try:
                return ask(self._admin, limit_s)
            except (KafkaException, LateError) as error:
                if not _may_pass(error) or time.monotonic() >= deadline:
                    raise self._no_answer(error) from None
            self._admin = AdminClient(self._client)
            limit_s = max(_GRACE_S, min(2 * limit_s, deadline - time.monotonic()))
            time.sleep(_AGAIN_S)

    def _no_answer(self, error: Exception) -> KafkaUnavailableError:
        said = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
        return KafkaUnavailableError(
            f"Kafka at {truncate(self._bootstrap)} does not answer: {said or 'nothing came in time'}"
        )


def _if_known(answer: Any, limit_s: float) -> Any:  # noqa: ANN401 - futures of an untyped client
    """Return the description of a topic; None if no topic has that name."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loaded on first use

    try:
        return answer.result(limit_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def _may_pass(error: Exception) -> bool:
    """Return whether an error is caused by unavailable brokers and not by the request."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loaded on first use

    if not isinstance(error, KafkaException):
        return True
    code = error.args[0].code()
    return bool(error.args[0].retriable()) or code in {
        KafkaError._TIMED_OUT,  # noqa: SLF001 - its public name
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001 - its public name
        KafkaError._TRANSPORT,  # noqa: SLF001 - its public name
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - its public name
        KafkaError._WAIT_COORD,  # noqa: SLF001 - its public name
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }


def _host() -> Any:  # noqa: ANN401 - the client lacks type annotations for some of its names
    from confluent_kafka import admin  # noqa: PLC0415 - loaded on first use

    return admin


_OF_CONSUMERS = frozenset({"isolation.level", "group.id", "fetch.wait.max.ms", "fetch.min.bytes", "check.crcs"})
