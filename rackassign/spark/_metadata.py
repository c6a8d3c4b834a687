"""The requests of the driver to the brokers: partitions, the racks of their replicas, and offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.spark._java_regex import compile_java_regex
from rackassign.spark._kafka_clients import new_admin_client, try_token_provider
from rackassign.spark._offsets import EARLIEST, LATEST, format_partitions
from rackassign.spark._options import Topics
from rackassign.text import strip_control_chars, truncate, without_secrets

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


NO_LATER = -1
"""Returned in place of an offset if no record has the timestamp or a later one."""

_Response = TypeVar("_Response")

_DEFAULT_TIMEOUT_MS = 30_000
_FIRST_TIMEOUT_S = 3.0
_GRACE_S = 1.0
"""Seconds to wait beyond the timeout of a request, because librdkafka itself ends it at the timeout."""

_PROPAGATION_S = 3.0
"""Seconds after the creation of a topic during which a broker's metadata may lack it."""

_RETRY_S = 0.2
_SELECTOR = "replica.selector.class"
_CONSUMER_PROPERTIES = frozenset({"isolation.level", "group.id", "fetch.wait.max.ms", "check.crcs"})


@dataclass(frozen=True, slots=True)
class TopicLayout:
    partitions: Mapping[TopicPartition, Partition]
    # The rack of each broker that has one, including offline brokers that were seen before.
    racks: Mapping[int, str]

    def racks_of(self, tp: TopicPartition) -> tuple[str, ...]:
        """Return the racks with a replica of a partition, sorted."""
        replicas = self.partitions[tp].replicas
        return tuple(sorted({self.racks[replica] for replica in replicas if replica in self.racks}))


class UnknownPartitionError(KafkaUnavailableError):
    """A broker does not know a partition: it was deleted since it was described, or is too new."""


class KafkaMetadata:
    """Requests metadata and offsets with one long-lived client of the driver."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._bootstrap = client["bootstrap.servers"]
        self._timeout_s = int(client.get("socket.timeout.ms", _DEFAULT_TIMEOUT_MS)) / 1000
        self._read_committed = client.get("isolation.level") == "read_committed"
        self._broker_racks = BrokerRackCache()
        # An admin client logs a warning for properties of consumers.
        self._client: dict[str, str | int | float | bool] = {
            name: value for name, value in client.items() if name not in _CONSUMER_PROPERTIES
        }
        self._login_error = _LoginError(client)
        try_token_provider(self._client)
        self._admin = self._new_client()

    def describe_topics(self, topics: Topics) -> TopicLayout:
        names = topics.names or tuple(sorted({tp.topic for tp in topics.assigned})) or self._matching(topics.pattern)
        partitions: dict[TopicPartition, Partition] = {}
        if names:
            # A missing topic that matches the pattern was deleted after the topics were listed.
            option = "assign" if topics.assigned else "subscribe"
            partitions = self._describe(names, internal=False)[0] if topics.pattern else self._existing(names, option)
        if topics.assigned:
            absent = sorted(set(topics.assigned) - set(partitions))
            if absent:
                raise ConfigError(f"assign: partition {absent[0].topic}-{absent[0].partition} does not exist")
            partitions = {tp: partitions[tp] for tp in topics.assigned}
        self._broker_racks.update(self.brokers())
        known = {broker: rack for broker, rack in self._broker_racks.racks().items() if rack is not None}
        return TopicLayout(partitions, known)

    def brokers(self) -> list[Broker]:
        """Return the brokers that are online."""
        described = self._request(
            lambda admin, limit_s: admin.describe_cluster(request_timeout=limit_s).result(limit_s + _GRACE_S)
        )
        return [Broker(node.id, node.rack or None) for node in described.nodes]

    def follower_reads(self) -> bool | None:
        """Return whether all brokers have a replica selector for follower fetching; None if they do not report it."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

        resource = _admin_module().ConfigResource
        # librdkafka allows one broker per request.
        requested = [resource(resource.Type.BROKER, str(broker.id)) for broker in self.brokers()]
        try:
            futures = [
                self._admin.describe_configs([each], request_timeout=self._timeout_s)[each] for each in requested
            ]
            answers = [future.result(self._timeout_s + _GRACE_S) for future in futures]
        except (KafkaException, FutureTimeoutError):
            # Usually the permission is missing, which readers do not need, or a broker does not respond.
            return None
        if not all(_SELECTOR in answer for answer in answers):
            return None
        return all(answer[_SELECTOR].value or "" for answer in answers)

    def offsets(self, tps: Iterable[TopicPartition], logical: int) -> dict[TopicPartition, int]:
        """Return the earliest or the latest offsets; the latest depend on the isolation level."""
        specs = _admin_module().OffsetSpec
        spec = {LATEST: specs.latest, EARLIEST: specs.earliest}[logical]()
        return self._list_offsets(dict.fromkeys(tps, spec), committed=self._read_committed)

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(tps, _admin_module().OffsetSpec.latest()), committed=False)

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset with the timestamp in milliseconds or a later one; `NO_LATER` if there is none."""
        specs = _admin_module().OffsetSpec
        return self._list_offsets(
            {tp: specs.for_timestamp(timestamp) for tp, timestamp in timestamps.items()},
            committed=self._read_committed,
        )

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets to a consumer group without joining it, which Kafka refuses if the group has members."""
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException  # noqa: PLC0415 - loaded on first use
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        request = ConsumerGroupTopicPartitions(group, [KafkaPartition(*tp, offset) for tp, offset in offsets.items()])

        def ask(admin: AdminClient, limit_s: float) -> list[Any]:
            answers = admin.alter_consumer_group_offsets([request], request_timeout=limit_s)
            found = list(answers[group].result(limit_s + _GRACE_S).topic_partitions)
            for answer in found:
                if answer.error is not None and _is_transient(KafkaException(answer.error)):
                    raise KafkaException(answer.error)
            return found

        for answer in self._request(ask) if offsets else ():
            if answer.error is not None:
                raise KafkaUnavailableError(f"{answer.topic}-{answer.partition}: {answer.error.str()}")

    def _list_offsets(self, specs: Mapping[TopicPartition, Any], *, committed: bool) -> dict[TopicPartition, int]:
        from confluent_kafka import IsolationLevel  # noqa: PLC0415 - loaded on first use
        from confluent_kafka import TopicPartition as KafkaPartition  # noqa: PLC0415 - loaded on first use

        if not specs:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        requested = {KafkaPartition(*tp): spec for tp, spec in specs.items()}

        def ask(admin: AdminClient, limit_s: float) -> dict[TopicPartition, int]:
            answers = admin.list_offsets(requested, isolation_level=level, request_timeout=limit_s)
            futures = {
                TopicPartition(at.topic, at.partition): answer.result(limit_s + _GRACE_S).offset
                for at, answer in answers.items()
            }
            without_response = [tp for tp, offset in futures.items() if offset < NO_LATER]
            if without_response:
                # librdkafka reports no error, but leaves the offset unset if a leader has not responded in time.
                raise FutureTimeoutError(f"no response from the leaders of {format_partitions(without_response)}")
            return futures

        return self._request(ask)

    def _matching(self, pattern: str) -> tuple[str, ...]:
        known = self._request(lambda admin, limit_s: admin.list_topics(timeout=limit_s).topics)
        # The pattern may match anywhere in the name, as with the JVM source.
        finds = compile_java_regex(pattern).search
        return tuple(sorted(name for name in known if finds(name)))

    def _existing(self, names: Iterable[str], option: str) -> dict[TopicPartition, Partition]:
        """Return the partitions of topics that must exist, waiting until the metadata contains new ones."""
        deadline = time.monotonic() + _PROPAGATION_S
        while True:
            found, missing = self._describe(names)
            if not missing:
                return found
            if time.monotonic() >= deadline:
                raise ConfigError(f"{option}: topic {truncate(missing[0])} does not exist")
            time.sleep(_RETRY_S)

    def _describe(
        self, names: Iterable[str], *, internal: bool = True
    ) -> tuple[dict[TopicPartition, Partition], list[str]]:
        """Return the partitions of topics, and the topics that the metadata of the broker lacks."""
        from confluent_kafka import TopicCollection  # noqa: PLC0415 - loaded on first use

        def ask(admin: AdminClient, limit_s: float) -> dict[str, Any]:
            answers = admin.describe_topics(TopicCollection(list(names)), request_timeout=limit_s)
            return {name: _description(answer, limit_s + _GRACE_S) for name, answer in answers.items()}

        described = self._request(ask)
        partitions: dict[TopicPartition, Partition] = {}
        for name, topic in described.items():
            # The JVM source reads internal topics only if they are named.
            if topic is None or (topic.is_internal and not internal):
                continue
            for each in topic.partitions:
                leader = None if each.leader is None or each.leader.id < 0 else each.leader.id
                replicas = tuple(node.id for node in each.replicas)
                partitions[TopicPartition(name, each.id)] = Partition(replicas, leader)
        return partitions, [name for name, topic in described.items() if topic is None]

    def _request(self, ask: Callable[[AdminClient, float], _Response]) -> _Response:
        """Return the response to a request, retrying with a new client until there is one."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

        # A client uses the broker that was the controller or leader for minutes after that broker has failed.
        deadline = time.monotonic() + self._timeout_s
        limit_s = min(_FIRST_TIMEOUT_S, self._timeout_s)
        while True:
            try:
                response = ask(self._admin, limit_s)
            except (KafkaException, FutureTimeoutError) as error:
                if not _is_transient(error) or time.monotonic() >= deadline:
                    raise self._unavailable(error) from None
            else:
                self._login_error.last = ""
                return response
            self._admin = self._new_client()
            limit_s = max(_GRACE_S, min(2 * limit_s, deadline - time.monotonic()))
            time.sleep(_RETRY_S)

    def _new_client(self) -> AdminClient:
        return new_admin_client({**self._client, "error_cb": self._login_error})

    def _unavailable(self, error: Exception) -> KafkaUnavailableError:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loaded on first use

        # librdkafka retries a login and reports a timeout of the request; the cause is in an event of its own.
        self._admin.poll(0)
        if self._login_error.last:
            return KafkaUnavailableError(
                f"Kafka at {truncate(self._bootstrap)} cannot be logged in to: {self._login_error.last}"
            )
        reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
        what = "does not respond" if _is_transient(error) else "refuses the request"
        unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
        is_unknown = isinstance(error, KafkaException) and error.args[0].code() in unknown
        kind = UnknownPartitionError if is_unknown else KafkaUnavailableError
        return kind(f"Kafka at {truncate(self._bootstrap)} {what}: {reason or 'the request timed out'}")


class _LoginError:
    """Keeps the last error of a login, without secrets; a callback that does not keep the client from being closed."""

    __slots__ = ("_client", "last")

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self.last = ""

    def __call__(self, error: Any) -> None:  # noqa: ANN401 - the error of an untyped client
        from confluent_kafka import KafkaError  # noqa: PLC0415 - loaded on first use

        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001 - their public names
            self.last = strip_control_chars(without_secrets(error.str(), self._client))


def _description(answer: Any, limit_s: float) -> Any:  # noqa: ANN401 - futures of an untyped client
    """Return the description of a topic; None if no topic has that name."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loaded on first use

    try:
        return answer.result(limit_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def _is_transient(error: Exception) -> bool:
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
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }


def _admin_module() -> Any:  # noqa: ANN401 - the client lacks type annotations for some of its names
    from confluent_kafka import admin  # noqa: PLC0415 - loaded on first use

    return admin
