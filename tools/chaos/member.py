"""One member of the group, in a process of its own: `python -m tools.chaos.member '{"name": ...}'`.

It polls, writes down what it has processed, and only then commits. The end of its stdin is the word to leave, whether
it is closed by who started it or by the end of that.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka import KafkaException
from kafka import ConsumerRebalanceListener
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError, RebalanceInProgressError

from rackassign import RackAwareConsumer
from rackassign.clients import confluent
from rackassign.model import TopicPartition
from tests.helpers.kafka import assignment_recorder
from tests.helpers.kafka.consumers import EXPIRING
from tools.chaos.history import LOST, REVOKED, Batch, Closed, Dropped, Failed, Given, Journal, NotCommitted, now

_POLL_MS = 100
_COMMIT_MS = 5000
"""A commit that never ends would keep the member from its next poll."""

_CLOSE_MS = 5000
_MOST_ERRORS = 100
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
    LibrdkafkaError.ILLEGAL_GENERATION,
    LibrdkafkaError.UNKNOWN_MEMBER_ID,
    LibrdkafkaError.REBALANCE_IN_PROGRESS,
    LibrdkafkaError._TIMED_OUT,
}
"""Why a commit may fail: somebody will process these records again."""

_PR_SET_PDEATHSIG = 1


KAFKA_PYTHON, CONFLUENT = "kafka-python", "confluent"
CLIENTS = (KAFKA_PYTHON, CONFLUENT)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a member is told.

    Args:
        bootstrap: Of the cluster.
        group: The group's name.
        topics: To subscribe to.
        rack: Where it stands.
        work_s: How long it works between two polls, whether there are records or not.
        journal: The file it writes.
        life_s: It does not live longer.
        client: What it is made of, of `CLIENTS`.
    """

    bootstrap: str
    group: str
    topics: tuple[str, ...]
    rack: str
    work_s: float
    journal: str
    life_s: float
    client: str = KAFKA_PYTHON

    def command(self) -> list[str]:
        """Return the command line of such a member."""
        return [sys.executable, "-m", "tools.chaos.member", json.dumps(asdict(self))]


class _Recording:
    """What both kinds of members write down."""

    error: type[Exception]
    """What is raised by `work` of which a service would try again."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def work(self) -> None:
        """Process what comes in a while, and commit it."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave in good order."""
        raise NotImplementedError

    def _given(self, given: assignment_recorder.Given, member_id: str) -> None:
        self._journal.note(Given(now(), given.generation, member_id, tuple(sorted(given.owned))))

    def _dropped(self, why: str, places: Iterable[TopicPartition]) -> None:
        self._journal.note(Dropped(now(), why, tuple(sorted(places))))


class _KafkaPython(_Recording, ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    error = KafkaError

    def __init__(self, settings: Settings, journal: Journal) -> None:
        super().__init__(journal)
        consumer = RackAwareConsumer(
            bootstrap_servers=settings.bootstrap, group_id=settings.group, client_rack=settings.rack, **EXPIRING
        )
        self._consumer = consumer
        assignment_recorder.note_assignments(
            consumer, lambda given: self._given(given, str(consumer.group_metadata().member_id))
        )
        consumer.subscribe(settings.topics, listener=self)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._dropped(REVOKED, (TopicPartition(*place) for place in revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self._dropped(LOST, (TopicPartition(*place) for place in lost))

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing: what it is given is noted with its generation."""

    def work(self) -> None:
        polled = self._consumer.poll(timeout_ms=_POLL_MS)
        for tp, records in polled.items():
            numbers = tuple(int(record.value) for record in records)
            place = TopicPartition(tp.topic, tp.partition)
            self._journal.note(Batch(now(), place, records[0].offset, records[-1].offset, numbers))
        if polled:
            try:
                self._consumer.commit(timeout_ms=_COMMIT_MS)
            except (CommitFailedError, RebalanceInProgressError, KafkaTimeoutError) as error:
                self._journal.note(NotCommitted(now(), type(error).__name__))

    def close(self) -> None:
        self._consumer.close(timeout_ms=_CLOSE_MS)


class _Confluent(_Recording):
    """It joins with kafka-python and reads with librdkafka."""

    error = KafkaException

    def __init__(self, settings: Settings, journal: Journal) -> None:
        super().__init__(journal)
        where = {
            "bootstrap.servers": settings.bootstrap,
            "group.id": settings.group,
            "client.rack": settings.rack,
        }
        consumer = confluent.RackAwareConsumer({**where, **_PROPERTIES})
        self._consumer = consumer
        assignment_recorder.note_assignments(
            consumer._member._consumer, lambda given: self._given(given, consumer.memberid())
        )
        consumer.subscribe(settings.topics, None, partial(self._taken, REVOKED), partial(self._taken, LOST))

    def _taken(self, why: str, _consumer: Any, partitions: list[Any]) -> None:
        self._dropped(why, (TopicPartition(each.topic, each.partition) for each in partitions))

    def work(self) -> None:
        batches: dict[TopicPartition, list[Any]] = {}
        for message in self._consumer.consume(_MOST_RECORDS, _POLL_MS / 1000):
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
                self._consumer.commit(asynchronous=False, timeout=_COMMIT_MS / 1000)
            except KafkaException as problem:
                error = problem.args[0]
                if error.code() not in _MAY_FAIL:
                    raise
                self._journal.note(NotCommitted(now(), error.name()))

    def close(self) -> None:
        self._consumer.close()


def live(settings: Settings, over: threading.Event) -> None:
    """Be a member until it is over; note every error that comes out of the consumer, and go on."""
    journal = Journal(Path(settings.journal))
    deadline = now() + settings.life_s
    try:
        member = (_Confluent if settings.client == CONFLUENT else _KafkaPython)(settings, journal)
        errors = 0
        while not over.wait(settings.work_s) and now() < deadline and errors < _MOST_ERRORS:
            try:
                member.work()
            except member.error:
                # A service would try again too; that it must is what the checker reports.
                journal.note(Failed(now(), traceback.format_exc()))
                errors += 1
        member.close()
        journal.note(Closed(now()))
    except BaseException:  # noqa: BLE001 - whatever it is, it belongs into the history
        journal.note(Failed(now(), traceback.format_exc()))


def _die_with_the_parent() -> None:
    # One that is stopped does not see the end of its stdin.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _heed_stdin(over: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    over.set()


def main() -> None:
    _die_with_the_parent()
    # What the history says happened, this says why.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger(__name__).info("it is now %s in the history", now())
    said = json.loads(sys.argv[1])
    over = threading.Event()
    threading.Thread(target=_heed_stdin, args=(over,), name="stdin", daemon=True).start()
    live(Settings(**{**said, "topics": tuple(said["topics"])}), over)


if __name__ == "__main__":
    main()
