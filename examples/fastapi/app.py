"""A FastAPI service that reads a topic in the background while it serves requests.

The consumer is started and closed with the service (its lifespan). Records are committed after they were handled, so
after a crash some are handled again and none is lost. Run one for each zone:

    RACKASSIGN_RACK=use1-az1 KAFKA_BOOTSTRAP=broker:9092 python -m examples.fastapi.app
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from aiokafka.errors import CommitFailedError
from fastapi import FastAPI, Response

from rackassign.clients.aiokafka import RackAwareConsumer

handled: Counter[int] = Counter()


def handle(record: Any) -> None:  # noqa: ANN401 - aiokafka is untyped
    """Do what the service is for, with one record."""
    handled[record.partition] += 1
    print((record.value or b"").decode(errors="replace"), flush=True)


async def read(consumer: RackAwareConsumer) -> None:
    """Handle records until cancelled."""
    while True:
        batches = await consumer.getmany(timeout_ms=500)
        for records in batches.values():
            for record in records:
                handle(record)
        if batches:
            # Without the partitions any more, others handle these records again.
            with suppress(CommitFailedError):
                await consumer.commit()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Read while the service runs."""
    consumer = RackAwareConsumer(
        os.environ.get("TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092"),
        group_id=os.environ.get("GROUP", "fastapi"),
        # The rack is that of RACKASSIGN_RACK; with client_rack="auto" it is detected.
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    app.state.consumer = consumer
    app.state.reading = asyncio.create_task(read(consumer))
    try:
        yield
    finally:
        app.state.reading.cancel()
        await consumer.stop()


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health(response: Response) -> dict[str, Any]:
    """Return whether it reads, and how much comes from its own rack; for a liveness probe."""
    reading: asyncio.Task[None] = app.state.reading
    if reading.done():
        # Otherwise a service whose consumer has failed would look healthy.
        response.status_code = 503
        return {"reading": False, "problem": repr(reading.exception())}
    locality = app.state.consumer.locality()
    return {"reading": True, "handled": dict(handled), "rack": locality.rack, "local_share": locality.local_share()}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="warning")
