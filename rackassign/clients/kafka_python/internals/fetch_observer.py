"""Observation of a consumer's fetch responses."""

from __future__ import annotations

import inspect
from typing import Any

from rackassign.clients.fetch_metrics import FetchedPartition, Observer, count_records
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce, with_version


def observe_fetches(consumer: Any, observer: Observer, once: WarnOnce, *, key: object) -> None:
    """Pass every fetch response to an observer, unless there is one for this key already.

    Shadows `_fetcher._handle_fetch_response`, which is looked up for each send.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    observers: dict[object, Observer] | None = vars(fetcher).get("_rackassign") if fetcher is not None else None
    if observers is None:
        if not _show_fetches(fetcher, once):
            return
        observers = {}
    if key not in observers:
        # Replaced and not changed: the IO thread may be iterating over the old one.
        fetcher._rackassign = {**observers, key: observer}  # type: ignore[union-attr]


def _show_fetches(fetcher: Any, once: WarnOnce) -> bool:
    original = getattr(fetcher, "_handle_fetch_response", None)
    expected = ("node_id", "fetch_offsets", "send_time", "response")
    if original is None or tuple(inspect.signature(original).parameters) != expected:
        once.warn("fetches", "%s differs: fetches are not observed", with_version("kafka-python"))
        return False

    def handle_fetch_response(node_id: int, fetch_offsets: Any, send_time: float, response: Any) -> None:
        try:
            fetched = _fetched(response)
            for observe in fetcher._rackassign.values():
                observe(node_id, fetched)
        except Exception:  # noqa: BLE001 - a response that could not be observed must still be read
            once.warn(
                "fetches",
                "%s differs: a fetch response could not be observed",
                with_version("kafka-python"),
                exc_info=True,
            )
        original(node_id, fetch_offsets, send_time, response)

    fetcher._handle_fetch_response = handle_fetch_response
    return True


def _fetched(response: Any) -> list[FetchedPartition]:
    return [
        FetchedPartition(
            TopicPartition(topic.topic, partition.partition_index),
            len(partition.records or b""),
            count_records(partition.records or b""),
            # -1 means none.
            partition.preferred_read_replica if partition.preferred_read_replica >= 0 else None,
        )
        for topic in response.responses
        for partition in topic.partitions
    ]
