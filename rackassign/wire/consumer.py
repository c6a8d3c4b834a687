"""Subscription and assignment of the protocol type "consumer", versions 0 to 3.

A 16-bit version, then the fields, each version adding to the last:

=======  ==========================================  ===========================
version  subscription                                assignment
=======  ==========================================  ===========================
0        topics, user data                           partitions, user data
1        owned partitions (KIP-429)                  the same
2        generation of the owned ones (KIP-792)      the same
3        rack (KIP-881)                              the same
=======  ==========================================  ===========================

A newer version is read as version 3 and what follows is ignored; so is anything behind the fields of an older
one. That is how Java keeps the format open, and members of all versions share groups.

Two things Java's generated reader refuses are read leniently here, as kafka-python does: a null array of owned
partitions is none. A string that is not UTF-8 is refused, where Java puts replacement characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rackassign.errors import WireError
from rackassign.model import Partitions, TopicPartition
from rackassign.wire.primitives import Reader, Writer

NEWEST = 3

_EMPTY_STRING = 2
_EMPTY_TOPIC = _EMPTY_STRING + 4


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member tells the group's leader about itself.

    Args:
        topics: Subscribed topics, as listed.
        user_data: The assignor's own bytes; null and empty differ.
        owned: Partitions the member owns.
        generation: Generation in which it was given them; -1 if unknown.
        rack: Its rack; None for none ("" reads as none).
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader tells a member.

    Args:
        partitions: Partition ids by topic.
        user_data: The assignor's own bytes; null and empty differ.
    """

    partitions: Partitions = field(default_factory=dict)
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """Write a subscription as Java does: topics sorted, owned partitions grouped and sorted.

    Args:
        subscription: What to write; fields that the version lacks are left out.
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
        write_partitions(out, _by_topic(sorted(subscription.owned)))
    if version >= 2:  # noqa: PLR2004 - the table above says what each version adds
        out.int32(subscription.generation)
    if version >= NEWEST:
        out.nullable_string(subscription.rack)
    return out.done()


def decode_subscription(data: bytes) -> Subscription:
    """Read a subscription of any version.

    Raises:
        WireError: If the bytes are no subscription; says where.
    """
    source = Reader(data)
    version = _read_version(source)
    count = source.count("topics", _EMPTY_STRING)
    if count is None:
        raise WireError(source.offset, "the list of topics is null")
    topics = tuple(source.string("a topic") for _ in range(count))
    user_data = source.nullable_bytes("user data")
    owned: tuple[TopicPartition, ...] = ()
    generation, rack = -1, None
    if version >= 1:
        by_topic = read_partitions(source, "owned topics")
        owned = tuple(TopicPartition(topic, p) for topic, partitions in by_topic for p in partitions)
    if version >= 2:  # noqa: PLR2004 - as above
        generation = max(-1, source.int32("the generation"))
    if version >= NEWEST:
        rack = source.nullable_string("the rack") or None
    return Subscription(topics, user_data, owned, generation, rack)


def encode_assignment(assignment: Assignment, version: int = NEWEST) -> bytes:
    """Write an assignment, topics and partitions in the order given.

    Raises:
        WireError: If a value does not fit the format.
    """
    _check_version(version)
    out = Writer()
    out.int16(version)
    write_partitions(out, assignment.partitions)
    out.nullable_bytes(assignment.user_data)
    return out.done()


def decode_assignment(data: bytes) -> Assignment:
    """Read an assignment of any version; a topic listed twice has its partitions joined.

    Raises:
        WireError: If the bytes are no assignment; says where.
    """
    source = Reader(data)
    _read_version(source)
    by_topic = read_partitions(source, "assigned topics")
    partitions = _by_topic(TopicPartition(topic, p) for topic, ids in by_topic for p in ids)
    return Assignment(partitions, source.nullable_bytes("user data"))


def _check_version(version: int) -> None:
    if not 0 <= version <= NEWEST:
        raise WireError(0, f"version {version} cannot be written, only 0 to {NEWEST}")


def _read_version(source: Reader) -> int:
    version = source.int16("the version")
    if version < 0:
        raise WireError(0, f"version {version} does not exist")
    return min(version, NEWEST)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return {topic: tuple(ids) for topic, ids in grouped.items()}


def write_partitions(out: Writer, partitions: Mapping[str, tuple[int, ...]]) -> None:
    """Write an array of topics, each with an array of partition ids."""
    out.int32(len(partitions))
    for topic, ids in partitions.items():
        out.string(topic)
        out.int32s(ids)


def read_partitions(source: Reader, what: str) -> list[tuple[str, tuple[int, ...]]]:
    """Read such an array; null is none."""
    count = source.count(what, _EMPTY_TOPIC) or 0
    return [(source.string("a topic"), source.int32s("partitions")) for _ in range(count)]
