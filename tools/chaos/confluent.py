"""The member that joins with kafka-python and reads with librdkafka, for `tools.chaos.member`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from rackassign.clients.confluent import RackAwareConsumer
from rackassign.model import TopicPartition
from tests.helpers.kafka import assignment_recorder
from tests.helpers.kafka.consumers import EXPIRING
from tools.chaos.history import LOST, REVOKED, Batch, Dropped, Failed, Given, Journal, NotCommitted, now

_MOST_RECORDS = 500
_PROPERTIES = {
    "auto.offset.reset": EXPIRING["auto_offset_reset"],
    "enable.auto.commit": EXPIRING["enable_auto_commit"],
    "heartbeat.interval.ms": EXPIRING["heartbeat_interval_ms"],
    "session.timeout.ms": EXPIRING["session_timeout_ms"],
    "max.poll.interval.ms": EXPIRING["max_poll_interval_ms"],
    "topic.metadata.refresh.interval.ms": EXPIRING["metadata_max_age_ms"],
}
_MAY_FAIL = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._TIMED_OUT,
}
"""Why a commit may fail: somebody will process these records again."""


class Confluent:
    """A consumer that writes down what it is given and processes, and commits only then.

    Args:
        bootstrap: Of the cluster.
        group: The group's name.
        topics: To subscribe to.
        rack: Where it stands.
        journal: Told of everything.
        wait_s: How long it waits for records.
        commit_s: How long for a commit.
    """

    error = KafkaException

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        rack: str,
        journal: Journal,
        *,
        wait_s: float,
        commit_s: float,
    ) -> None:
        self._journal = journal
        self._wait_s = wait_s
        self._commit_s = commit_s
        self._consumer = RackAwareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "client.rack": rack, **_PROPERTIES}
        )
        assignment_recorder.note_assignments(self._consumer._member._consumer, self._note_given)
        self._consumer.subscribe(topics, None, self._dropped(REVOKED), self._dropped(LOST))

    def work(self) -> None:
        batches: dict[TopicPartition, list[Any]] = {}
        for message in self._consumer.consume(_MOST_RECORDS, self._wait_s):
            error = message.error()
            if error is None:
                batches.setdefault(TopicPartition(message.topic() or "", message.partition() or 0), []).append(message)
            else:
                self._journal.note(Failed(now(), str(error)))
        for place, records in batches.items():
            numbers = tuple(int(record.value()) for record in records)
            self._journal.note(Batch(now(), place, records[0].offset(), records[-1].offset(), numbers))
        if batches:
            try:
                self._consumer.commit(asynchronous=False, timeout=self._commit_s)
            except KafkaException as problem:
                error = problem.args[0]
                if error.code() not in _MAY_FAIL:
                    raise
                self._journal.note(NotCommitted(now(), error.name()))

    def close(self) -> None:
        self._consumer.close()

    def _note_given(self, given: assignment_recorder.Given) -> None:
        self._journal.note(Given(now(), given.generation, self._consumer.memberid(), tuple(sorted(given.owned))))

    def _dropped(self, why: str) -> Callable[[Any, list[Any]], None]:
        def dropped(_consumer: Any, partitions: list[Any]) -> None:
            places = tuple(sorted(TopicPartition(each.topic, each.partition) for each in partitions))
            self._journal.note(Dropped(now(), why, places))

        return dropped
