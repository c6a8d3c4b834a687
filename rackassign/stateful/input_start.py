"""Where a partition of the input is read from, with warnings if records are missing or repeated."""

from __future__ import annotations

import logging
from typing import Any

from kafka import TopicPartition as KafkaPythonPartition

from rackassign.model import TopicPartition

log = logging.getLogger(__name__)

_ANSWER_MS = 1000


def where_to_begin(consumer: Any, tp: TopicPartition, start: int, *, repeated: bool) -> int:  # noqa: ANN401 - untyped
    """Return the offset where the input continues, and log a warning if records are missing or repeated.

    Args:
        consumer: The group's consumer.
        tp: The partition.
        start: Offset where its state ends; 0 without state.
        repeated: Whether the input is read from the beginning without state.

    Raises:
        KafkaTimeoutError: Kafka does not respond soon.
        KafkaError: Kafka does not report the beginning of the input or the committed offset.
    """
    client_tp = KafkaPythonPartition(*tp)
    committed: int = consumer.committed(client_tp, timeout_ms=_ANSWER_MS) or 0
    begins: int = consumer.beginning_offsets([client_tp], timeout_ms=_ANSWER_MS)[client_tp]
    if committed > start:
        log.warning(
            "%s-%d: offset %d is committed, but its changelog has records up to %d only: %s",
            *(*tp, committed, start),
            "they are processed again" if start or repeated else "its state is empty (auto_offset_reset)",
        )
    if 0 < start < begins:
        log.warning("%s-%d: records %d to %d no longer exist", *tp, start, begins - 1)
        return begins
    return start
