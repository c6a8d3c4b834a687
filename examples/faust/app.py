"""A Faust application whose workers read a topic locally.

`RackAwareApp` takes the place of `faust.App`; it gets its rack from RACKASSIGN_RACK. Faust commits a record after the
agent has handled it, so after a crash some are handled again and none is lost. Run one for each zone:

    RACKASSIGN_RACK=use1-az1 KAFKA_BOOTSTRAP=broker:9092 python -m examples.faust.app worker --loglevel info
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable

from rackassign.integrations.faust import RackAwareApp

app = RackAwareApp(
    os.environ.get("GROUP", "faust"),
    broker=[f"kafka://{broker}" for broker in os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092").split(",")],
    web_port=int(os.environ.get("PORT", "6066")),
)
orders = app.topic(os.environ.get("TOPIC", "orders"), value_serializer="raw")


@app.agent(orders)
async def handle(values: AsyncIterable[bytes]) -> None:
    """Do what the application is for."""
    async for value in values:
        print((value or b"").decode(errors="replace"), flush=True)


if __name__ == "__main__":
    app.main()
