"""One member of the group, in a process of its own.

python -m tools.chaos.member CLIENT BOOTSTRAP GROUP NAME FOLDER

The first letter of its name is its rack. It polls, writes down in the folder what it has processed, and only then
commits. SIGTERM is the word to leave, and it ends with the process that has started it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
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
from tests.helpers.kafka.consumers import EXPIRING, PROPERTIES
from tools.chaos.history import LOST, MEMBER_FILE, REVOKED, Batch, Dropped, Failed, Given, Held, Journal, now
from tools.chaos.schedule import TOPICS, WORK_S

_POLL_MS = 100
_COMMIT_MS = 5000
"""A commit that never ends would keep the member from its next poll."""

_CLOSE_MS = 5000
_LOOK_EVERY_S = 5.0
_MOST_ERRORS = 100
_MOST_RECORDS = 500
_PROPERTIES = {
    **PROPERTIES,
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

log = logging.getLogger(__name__)


class _Recording:
    """What both kinds of members write down."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def _given(self, member_id: Callable[[], str], given: assignment_recorder.Given) -> None:
        self._journal.note(Given(now(), given.generation, member_id(), tuple(sorted(given.owned))))

    def _dropped(self, why: str, places: Iterable[TopicPartition]) -> None:
        self._journal.note(Dropped(now(), why, tuple(sorted(places))))

    def _processed(self, batches: Mapping[TopicPartition, Sequence[tuple[int, bytes]]]) -> None:
        """Note records with their offsets."""
        for place, records in batches.items():
            numbers = tuple(int(value) for _, value in records)
            self._journal.note(Batch(now(), place, records[0][0], records[-1][0], numbers))


class _KafkaPython(_Recording, ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    error: type[Exception] = KafkaError

    def __init__(self, bootstrap: str, group: str, rack: str, journal: Journal) -> None:
        super().__init__(journal)
        consumer = RackAwareConsumer(bootstrap_servers=bootstrap, group_id=group, client_rack=rack, **EXPIRING)
        self._consumer = consumer
        assignment_recorder.note_assignments(
            consumer, partial(self._given, lambda: str(consumer.group_metadata().member_id))
        )
        consumer.subscribe([*TOPICS], listener=self)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._dropped(REVOKED, (TopicPartition(*place) for place in revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self._dropped(LOST, (TopicPartition(*place) for place in lost))

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing: what it is given is noted with its generation."""

    def work(self) -> None:
        polled = self._consumer.poll(timeout_ms=_POLL_MS)
        self._processed({TopicPartition(*tp): [(r.offset, r.value) for r in polled[tp]] for tp in polled})
        if polled:
            try:
                self._consumer.commit(timeout_ms=_COMMIT_MS)
            except (CommitFailedError, RebalanceInProgressError, KafkaTimeoutError) as error:
                log.info("not committed: %r", error)

    def close(self) -> None:
        self._consumer.close(timeout_ms=_CLOSE_MS)


class _Confluent(_Recording):
    """It joins with kafka-python and reads with librdkafka."""

    error: type[Exception] = KafkaException

    def __init__(self, bootstrap: str, group: str, rack: str, journal: Journal) -> None:
        super().__init__(journal)
        where = {"bootstrap.servers": bootstrap, "group.id": group, "client.rack": rack}
        consumer = confluent.RackAwareConsumer({**where, **_PROPERTIES})
        self._consumer = consumer
        assignment_recorder.note_assignments(consumer._member._consumer, partial(self._given, consumer.memberid))
        consumer.subscribe([*TOPICS], None, partial(self._taken, REVOKED), partial(self._taken, LOST))

    def _taken(self, why: str, _consumer: Any, partitions: list[Any]) -> None:
        self._dropped(why, (TopicPartition(each.topic, each.partition) for each in partitions))

    def work(self) -> None:
        batches: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        for message in self._consumer.consume(_MOST_RECORDS, _POLL_MS / 1000):
            if message.error() is None:
                place = TopicPartition(message.topic() or "", message.partition() or 0)
                batches.setdefault(place, []).append((message.offset() or 0, message.value() or b""))
            else:
                self._journal.note(Failed(now(), str(message.error())))
        self._processed(batches)
        if batches:
            try:
                self._consumer.commit(asynchronous=False, timeout=_COMMIT_MS / 1000)
            except KafkaException as problem:
                if problem.args[0].code() not in _MAY_FAIL:
                    raise
                log.info("not committed: %r", problem)

    def close(self) -> None:
        self._consumer.close()


KAFKA_PYTHON, CONFLUENT = "kafka-python", "confluent"
CLIENTS: Mapping[str, type[_KafkaPython | _Confluent]] = {KAFKA_PYTHON: _KafkaPython, CONFLUENT: _Confluent}


def held() -> Held:
    """Return what the kernel says of this process."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return Held(now(), int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), files)


def live(client: str, bootstrap: str, group: str, name: str, journal: Journal, asked: Sequence[int]) -> None:
    """Be a member until a signal is there; note every error that comes out of the consumer, and go on."""
    try:
        member, errors, looked = CLIENTS[client](bootstrap, group, name[0], journal), 0, 0.0
        while not asked and errors < _MOST_ERRORS:
            time.sleep(WORK_S[name[0]])
            if now() - looked > _LOOK_EVERY_S:
                journal.note(held())
                looked = now()
            try:
                member.work()
            except member.error:
                # A service would try again too; that it must is what the checker reports.
                journal.note(Failed(now(), traceback.format_exc()))
                errors += 1
        member.close()
    except BaseException:  # noqa: BLE001 - whatever it is, it belongs into the history
        journal.note(Failed(now(), traceback.format_exc()))


def main() -> None:
    client, bootstrap, group, name, folder = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # What the history says happened, this says why.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    log.info("it is now %s in the history", now())
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    with closing(Journal(Path(folder) / MEMBER_FILE.format(f"{name}.{os.getpid()}"))) as journal:
        live(client, bootstrap, group, name, journal, asked)


if __name__ == "__main__":
    main()
