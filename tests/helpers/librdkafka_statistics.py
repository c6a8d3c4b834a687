"""Statistics as librdkafka 2.16 writes them, with the keys that are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def broker(broker_id: int, received: int, *, sent: int = 0, in_flight: int = 0) -> dict[str, Any]:
    """Return the counts of a connection."""
    return {"nodeid": broker_id, "rxbytes": received, "txbytes": sent, "waitresp_cnt": in_flight}


def partition(number: int, **counts: Any) -> dict[str, Any]:
    """Return the counts of a partition; those that are not passed are of one without records."""
    empty = {"broker": -1, "rxbytes": 0, "rxmsgs": 0, "next_offset": 0, "app_offset": -1001, "fetch_state": "none"}
    queue = {"fetchq_cnt": 0, "fetchq_size": 0, "txbytes": 0, "txmsgs": 0}
    return {"partition": number, **empty, **queue, **counts}


def statistics_json(
    partitions: Iterable[Mapping[str, Any]] = (),
    brokers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    topic: str = "t",
    client: str = "rdkafka#consumer-1",
    made_us: int = 0,
) -> str:
    """Return the text that a `stats_cb` is called with."""
    topics = {topic: {"topic": topic, "partitions": {str(each["partition"]): each for each in partitions}}}
    return json.dumps({"name": client, "ts": made_us, "brokers": dict(brokers or {}), "topics": topics})
