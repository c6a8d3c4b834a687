"""A Faust worker with a table of totals by key, which writes what it counts and what it is assigned.

python -m tests.helpers.kafka.faust_totals worker --without-web
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterable
from typing import Any

from rackassign.integrations.faust import RackAwareApp

app: Any = RackAwareApp(
    os.environ["GROUP"],
    broker=[f"kafka://{broker}" for broker in os.environ["KAFKA_BOOTSTRAP"].split(",")],
    table_standby_replicas=1,
)
topic = app.topic(os.environ["TOPIC"], key_serializer="raw", value_serializer="raw")
totals = app.Table("totals", default=int, partitions=3)


def write(line: object) -> None:
    # What is printed in a worker is logged.
    os.write(1, f"{json.dumps(line)}\n".encode())


@app.agent(topic)  # type: ignore[untyped-decorator] # Faust's types are for apps that are not `Any`
async def count(stream: AsyncIterable[bytes]) -> None:
    async for record in stream.events():  # type: ignore[attr-defined] # the stream that Faust passes
        name = record.key.decode()
        totals[name] += 1
        write({"key": name, "total": totals[name]})


@app.on_partitions_assigned.connect  # type: ignore[untyped-decorator] # the same
async def assigned(*_: Any, **__: Any) -> None:
    parts = {"active": app.assignor.assigned_actives(), "standby": app.assignor.assigned_standbys()}
    write({part: sorted([tp.topic, tp.partition] for tp in tps) for part, tps in parts.items()})


if __name__ == "__main__":
    app.main()
