"""Tasks and their input partitions: which of them are read, and from where.

A task has one state, is processed by one member, and moves as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from rackassign.assignor.standby import default_changelog
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful._processing import TaskRun
from rackassign.text import WarnOnce, short_repr

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a group.

    Each input partition is a task of its own, or, if the topics are co-partitioned, all partitions of one number are.
    Like the changelog of its state a task is named by a topic and a partition: of co-partitioned topics by the first
    one in alphabetical order.
    """

    topics: tuple[str, ...]
    copartitioned: bool = False

    def __post_init__(self) -> None:
        """Check the option: any text would count as True."""
        copartitioned: object = self.copartitioned
        if not isinstance(copartitioned, bool):
            raise ConfigError(f"copartitioned must be True or False, got {short_repr(copartitioned)}")

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """The topics of each kind of task, of which the first one names it."""
        return (tuple(sorted(self.topics)),) if self.copartitioned else tuple((topic,) for topic in self.topics)

    def of(self, tp: TopicPartition) -> TopicPartition:
        # Another topic has no task; it keeps its own name, under which nothing is found.
        named = self.copartitioned and tp.topic in self.topics
        return TopicPartition(min(self.topics), tp.partition) if named else tp

    def inputs(self, task: TopicPartition) -> tuple[TopicPartition, ...]:
        if not self.copartitioned:
            return (task,)
        return tuple(TopicPartition(topic, task.partition) for topic in sorted(self.topics))

    def whole(self, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the tasks of which all input partitions are among these."""
        given = set(tps)
        return {task for task in map(self.of, given) if given.issuperset(self.inputs(task))}


def changelog_names(group: str, tasks: Tasks) -> Callable[[str], str]:
    """Return the function that names the changelog of a task by the topic in its name, unless the user has one."""
    names = {topics[0]: default_changelog(group, *topics) for topics in tasks.sets}
    return names.__getitem__


_ANSWER_MS = 1000


class Inputs:
    """The input partitions of a member. Those of tasks that are not ready are paused."""

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - untyped
        tasks: Tasks,
        *,
        repeated: bool,
        once: WarnOnce,
        topic_ids: Callable[[Sequence[str]], Mapping[str, str]],
    ) -> None:
        # `repeated`: whether the input is read from the beginning without state.
        self._consumer = consumer
        self._tasks = tasks
        self._repeated = repeated
        self._once = once
        self._topic_ids = topic_ids
        self._assigned: set[TopicPartition] = set()
        # IDs of the input topics, asked for once for all partitions of an assignment.
        self._ids: Mapping[str, str] | None = None
        # Input partitions of topics that were made again; a committed offset is none of theirs.
        self._renewed: set[TopicPartition] = set()
        # Where each partition begins that was asked for since it was assigned.
        self._first: dict[TopicPartition, int] = {}
        # The first record of each partition that was received since it was assigned.
        self._received: dict[TopicPartition, int] = {}

    def assigned(self) -> set[TopicPartition]:
        assigned = {TopicPartition(*client_tp) for client_tp in self._consumer.assignment()}
        self._received = {tp: offset for tp, offset in self._received.items() if tp in assigned}
        if not assigned <= self._assigned:
            self._ids = None
        self._assigned = assigned
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
            self._renewed.discard(tp)

    def ask_again(self) -> None:
        """Ask for the IDs of the topics again: while this member was out of the group they may have changed."""
        self._ids = None

    def stop(self, task: TopicPartition) -> None:
        assigned = self._consumer.assignment()
        self._consumer.pause(*(tp for tp in map(_client_tp, self._tasks.inputs(task)) if tp in assigned))

    def rewind(self, tp: TopicPartition, offset: int) -> None:
        if _client_tp(tp) in self._consumer.assignment():
            self._consumer.seek(_client_tp(tp), offset)

    def begin(self, task: TopicPartition, run: TaskRun) -> bool | None:
        """Read the input of a task from where its state ends, now or, if Kafka does not respond, with the next poll."""
        # The result is whether it is read now; None if Kafka did not respond in time.
        starts: dict[TopicPartition, int] = {}
        if self._ids is None:
            try:
                self._ids = self._topic_ids(self._tasks.topics)
            except KafkaUnavailableError as error:
                self._once.warn("begin", "the IDs of the input topics are not known: %s", error, about=str(error))
                return None
        for tp in self._tasks.inputs(task):
            # The offset belongs to a former topic of this name; this one may be longer.
            topic_id = self._ids.get(tp.topic)
            if topic_id and run.is_another_topic(tp.topic, topic_id):
                log.warning("%s-%d: the topic was deleted and made again: it is read from its first record", *tp)
                self._renewed.add(tp)
                self._first[tp] = 0
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
            elif self._repeated or tp in self._renewed:
                self._consumer.seek_to_beginning(_client_tp(tp))
            elif tp in self._received:
                self._consumer.seek(_client_tp(tp), self._received[tp])
        self._consumer.resume(*map(_client_tp, starts))
        return True

    def _where_to_begin(self, tp: TopicPartition, start: int) -> int:
        """Return the offset where the input continues, and log a warning if records are missing or repeated."""
        # `start`: offset where its state ends; 0 without state.
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
        """Return the offset of the next record to be processed, whether one was processed or not."""
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
        found: dict[TopicPartition, dict[TopicPartition, Sequence[Any]]] = {}
        for tp, batch in sorted(records.items()):
            found.setdefault(self._tasks.of(tp), {})[tp] = batch
        return found


def in_order(batches: Iterable[Sequence[Any]]) -> Iterable[Any]:
    """Return records of co-partitioned topics in the order of their timestamps, those of each topic in its order."""
    # Only what was fetched together can be ordered, as in Kafka Streams with `max.task.idle.ms=-1`.
    all_batches = list(batches)
    return all_batches[0] if len(all_batches) == 1 else merge(*all_batches, key=lambda record: record.timestamp)


def _client_tp(tp: TopicPartition) -> KafkaPythonPartition:
    return KafkaPythonPartition(*tp)
