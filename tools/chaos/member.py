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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kafka import ConsumerRebalanceListener
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError, RebalanceInProgressError

from rackassign import RackAwareConsumer
from rackassign.model import TopicPartition
from tests.helpers.kafka import assignment_recorder
from tests.helpers.kafka.consumers import EXPIRING
from tools.chaos.history import LOST, REVOKED, Batch, Closed, Dropped, Failed, Given, Journal, NotCommitted, now

_POLL_MS = 100
_COMMIT_MS = 5000
"""A commit that never ends would keep the member from its next poll."""

_CLOSE_MS = 5000
_MOST_ERRORS = 100
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


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._note(REVOKED, revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        self._note(LOST, lost)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing: what it is given is noted with its generation."""

    def _note(self, why: str, places: Any) -> None:
        self._journal.note(Dropped(now(), why, tuple(TopicPartition(*place) for place in sorted(places))))


class _Member(Protocol):
    """A consumer that writes down what it is given and processes, and commits only then."""

    @property
    def error(self) -> type[Exception]:
        """What is raised by `work` of which a service would try again."""

    def work(self) -> None:
        """Process what comes in a while."""

    def close(self) -> None:
        """Leave in good order."""


class _KafkaPython:
    error = KafkaError

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._journal = journal
        self._consumer = RackAwareConsumer(
            bootstrap_servers=settings.bootstrap, group_id=settings.group, client_rack=settings.rack, **EXPIRING
        )
        assignment_recorder.note_assignments(self._consumer, self._note_given)
        self._consumer.subscribe(settings.topics, listener=_Listener(journal))

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

    def _note_given(self, given: assignment_recorder.Given) -> None:
        member_id = str(self._consumer.group_metadata().member_id)
        self._journal.note(Given(now(), given.generation, member_id, tuple(sorted(given.owned))))


def _made(settings: Settings, journal: Journal) -> _Member:
    if settings.client == CONFLUENT:
        from tools.chaos.confluent import Confluent  # noqa: PLC0415 - the others need not have it

        where = (settings.bootstrap, settings.group, settings.topics, settings.rack)
        return Confluent(*where, journal, wait_s=_POLL_MS / 1000, commit_s=_COMMIT_MS / 1000)
    return _KafkaPython(settings, journal)


def live(settings: Settings, over: threading.Event) -> None:
    """Be a member until it is over; note every error that comes out of the consumer, and go on."""
    journal = Journal(Path(settings.journal))
    deadline = now() + settings.life_s
    try:
        member = _made(settings, journal)
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
