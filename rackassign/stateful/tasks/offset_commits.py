"""Commits of input offsets, which inform other tools: nothing waits for them but the end of the consumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from rackassign.model import TopicPartition

log = logging.getLogger(__name__)

_AT_END_MS = 2000


class OffsetCommits:
    """The commits of a consumer, one at a time; those made meanwhile are merged.

    A commit during a rebalance is answered once the slowest member has joined. The next owner of a partition does not
    need it, since the changelog has the same offset.

    Args:
        consumer: The group's consumer.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._consumer = consumer
        self._wanted: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}
        self._answer: Any = None

    def send(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, now or after the commit that is under way."""
        self._wanted.update(ends)
        if self._answer is not None and not self._answer.is_done:
            return
        self._settle()
        self._sent, self._wanted = self._owned(self._wanted), {}
        if self._sent:
            try:
                self._answer = self._consumer.commit_async(_offsets(self._sent), callback=_ignore)
            except KafkaError as error:
                self._failed(error)

    def finish(self, ends: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Commit these offsets and the remaining ones, and wait for the answer, 2 s at most; if it fails, keep them."""
        self._wanted.update(ends)
        if self._answer is not None and self._answer.is_done:
            self._settle()
        self._sent, self._wanted = self._owned({**self._sent, **self._wanted}), {}
        self._answer = None
        if not self._sent:
            return
        try:
            self._consumer.commit(_offsets(self._sent), timeout_ms=_AT_END_MS)
            self._sent = {}
        except KafkaError as error:
            self._failed(error)

    def _settle(self) -> None:
        if self._answer is not None and self._answer.failed():
            self._failed(self._answer.exception)
        self._answer, self._sent = None, {}

    def _failed(self, error: Exception) -> None:
        """Keep the offsets for the next commit."""
        log.info("offsets of %d partitions cannot be committed: %s", len(self._sent), error)
        self._wanted = {**self._sent, **self._wanted}
        self._sent = {}

    def _owned(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of assigned partitions: other members have committed further in the others."""
        assigned = self._consumer.assignment()
        return {tp: end for tp, end in ends.items() if KafkaPythonPartition(*tp) in assigned}


def _offsets(ends: Mapping[TopicPartition, int]) -> dict[KafkaPythonPartition, OffsetAndMetadata]:
    return {KafkaPythonPartition(*tp): OffsetAndMetadata(end, "", -1) for tp, end in ends.items()}


def _ignore(*_: object) -> None:
    """Replace kafka-python's callback, which logs an error for each commit that fails."""
