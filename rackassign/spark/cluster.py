"""What the driver asks the brokers: which partitions there are, where their replicas stand, and which offsets."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, NoAnswerError, cut
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.racks import RackMemory
from rackassign.spark.offsets import EARLIEST, LATEST
from rackassign.spark.options import Topics

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

NO_LATER = -1
"""In place of an offset: no record is as late."""

_ANSWER_MS = 30_000
_SETTLED_S = 3.0
"""So long after a topic was made a broker may not have heard of it."""

_AGAIN_S = 0.2
_SELECTOR = "replica.selector.class"


@dataclass(frozen=True, slots=True)
class Places:
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


class Cluster:
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
        self._memory = RackMemory()
        try:
            # A consumer's properties would make it warn.
            self._admin: AdminClient = AdminClient({n: v for n, v in client.items() if n not in _OF_CONSUMERS})
        except KafkaException as error:
            raise ConfigError(f"kafka.*: librdkafka refuses it: {error.args[0].str()}") from None

    def places(self, topics: Topics) -> Places:
        """Return the partitions of topics.

        Raises:
            ConfigError: A topic or partition that was named does not exist.
            NoAnswerError: Kafka is not there, or refuses.
        """
        names = topics.names or tuple(sorted({place.topic for place in topics.assigned})) or self._like(topics.pattern)
        partitions: dict[TopicPartition, Partition] = {}
        if names:
            # What like the pattern is missing was deleted since topics were listed.
            partitions = self._described(names)[0] if topics.pattern else self._named(names)
        if topics.assigned:
            absent = sorted(set(topics.assigned) - set(partitions))
            if absent:
                raise ConfigError(f"assign: there is no partition {absent[0].topic}-{absent[0].partition}")
            partitions = {place: partitions[place] for place in topics.assigned}
        self._memory.see(self.brokers())
        known = {broker: rack for broker, rack in self._memory.racks().items() if rack is not None}
        return Places(partitions, known)

    def brokers(self) -> list[Broker]:
        """Return the brokers there are now.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        described = self._result(self._admin.describe_cluster(request_timeout=self._answer_s))
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
        return self._listed(dict.fromkeys(places, spec))

    def offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset that is as late, for each partition; `NO_LATER` if none is.

        Args:
            timestamps: In milliseconds.

        Raises:
            NoAnswerError: Kafka is not there, or refuses.
        """
        specs = _host().OffsetSpec
        return self._listed({place: specs.for_timestamp(timestamp) for place, timestamp in timestamps.items()})

    def _listed(self, specs: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
        from confluent_kafka import IsolationLevel  # noqa: PLC0415 - not before it is needed
        from confluent_kafka import TopicPartition as HostPartition  # noqa: PLC0415

        if not specs:
            return {}
        level = IsolationLevel.READ_COMMITTED if self._committed else IsolationLevel.READ_UNCOMMITTED
        asked = {HostPartition(*place): spec for place, spec in specs.items()}
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self._answer_s)
        return {TopicPartition(at.topic, at.partition): self._result(answer).offset for at, answer in answers.items()}

    def _like(self, pattern: str) -> tuple[str, ...]:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before it is needed

        try:
            known = self._admin.list_topics(timeout=self._answer_s).topics
        except KafkaException as error:
            raise self._no_answer(error) from None
        return tuple(sorted(name for name in known if re.fullmatch(pattern, name)))

    def _named(self, names: Iterable[str]) -> dict[TopicPartition, Partition]:
        """Return the partitions of topics that must be there; brokers may not all know a new one yet."""
        deadline = time.monotonic() + _SETTLED_S
        while True:
            found, missing = self._described(names)
            if not missing:
                return found
            if time.monotonic() >= deadline:
                raise ConfigError(f"subscribe: there is no topic {cut(missing[0])}")
            time.sleep(_AGAIN_S)

    def _described(self, names: Iterable[str]) -> tuple[dict[TopicPartition, Partition], list[str]]:
        """Return the partitions of topics, and the topics that the broker that was asked does not know."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection  # noqa: PLC0415 - as above

        found: dict[TopicPartition, Partition] = {}
        missing: list[str] = []
        for name, answer in self._admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self._answer_s
        ).items():
            try:
                described = answer.result(self._answer_s)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._no_answer(error) from None
                missing.append(name)
                continue
            for each in described.partitions:
                leader = None if each.leader is None or each.leader.id < 0 else each.leader.id
                replicas = tuple(node.id for node in each.replicas)
                found[TopicPartition(name, each.id)] = Partition(replicas, leader)
        return found, missing

    def _result(self, answer: Any) -> Any:  # noqa: ANN401 - futures of an untyped client
        from confluent_kafka import KafkaException  # noqa: PLC0415 - not before it is needed

        try:
            return answer.result(2 * self._answer_s)
        except KafkaException as error:
            raise self._no_answer(error) from None

    def _no_answer(self, error: Exception) -> NoAnswerError:
        return NoAnswerError(f"Kafka at {cut(self._bootstrap)} does not answer: {error.args[0].str()}")


def _host() -> Any:  # noqa: ANN401 - the client has no types for some of what is in it
    from confluent_kafka import admin  # noqa: PLC0415 - not before it is needed

    return admin


_OF_CONSUMERS = frozenset({"isolation.level", "group.id", "fetch.wait.max.ms", "fetch.min.bytes", "check.crcs"})
