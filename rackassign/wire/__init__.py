"""Encoding of the consumer protocol, and of the user data of sticky assignors and Kafka Streams.

Rules of this package:

* It converts bytes to values and values to bytes. It does not interpret values or check their consistency.
* It accepts hostile input: any bytes result in a value or in one `WireError` with the position, in time and memory that
  grow with the length of the bytes and not with the numbers encoded in them.
* What only Kafka Streams sends is imported from `streams`.
* It encodes as Java does: always the newest version, topics and owned partitions in Java's order.
"""

from __future__ import annotations

from rackassign.wire.consumer_protocol import (
    NEWEST,
    Assignment,
    StickyData,
    Subscription,
    SubscriptionReader,
    decode_assignment,
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_assignments,
    encode_sticky,
    encode_subscription,
)

__all__ = [
    "NEWEST",
    "Assignment",
    "StickyData",
    "Subscription",
    "SubscriptionReader",
    "decode_assignment",
    "decode_generation",
    "decode_sticky",
    "decode_subscription",
    "encode_assignment",
    "encode_assignments",
    "encode_sticky",
    "encode_subscription",
]
