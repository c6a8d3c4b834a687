"""Subscription and assignment of the protocol type "consumer", versions 0 to 3.

A 16-bit version, then the fields, each version adding to the last:

=======  ==========================================  ===========================
version  subscription                                assignment
=======  ==========================================  ===========================
0        topics, user data                           partitions, user data
1        owned partitions (KIP-429)                  as version 0
2        generation of the owned ones (KIP-792)      as version 0
3        rack (KIP-881)                              as version 0
=======  ==========================================  ===========================

A newer version is decoded as version 3 and the remaining bytes are ignored; so are bytes after the fields of an older
version. In this way Java keeps the format extensible, and members of all versions can be in one group.

Decoding is more lenient than Java's generated code in one case, as in kafka-python: a null array of owned
partitions is empty. It is stricter in another: a string that is not UTF-8 is rejected, where Java inserts replacement
characters.

User data of the sticky assignors of Java, librdkafka and kafka-python:

=======  ==========================================
version  field
=======  ==========================================
0        partitions of the last assignment, by topic
1        its generation
=======  ==========================================

Java and librdkafka write no version number: if four bytes are left after the partitions, it is version 1.
kafka-python writes a version number of 16 bits in front, and reads only this form. Both are decoded here, and Java's
form is encoded.

Java's cooperative assignor writes only a generation, four bytes, from the time before subscriptions contained it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from rackassign.errors import WireError
from rackassign.model import Partitions
from rackassign.wire.primitives import KnownTopics, Reader, Writer

NEWEST = 3

_EMPTY_STRING = 2


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription: what a member sends to the group leader.

    Args:
        topics: Subscribed topics, as listed.
        user_data: The assignor's own bytes; null and empty differ.
        owned: Partition IDs the member owns, by topic.
        generation: Generation in which they were assigned; -1 if unknown.
        rack: Its rack; None for none ("" is decoded as none).
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Partitions = field(default_factory=dict)
    generation: int = -1
    rack: str | None = None


class Assignment(NamedTuple):
    """An assignment: what the leader sends to a member.

    Args:
        partitions: Partition IDs by topic.
        user_data: The assignor's own bytes; null and empty differ.
    """

    partitions: Partitions = MappingProxyType({})
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """Encode a subscription as Java does: topics sorted, owned partitions grouped and sorted.

    Args:
        subscription: Subscription to encode; fields that the version lacks are omitted.
        version: 0 to 3.

    Raises:
        WireError: If a value does not fit the format.
    """
    _check_version(version)
    out = Writer()
    out.int16(version)
    out.int32(len(subscription.topics))
    for topic in sorted(subscription.topics):
        out.string(topic)
    out.nullable_bytes(subscription.user_data)
    if version >= 1:
        write_partitions(out, {topic: sorted(subscription.owned[topic]) for topic in sorted(subscription.owned)})
    if version >= 2:  # noqa: PLR2004 - see the table above for the fields of each version
        out.int32(subscription.generation)
    if version >= NEWEST:
        out.nullable_string(subscription.rack)
    return out.done()


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription of any version.

    Raises:
        WireError: If the bytes are no subscription; contains the position.
    """
    return SubscriptionReader().read(data)


class SubscriptionReader:
    """Decodes the subscriptions of one join. Most members list equal topics; those are decoded once."""

    def __init__(self) -> None:
        self._block = b""
        self._topics: tuple[str, ...] = ()
        self._known = KnownTopics()

    def read(self, data: bytes) -> Subscription:
        """Decode one subscription, as `decode_subscription` does."""
        source = Reader(data)
        version = _read_version(source)
        topics = self._read_topics(source, data)
        user_data = source.nullable_bytes("user data")
        owned: Partitions = {}
        generation, rack = -1, None
        if version >= 1:
            owned = source.ids_by_topic("owned topics", self._known)
        if version >= 2:  # noqa: PLR2004 - see the table above for the fields of each version
            generation = max(-1, source.int32("the generation"))
        if version >= NEWEST:
            rack = source.nullable_string("the rack") or None
        return Subscription(topics, user_data, owned, generation, rack)

    def _read_topics(self, source: Reader, data: bytes) -> tuple[str, ...]:
        start = source.offset
        if self._block and data.startswith(self._block, start):
            source.offset += len(self._block)
            return self._topics
        count = source.count("topics", _EMPTY_STRING)
        if count is None:
            raise WireError(source.offset, "the list of topics is null")
        self._topics = tuple(source.string("a topic") for _ in range(count))
        self._block = bytes(data[start : source.offset])
        return self._topics


def encode_assignment(assignment: Assignment, version: int = NEWEST) -> bytes:
    """Encode an assignment, topics and partitions in the given order.

    Raises:
        WireError: If a value does not fit the format.
    """
    _check_version(version)
    out = Writer()
    out.int16(version)
    write_partitions(out, assignment.partitions)
    out.nullable_bytes(assignment.user_data)
    return out.done()


def encode_assignments(many: Iterable[Partitions], version: int = NEWEST) -> list[bytes]:
    """Encode assignments without user data, as `encode_assignment` does; each topic's name is encoded once.

    Raises:
        WireError: If a name or the version does not fit the format.
        struct.error: If an ID does not.
    """
    _check_version(version)
    head, tail = struct.pack(">h", version), struct.pack(">i", -1)
    heads, arrays = _Names(), _Arrays()
    encoded: list[bytes] = []
    for partitions in many:
        pairs = zip(map(heads.__getitem__, partitions), map(arrays.__getitem__, partitions.values()), strict=True)
        encoded.append(b"".join([head, struct.pack(">i", len(partitions)), *chain.from_iterable(pairs), tail]))
    return encoded


class _Names(dict[str, bytes]):
    """Names of topics as they are written, each encoded once."""

    def __missing__(self, topic: str) -> bytes:
        out = Writer()
        out.string(topic)
        self[topic] = out.done()
        return self[topic]


class _Arrays(dict[tuple[int, ...], bytes]):
    """Arrays of partition IDs as they are written: of many topics a member gets one partition, often of equal ID."""

    def __missing__(self, ids: tuple[int, ...]) -> bytes:
        self[ids] = struct.pack(f">{len(ids) + 1}i", len(ids), *ids)
        return self[ids]


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment of any version; the partitions of a topic that is listed twice are merged.

    Raises:
        WireError: If the bytes are no assignment; contains the position.
    """
    source = Reader(data)
    _read_version(source)
    partitions = source.ids_by_topic("assigned topics", KnownTopics())
    return Assignment(partitions, source.nullable_bytes("user data"))


def _check_version(version: int) -> None:
    if not 0 <= version <= NEWEST:
        raise WireError(0, f"version {version} cannot be written, only 0 to {NEWEST}")


def _read_version(source: Reader) -> int:
    version = source.int16("the version")
    if version < 0:
        raise WireError(0, f"version {version} does not exist")
    return min(version, NEWEST)


def write_partitions(out: Writer, partitions: Mapping[str, Sequence[int]]) -> None:
    """Write an array of topics, each with an array of partition IDs."""
    out.int32(len(partitions))
    for topic, ids in partitions.items():
        out.string(topic)
        out.int32s(ids)


_INT32_BYTES = 4


class StickyData(NamedTuple):
    """The last assignment of a member.

    Args:
        owned: Partition IDs by topic.
        generation: Generation in which they were assigned; None if it is missing.
    """

    owned: Partitions = MappingProxyType({})
    generation: int | None = None


def encode_sticky(data: StickyData) -> bytes:
    """Encode user data as Java's `StickyAssignor` does, topics in order: version 1, or 0 without a generation.

    Raises:
        WireError: If a value does not fit the format.
    """
    out = Writer()
    write_partitions(out, dict(sorted(data.owned.items())))
    if data.generation is not None:
        out.int32(data.generation)
    return out.done()


def decode_sticky(data: bytes | None) -> StickyData:
    """Decode user data of either version, Java's or kafka-python's; null and empty contain nothing.

    Raises:
        WireError: If the bytes have none of these forms.
    """
    if not data:
        return StickyData()
    numbered = int.from_bytes(data[:2], "big") in _VERSIONS
    try:
        fields, left = _read(Reader(data))
    except WireError:
        if not numbered:
            raise
        return _read(Reader(data[2:]))[0]
    if left > 0 and numbered:
        with suppress(WireError):
            behind, left_behind = _read(Reader(data[2:]))
            if not left_behind:
                return behind
    return fields


_VERSIONS = (0, 1)


def _read(source: Reader) -> tuple[StickyData, int]:
    """Return the decoded data, and the number of bytes left after it."""
    owned = source.ids_by_topic("owned topics", KnownTopics())
    generation = source.int32("the generation") if source.remaining() >= _INT32_BYTES else None
    return StickyData(owned, None if generation is None or generation < 0 else generation), source.remaining()


def decode_generation(data: bytes | None) -> int | None:
    """Return the generation in a cooperative member's user data, None if there is none.

    Java's contains nothing else; librdkafka's is that of a sticky member, of which Java would use the first number.
    """
    if data is None or len(data) < _INT32_BYTES:
        return None
    if len(data) > _INT32_BYTES:
        with suppress(WireError):
            return decode_sticky(data).generation
        return None
    generation = Reader(data).int32("the generation")
    return generation if generation >= 0 else None
