"""Encoding of the consumer protocol, and of the user data of sticky assignors and Kafka Streams.

Rules of this package:

* It converts bytes to values and values to bytes. It does not interpret values or check their consistency.
* It accepts hostile input: any bytes result in a value or in one `WireError` with the position, in time and memory that
  grow with the length of the bytes and not with the numbers encoded in them.
* It encodes as Java does: always the newest version, topics and owned partitions in Java's order.
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
from rackassign.wire.streams_assignment import (
    NO_REBALANCE,
    StreamsAssignmentInfo,
    decode_streams_assignment,
    encode_streams_assignment,
)
from rackassign.wire.streams_subscription import (
    ACTIVE_SUM,
    UNKNOWN_SUM,
    StreamsSubscriptionInfo,
    TaskId,
    decode_streams,
    encode_streams,
)

__all__ = [
    "ACTIVE_SUM",
    "NEWEST",
    "NO_REBALANCE",
    "UNKNOWN_SUM",
    "Assignment",
    "StickyData",
    "StreamsAssignmentInfo",
    "StreamsSubscriptionInfo",
    "Subscription",
    "SubscriptionReader",
    "TaskId",
    "decode_assignment",
    "decode_generation",
    "decode_sticky",
    "decode_streams",
    "decode_streams_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_assignments",
    "encode_sticky",
    "encode_streams",
    "encode_streams_assignment",
    "encode_subscription",
]
