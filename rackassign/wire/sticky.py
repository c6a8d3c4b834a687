"""User data of the sticky assignors of Java, librdkafka and kafka-python.

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

from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from rackassign.errors import WireError
from rackassign.model import Partitions
from rackassign.wire.consumer import write_partitions
from rackassign.wire.primitives import KnownTopics, Reader, Writer

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
        found, left = _read(Reader(data))
    except WireError:
        if not numbered:
            raise
        return _read(Reader(data[2:]))[0]
    if left > 0 and numbered:
        with suppress(WireError):
            behind, left_behind = _read(Reader(data[2:]))
            if not left_behind:
                return behind
    return found


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
