"""Kafka clients: one package for each library; what a consumer fetches is counted for all in `fetch_metrics`.

Private attributes of a client library are used only in the `internals` and `patches` of its package.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from rackassign.assignor.member import resolve_rack
from rackassign.racks import ZoneHint, client_id_with_zone

log = logging.getLogger(__name__)


def close_dropped(close: Callable[[], object]) -> None:
    """Close a dropped consumer on a new thread, as this one may be any; the process waits for that at exit."""

    def run() -> None:
        log.warning("a consumer was garbage-collected without close(): it leaves its group")
        try:
            close()
        except Exception:
            log.exception("closing a garbage-collected consumer failed")

    threading.Thread(target=run, name="rackassign-dropped-consumer").start()


def resolve_client_rack(
    configs: dict[str, Any], client_rack: str | None, zone_hint: ZoneHint | None, client_id: str
) -> str | None:
    """Resolve the rack of a client; with a hint, put it into its client ID, `client_id` if none is configured."""
    rack = resolve_rack(client_rack)
    if zone_hint is not None:
        configs["client_id"] = client_id_with_zone(zone_hint, configs.get("client_id") or client_id, rack)
    return rack
