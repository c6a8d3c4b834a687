"""Patches for the requests that ask where partitions begin and end."""

from __future__ import annotations

from typing import Any

from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.clients.kafka_python.patches.base import Patch
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import with_version

_BACKOFF_S = 0.1
"""kafka-python's retry_backoff_ms, by default."""


def _refresh_on_stale_leader(consumer: Consumer, once: WarnOnce) -> None:
    """Request metadata, and wait a little, when a former leader of a partition is asked for offsets."""
    fetcher = consumer._fetcher
    original = fetcher._send_list_offsets_requests

    async def send_list_offsets_requests(timestamps: Any) -> Any:
        found = await original(timestamps)
        try:
            _, refused = found
            if refused:
                # As kafka-python does after such an error of a fetch. The request is repeated by the caller.
                consumer._cluster.request_update()
                await fetcher._manager._net.sleep(_BACKOFF_S)
        except Exception:  # noqa: BLE001 - then the same broker is asked again, as without us
            once.warn("stale", "%s: patch refresh_on_stale_leader failed", with_version("kafka-python"), exc_info=True)
        return found

    fetcher._send_list_offsets_requests = send_list_offsets_requests


REFRESH_ON_STALE_LEADER = Patch(
    name="refresh_on_stale_leader",
    defect=(
        "After the leader of a partition has changed, end_offsets() and beginning_offsets() ask the former one again"
        " and again without a pause, and raise KafkaTimeoutError, until the metadata is due, by default for five"
        " minutes. A consumer that fetches from the partition learns of the new leader by that; others do not."
    ),
    proof="integration/clients/test_follower_fetching.py::test_offsets_are_asked_of_a_new_leader",
    wraps={"_fetcher._send_list_offsets_requests": ("timestamps",)},
    needs=("_cluster.request_update", "_fetcher._manager._net.sleep"),
    install=_refresh_on_stale_leader,
)
