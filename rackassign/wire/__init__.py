"""The bytes of the consumer protocol, and of what sticky assignors and Kafka Streams add to it.

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
