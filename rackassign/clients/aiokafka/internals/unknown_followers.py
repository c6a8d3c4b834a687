"""Metadata for followers that a leader names and the consumer does not know (KIP-392).

aiokafka (0.14.0) reads from a follower only if its metadata list that broker. If they are from a time at which the
broker was down, aiokafka fetches from the leader again, which returns no records and names the follower again. Nothing
is read until the metadata are due, by default for five minutes, and meanwhile one fetch follows the other without a
pause. The Java client requests new metadata then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from rackassign.clients.aiokafka.internals.fetch_observer import before_fetches_return
from rackassign.clients.aiokafka.internals.membership import Coordinator
from rackassign.clients.aiokafka.internals.metadata import Consumer
from rackassign.clients.fetch_metrics import FetchedPartition
from rackassign.text import WarnOnce, with_version

_LONGEST_S = 0.1
"""How long a fetch response waits for new metadata. Brokers may list a broker later than its leader names it, and then
this is the time between two requests for metadata."""


def find_unknown_followers(owner: Consumer | Coordinator, once: WarnOnce) -> None:
    """Request metadata when a leader names a follower that is not among the brokers; a second call changes nothing.

    Uses `_client.cluster.broker_metadata` and `_client.force_metadata_update`.

    Args:
        owner: A consumer, or its coordinator, which has the same client.
        once: Logs if aiokafka has changed.
    """
    client: Any = getattr(owner, "_client", None)
    known = getattr(getattr(client, "cluster", None), "broker_metadata", None)
    update = getattr(client, "force_metadata_update", None)
    if not callable(known) or not callable(update):
        once.warn(
            "unknown followers",
            "%s differs: a follower that is back may not be read from before metadata_max_age_ms",
            with_version("aiokafka"),
        )
        return

    async def find(fetched: Iterable[FetchedPartition]) -> None:
        named = {partition.preferred_replica for partition in fetched} - {None}
        if any(known(broker) is None for broker in named):
            await asyncio.wait([asyncio.ensure_future(update())], timeout=_LONGEST_S)

    before_fetches_return(owner, find, once)
