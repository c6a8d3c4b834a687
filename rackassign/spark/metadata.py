"""What the driver asks the brokers: which partitions there are, where their replicas stand, and which offsets."""

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
"""In place of an offset: no record is as late."""

_Answer = TypeVar("_Answer")

_ANSWER_MS = 30_000
_FIRST_TRY_S = 3.0
_GRACE_S = 1.0
"""librdkafka itself sees to it that a request is given up."""

_SETTLED_S = 3.0
"""So long after a topic was made a broker may not have heard of it."""

_AGAIN_S = 0.2
_SELECTOR = "replica.selector.class"


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """Partitions, and where they are.

    Args:
        partitions: Each with its replicas.
        racks: The rack of each broker that has one, those among them that were seen before and are away.
    """

    partitions: Mapping[TopicPartition, Partition]
    racks: Mapping[int, str]

    def racks_of(self, place: TopicPartition) -> tuple[str, ...]:
        """Return the racks that hold a replica, sorted."""
        replicas = self.partitions[place].replicas
        return tuple(sorted({self.racks[replica] for replica in replicas if replica in self.racks}))


class KafkaMetadata:
    """The brokers, as one long-lived client of the driver sees them.

    Args:
        client: Properties for librdkafka.

    Raises:
        ConfigError: librdkafka refuses one of them.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before it is needed
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        self._bootstrap = client["bootstrap.servers"]
        self._answer_s = int(client.get("socket.timeout.ms", _ANSWER_MS)) / 1000
        self._committed = client.get("isolation.level") == "read_committed"
        self._memory = BrokerRackCache()
        # A consumer's properties would make it warn.
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
            ConfigError: A topic or partition that was named does not exist.
            NoAnswerError: Kafka is not there, or refuses.
        """
        names = topics.names or tuple(sorted({place.topic for place in topics.assigned})) or self._like(topics.pattern)
        partitions: dict[TopicPartition, Partition] = {}
        if names:
            # What like the pattern is missing was deleted since topics were listed.
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
        """Return the brokers there are now.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        described = self._asked(
            lambda admin, limit_s: admin.describe_cluster(request_timeout=limit_s).result(limit_s + _GRACE_S)
        )
        return [Broker(node.id, node.rack or None) for node in described.nodes]

    def follower_reads(self) -> bool | None:
        """Return whether all brokers send readers to followers near them; None if they do not tell."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before it is needed

        resource = _host().ConfigResource
        # One broker a request, says librdkafka.
        asked = [resource(resource.Type.BROKER, str(broker.id)) for broker in self.brokers()]
        try:
            futures = [self._admin.describe_configs([each], request_timeout=self._answer_s)[each] for each in asked]
            answers = [future.result(self._answer_s) for future in futures]
        except KafkaException:
            # Most often it takes a permission that readers need not have.
            return None
        return all((answer[_SELECTOR].value or "") for answer in answers if _SELECTOR in answer)

    def offsets(self, places: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        """Return the earliest or the latest offsets; latest is where a reader of the isolation level stops.

        Args:
            places: Of which partitions.
            logical: `LATEST` or `EARLIEST`.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        specs = _host().OffsetSpec
        spec = {LATEST: specs.latest, EARLIEST: specs.earliest}[logical]()
        return self._listed(dict.fromkeys(places, spec), committed=self._committed)

    def high_watermarks(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where logs end, open transactions included.

        Args:
            places: Of which partitions.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        return self._listed(dict.fromkeys(places, _host().OffsetSpec.latest()), committed=False)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset that is as late, for each partition; `NO_LATER` if none is.

        Args:
            timestamps: In milliseconds.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        specs = _host().OffsetSpec
        return self._listed(
            {place: specs.for_timestamp(timestamp) for place, timestamp in timestamps.items()},
            committed=self._committed,
        )

    def _listed(self, specs: Mapping[TopicPartition, Any], *, committed: bool) -> dict[TopicPartition, int]:
        from confluent_kafka import IsolationLevel  # noqa: PLC0415 - not before it is needed
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415

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
                # No error: librdkafka leaves the offset unset if a leader has not answered in time.
                raise LateError(f"the leaders of {named(silent)} do not answer")
            return found

        return self._asked(ask)

    def _like(self, pattern: str) -> tuple[str, ...]:
        known = self._asked(lambda admin, limit_s: admin.list_topics(timeout=limit_s).topics)
        # Anywhere in the name, as the JVM source does.
        finds = compiled(pattern).search
        return tuple(sorted(name for name in known if finds(name)))

    def _named(self, names: Iterable[str]) -> dict[TopicPartition, Partition]:
        """Return the partitions of topics that must be there; brokers may not all know a new one yet."""
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
        """Return the partitions of topics, and the topics that the broker that was asked does not know.

        Args:
            names: Of the topics.
            internal: Whether Kafka's own count; the JVM source reads them only where they are named.
        """
        from confluent_kafka import TopicCollection  # noqa: PLC0415 - not before it is needed

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
        """Return an answer, asking again with a new client while there is none.

        A client goes on to look for a controller or a leader where it was, for minutes after that broker has died.

        Args:
            ask: Asks a client, for so many seconds.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before it is needed
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - the same

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
    """Return what is said of a topic; None if there is none of that name."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - not before it is needed

    try:
        return answer.result(limit_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def _may_pass(error: Exception) -> bool:
    """Tell whether it is about brokers that are away, and not about what is asked."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - not before it is needed

    if not isinstance(error, KafkaException):
        return True
    code = error.args[0].code()
    return bool(error.args[0].retriable()) or code in {
        KafkaError._TIMED_OUT,  # noqa: SLF001 - its public name
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001 - the same
        KafkaError._TRANSPORT,  # noqa: SLF001 - the same
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the same
        KafkaError._WAIT_COORD,  # noqa: SLF001 - the same
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


def _host() -> Any:  # noqa: ANN401 - the client has no types for some of what is in it
    from confluent_kafka import admin  # noqa: PLC0415 - not before it is needed

    return admin


_OF_CONSUMERS = frozenset({"isolation.level", "group.id", "fetch.wait.max.ms", "fetch.min.bytes", "check.crcs"})
