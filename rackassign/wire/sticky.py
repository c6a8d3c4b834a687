"""What the sticky assignors of Java, librdkafka and kafka-python put into a subscription's user data.

=======  ==========================================
version  field
=======  ==========================================
0        partitions of the last assignment, by topic
1        its generation
=======  ==========================================

Java and librdkafka put no number in front that says which: what has four bytes left behind the partitions is version 1.
kafka-python does put one there, 16 bits, and reads nothing else. Both are read here, and Java's form is written.

Java's cooperative assignor writes a generation alone, four bytes, from the time before subscriptions had it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from rackassign.errors import WireError
from rackassign.model import Partitions
from rackassign.wire.consumer import merge_topic_partitions, write_partitions
from rackassign.wire.primitives import Reader, Writer

_INT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class StickyData:
    """What a member had.

    Args:
        owned: Partition ids by topic.
        generation: Generation in which it was given them; None if it does not say.
    """

    owned: Partitions = field(default_factory=dict)
    generation: int | None = None


def encode_sticky(data: StickyData) -> bytes:
    """Write user data as Java's `StickyAssignor` does, topics in order: version 1, or 0 without a generation.

    Raises:
        WireError: If a value does not fit the format.
    """
    out = Writer()
    write_partitions(out, dict(sorted(data.owned.items())))
    if data.generation is not None:
        out.int32(data.generation)
    return out.done()


def decode_sticky(data: bytes | None) -> StickyData:
    """Read user data of either version, Java's or kafka-python's; null and empty say nothing.

    Raises:
        WireError: If the bytes are none of them.
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
    """Return what there is, and how many bytes are left behind it."""
    owned = merge_topic_partitions(source.ids_by_topic("owned topics", {}))
    generation = source.int32("the generation") if source.remaining() >= _INT32_BYTES else None
    return StickyData(owned, None if generation is None or generation < 0 else generation), source.remaining()


def decode_generation(data: bytes | None) -> int | None:
    """Read the generation out of a cooperative member's user data, None if there is none.

    Java's has nothing else there; librdkafka's is that of a sticky member, which Java would take the first number of.
    """
    if data is None or len(data) < _INT32_BYTES:
        return None
    if len(data) > _INT32_BYTES:
        with suppress(WireError):
            return decode_sticky(data).generation
        return None
    generation = Reader(data).int32("the generation")
    return generation if generation >= 0 else None
