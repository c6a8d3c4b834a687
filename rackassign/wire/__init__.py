"""The bytes of the consumer protocol, and of what sticky assignors add to it.

Rules of this room:

* Bytes to values and values to bytes. What a value means, and whether it makes sense, is for others to say.
* Total on hostile input: any bytes give a value or one `WireError` that says where, in time and memory that
  grow with the length of the bytes and not with the numbers written in them.
* Written as Java writes: always the newest version, topics and owned partitions in Java's order.
"""

from __future__ import annotations

from rackassign.wire.consumer import (
    NEWEST,
    Assignment,
    Subscription,
    SubscriptionReader,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_assignments,
    encode_subscription,
)
from rackassign.wire.sticky import StickyData, decode_generation, decode_sticky, encode_sticky

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
