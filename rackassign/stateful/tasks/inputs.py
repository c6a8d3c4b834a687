"""The input partitions of tasks: which of them are read, and from where."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from typing import Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from rackassign.errors import KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful.tasks.naming import Tasks
from rackassign.stateful.tasks.run import TaskRun
from rackassign.util.log_once import WarnOnce

log = logging.getLogger(__name__)

_ANSWER_MS = 1000


class Inputs:
    """The input partitions of a member. Those of tasks that are not ready are paused.

    Args:
        consumer: The group's consumer.
        tasks: The tasks of the group.
        repeated: Whether the input is read from the beginning without state.
        once: Logs a warning once.
    """

    def __init__(self, consumer: Any, tasks: Tasks, *, repeated: bool, once: WarnOnce) -> None:  # noqa: ANN401 - untyped
        self._consumer = consumer
        self._tasks = tasks
        self._repeated = repeated
        self._once = once
        # Where each partition begins that was asked for since it was assigned.
        self._first: dict[TopicPartition, int] = {}
        # The first record of each partition that was received since it was assigned.
        self._received: dict[TopicPartition, int] = {}

    def assigned(self) -> set[TopicPartition]:
        """Return the input partitions that are assigned to this member."""
        assigned = {TopicPartition(*client_tp) for client_tp in self._consumer.assignment()}
        self._received = {tp: offset for tp, offset in self._received.items() if tp in assigned}
        return assigned

    def received(self, records: Mapping[TopicPartition, Sequence[Any]]) -> None:
        """Note where records begin: if they are not committed, and there is no state, nothing else has that offset."""
        for tp, batch in records.items():
            self._received.setdefault(tp, batch[0].offset)

    def forget(self, task: TopicPartition) -> None:
        """Stop reading a task that this member does not own any more, or not yet."""
        self.stop(task)
        for tp in self._tasks.inputs(task):
            self._first.pop(tp, None)

    def stop(self, task: TopicPartition) -> None:
        """Pause the input of a task."""
        assigned = self._consumer.assignment()
        self._consumer.pause(*(tp for tp in map(_client_tp, self._tasks.inputs(task)) if tp in assigned))

    def rewind(self, tp: TopicPartition, offset: int) -> None:
        """Read records again."""
        if _client_tp(tp) in self._consumer.assignment():
            self._consumer.seek(_client_tp(tp), offset)

    def begin(self, task: TopicPartition, run: TaskRun) -> bool | None:
        """Read the input of a task from where its state ends, now or, if Kafka does not respond, with the next poll.

        Returns:
            Whether it is read now; None if Kafka did not respond in time.
        """
        starts: dict[TopicPartition, int] = {}
        for tp in self._tasks.inputs(task):
            start = run.next_offset(tp.topic)
            if tp not in self._first:
                try:
                    self._first[tp] = self._where_to_begin(tp, start)
                except KafkaTimeoutError:
                    # During a rebalance the coordinator responds once all members have joined.
                    return None
                except KafkaError as error:
                    self._once.warn("begin", "%s-%d: cannot determine where to begin: %s", *tp, error, about=tp)
                    return False
            starts[tp] = max(start, self._first[tp])
        for tp, start in starts.items():
            if start:
                self._consumer.seek(_client_tp(tp), start)
            elif self._repeated:
                self._consumer.seek_to_beginning(_client_tp(tp))
            elif tp in self._received:
                self._consumer.seek(_client_tp(tp), self._received[tp])
        self._consumer.resume(*map(_client_tp, starts))
        return True

    def _where_to_begin(self, tp: TopicPartition, start: int) -> int:
        """Return the offset where the input continues, and log a warning if records are missing or repeated.

        Args:
            tp: The partition.
            start: Offset where its state ends; 0 without state.

        Raises:
            KafkaTimeoutError: Kafka does not respond soon.
            KafkaError: Kafka does not report the beginning of the input or the committed offset.
        """
        client_tp = _client_tp(tp)
        committed: int = self._consumer.committed(client_tp, timeout_ms=_ANSWER_MS) or 0
        begins: int = self._consumer.beginning_offsets([client_tp], timeout_ms=_ANSWER_MS)[client_tp]
        if committed > start:
            log.warning(
                "%s-%d: offset %d is committed, but its changelog has records up to %d only: %s",
                *(*tp, committed, start),
                "they are processed again" if start or self._repeated else "its state is empty (auto_offset_reset)",
            )
        if 0 < start < begins:
            log.warning("%s-%d: records %d to %d no longer exist", *tp, start, begins - 1)
            return begins
        return start

    def next_offset(self, tp: TopicPartition, run: TaskRun) -> int:
        """Return the offset of the next record to be processed, whether one was processed or not.

        Raises:
            KafkaUnavailableError: It is not known, since Kafka does not respond.
        """
        processed = run.next_offset(tp.topic)
        if processed:
            return processed
        if tp in self._received:
            return self._received[tp]
        try:
            found: int | None = self._consumer.position(_client_tp(tp), timeout_ms=_ANSWER_MS)
        except KafkaError as error:
            raise KafkaUnavailableError(f"{tp.topic}-{tp.partition}: its position is not known: {error}") from None
        if found is None:
            # kafka-python (3.0.12) returns None after its timeout, where its other requests raise.
            raise KafkaUnavailableError(f"{tp.topic}-{tp.partition}: its position is not known: no response")
        return found

    def by_task(
        self, records: Mapping[TopicPartition, Sequence[Any]]
    ) -> dict[TopicPartition, dict[TopicPartition, Sequence[Any]]]:
        """Return records by task and input partition."""
        found: dict[TopicPartition, dict[TopicPartition, Sequence[Any]]] = {}
        for tp, batch in sorted(records.items()):
            found.setdefault(self._tasks.of(tp), {})[tp] = batch
        return found


def in_order(batches: Iterable[Sequence[Any]]) -> Iterable[Any]:
    """Return the records of co-partitioned topics in the order of their timestamps, those of each topic in its order.

    Only what was fetched together can be ordered, as in Kafka Streams with `max.task.idle.ms=-1`.
    """
    found = list(batches)
    return found[0] if len(found) == 1 else merge(*found, key=lambda record: record.timestamp)


def _client_tp(tp: TopicPartition) -> KafkaPythonPartition:
    return KafkaPythonPartition(*tp)
