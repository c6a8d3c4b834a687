"""What the functions of a stateful consumer write to: records are collected, and written with the next commit.

The topics of `output` are checked before a member joins its group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.admin_client import check_authorized, connected, topic_resource
from rackassign.admin.describe import UNKNOWN_TOPIC, check_described_operation, retry_on_disconnect
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.text import short_repr, truncate

Headers = Sequence[tuple[str, bytes]]

OVERHEAD = 200
"""Bytes of a record batch with one record, beside its key, value and headers; more than there are."""

LARGEST = 1 << 20
"""Bytes of the largest record, as `max_request_size` of kafka-python and `message.max.bytes` of brokers are by default:
one that is refused later could never be committed."""

LEAST_TIMEOUT_MS = 1000

_LATEST_MS = (1 << 63) - 1
"""The timestamp of a record has 64 bits."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to be written."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    # Its partition; None for the one that the producer chooses by the key.
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    # Its timestamp; None for the time at which it is written.
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        """Bytes that the record takes at most, without compression."""
        headers = sum(len(name.encode()) + len(value) + 10 for name, value in self.headers)
        return OVERHEAD + len(self.key or b"") + len(self.value or b"") + headers


class Output:
    """The topics to which `process` writes; what it has written is visible once its changes of the state are committed.

    Args:
        topics: Topics that can be written to; the first one is the default if it is the only one.
        partitions: Returns the number of partitions of a topic.
    """

    __slots__ = ("_kept", "_open", "_partitions", "_records", "_size", "_topics")

    def __init__(self, topics: Sequence[str], partitions: Callable[[str], int]) -> None:
        self._topics = topics
        self._partitions = partitions
        self._records: list[ProducerRecord] = []
        self._size = 0
        # Number and bytes of the records of functions that have returned.
        self._kept = (0, 0)
        self._open = False

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Write a record; it is dropped if the function that writes it raises an error.

        Args:
            value: Value of the record; None is accepted with a key.
            key: Key of the record.
            topic: One of the topics of `output`; needed if there are several.
            partition: Partition of the topic; by default the producer chooses it by the key.
            headers: Names and values.
            timestamp_ms: Milliseconds since 1970; by default the time at which the record is written.

        Raises:
            ConfigError: An argument is invalid, or the record is too large.
            RackassignError: No function of the consumer is being called.
        """
        if not self._open:
            raise RackassignError("output can be written to only while process, or a function of punctuate, is called")
        record = ProducerRecord(self._topic(topic), value, key, partition, _checked_headers(headers), timestamp_ms)
        if value is None and key is None:
            raise ConfigError("a record needs a value or a key: kafka-python writes none without both")
        for name, text in (("value", value), ("key", key)):
            if text is not None and not isinstance(text, bytes):
                raise ConfigError(f"{name} of a record must be bytes or None, got {short_repr(text)}: encode it first")
        self._check_partition(record)
        if timestamp_ms is not None and (type(timestamp_ms) is not int or not 0 <= timestamp_ms <= _LATEST_MS):
            raise ConfigError(f"timestamp_ms must be an integer from 0 to {_LATEST_MS}, got {short_repr(timestamp_ms)}")
        size = record.size
        if size > LARGEST:
            raise ConfigError(f"a record of {size} bytes is too large for {record.topic}: {LARGEST} are the limit")
        self._records.append(record)
        self._size += size

    def _topic(self, given: str | None) -> str:
        if given is None and len(self._topics) == 1:
            return self._topics[0]
        topics = ", ".join(self._topics)
        if given is None:
            raise ConfigError(f"topic= is needed, as output names several: {topics}")
        if given not in self._topics:
            raise ConfigError(f"topic must be one of those that output names ({topics}), got {short_repr(given)}")
        return given

    def _check_partition(self, record: ProducerRecord) -> None:
        partition = record.partition
        if partition is None:
            return
        size = self._partitions(record.topic)
        if type(partition) is not int or not 0 <= partition < size:
            raise ConfigError(f"{record.topic} has partitions 0 to {size - 1}, got {short_repr(partition)}")

    def begin(self) -> None:
        """Accept records: a function is about to be called."""
        self._open = True

    def keep(self) -> None:
        """Keep the records of the function that has returned."""
        self._kept, self._open = (len(self._records), self._size), False

    def drop(self) -> None:
        """Drop the records of the function that has failed."""
        count, self._size = self._kept
        del self._records[count:]
        self._open = False

    @property
    def size(self) -> int:
        """Bytes of the records that are not taken yet."""
        return self._size

    def take(self) -> list[ProducerRecord]:
        """Return the records since the last call."""
        found, self._records = self._records, []
        self._size, self._kept = 0, (0, 0)
        return found


def check_output(output: object, transactional_id: object, timeout_ms: object) -> tuple[str, ...]:
    """Refuse invalid options of transactions; return the topics to write to."""
    if transactional_id is not None and (not isinstance(transactional_id, str) or not transactional_id):
        raise ConfigError(f"transactional_id must be a name, got {short_repr(transactional_id)}")
    if timeout_ms is not None and (type(timeout_ms) is not int or timeout_ms < LEAST_TIMEOUT_MS):
        raise ConfigError(
            f"transaction_timeout_ms must be an integer from {LEAST_TIMEOUT_MS}, got {short_repr(timeout_ms)}"
        )
    if output is None:
        return ()
    topics = (output,) if isinstance(output, str) else tuple(output) if isinstance(output, Iterable) else ()
    if not topics or not all(isinstance(topic, str) and topic for topic in topics):
        raise ConfigError(f"output must be the name of a topic, or a list of names, got {short_repr(output)}")
    if len(set(topics)) < len(topics):
        raise ConfigError(f"each topic of output can be given once, got {short_repr(output)}")
    return topics


def _checked_headers(headers: object) -> tuple[tuple[str, bytes], ...]:
    if not isinstance(headers, Iterable) or isinstance(headers, (str, bytes)):
        raise ConfigError(f"headers must be pairs of a name and bytes, got {short_repr(headers)}")
    checked = []
    for each in headers:
        match each:
            case (str() as name, bytes() as value):
                checked.append((name, value))
            case _:
                raise ConfigError(f"headers must be pairs of a name and bytes, got {short_repr(each)}")
    return tuple(checked)


def check_output_topics(connection: Mapping[str, Any], topics: Sequence[str], changelogs: Collection[str]) -> None:
    """Check that the topics of `output` exist and may be written to. Does nothing without topics."""
    # Otherwise a missing permission, which brokers report from 2.3 on, is known when the first record is processed.
    for topic in topics:
        if topic in changelogs:
            # Records that are not changes would be restored as state.
            raise ConfigError(f"topic {truncate(topic)} of output is a changelog of this group; choose another one")
    if not topics:
        return
    try:
        with closing(connected(KafkaAdminClient, connection)) as admin:
            described = retry_on_disconnect(lambda: admin.describe_topics(list(topics)))
    except (KafkaError, OSError) as error:
        raise KafkaUnavailableError(f"the topics of output are not known: {error}") from None
    for topic_description in described:
        # WRITE includes DESCRIBE.
        check_authorized(topic_description["error_code"], "WRITE", topic_resource([topic_description["name"]]))
        if topic_description["error_code"] in UNKNOWN_TOPIC:
            raise ConfigError(f"topic {truncate(topic_description['name'])} of output does not exist")
    check_described_operation(described, "WRITE")
