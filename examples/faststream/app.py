"""A FastStream application that reads a topic locally.

FastStream passes `client_rack` and `partition_assignment_strategy` to aiokafka. An assignor that is given as a class
takes its rack from RACKASSIGN_RACK. Records are committed after they were handled, so after a crash some are handled
again and none is lost. Run one for each zone:

    RACKASSIGN_RACK=use1-az1 KAFKA_BOOTSTRAP=broker:9092 python -m examples.faststream.app
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from faststream.message import StreamMessage

from rackassign.clients.aiokafka import RackAwareStickyAssignor

broker = KafkaBroker(os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092").split(","))
app = FastStream(broker)


async def raw(message: StreamMessage[Any]) -> Any:  # noqa: ANN401 - bytes, or a list of them
    """Return values as they are: FastStream itself would decode what is JSON, and refuse it as bytes."""
    return message.body


@broker.subscriber(
    os.environ.get("TOPIC", "orders"),
    batch=True,
    group_id=os.environ.get("GROUP", "faststream"),
    client_rack=os.environ.get("RACKASSIGN_RACK"),
    partition_assignment_strategy=[RackAwareStickyAssignor],
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
    decoder=raw,
)
async def handle(values: list[bytes]) -> None:
    """Do what the application is for, with some records."""
    for value in values:
        print((value or b"").decode(errors="replace"), flush=True)


if __name__ == "__main__":
    asyncio.run(app.run())
