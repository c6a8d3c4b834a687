"""Members that record what they were given, each in a thread of its own or in a process that can be killed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer

from rackassign import RackAwareConsumer
from rackassign.testing.harness import TIMEOUT_S, KafkaPythonMember, Owned, Record, commit_records, poll_records
from tests.helpers.kafka.assignment_recorder import Given, State, note_assignments, state_of
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.machine_speed import scaled_ms

if TYPE_CHECKING:
    from typing_extensions import Self


class ThreadedConsumer(KafkaPythonMember):
    """A member that commits what it has processed, and records its assignments."""

    def __init__(self, make: Callable[[], KafkaConsumer], *, poll_ms: int = 200) -> None:
        # `poll_ms`: how long one poll may take. A consumer without our patches needs long ones: a join that finishes
        # between two polls is lost on it.
        self.given: list[Given] = []
        self.polls = 0
        """How many polls have ended."""

        def recording() -> KafkaConsumer:
            consumer = make()
            note_assignments(consumer, self.given.append)
            poll = consumer.poll

            def counted(*words: Any, **more: Any) -> Any:
                try:
                    return poll(*words, **more)
                finally:
                    self.polls += 1

            consumer.poll = counted
            return consumer

        super().__init__(recording, commit=True, poll_ms=poll_ms)

    @property
    def state(self) -> State:
        # Not kept after each poll, since one may take a long time.
        consumer = self.consumer
        return State() if consumer is None else state_of(consumer)


class KillableConsumer:
    """A `RackAwareConsumer` in a process of its own, which can be killed. It polls, processes and commits."""

    def __init__(self, bootstrap: str, group: str, topic: str, rack: str) -> None:
        self.state = State()
        self.given: list[Given] = []
        self.records: list[Record] = []
        fresh = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = fresh.Pipe()
        self._process = fresh.Process(
            target=_live, args=(self._theirs, bootstrap, group, topic, rack), name="doomed", daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        # So that the pipe ends with the process.
        self._theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it without a word to anybody, and take what it had said before."""
        self._process.kill()
        self._process.join(TIMEOUT_S)
        # It may have been ended in the middle of a message, or by an error of its own before.
        with suppress(EOFError, OSError):
            while True:
                self._take(self._pipe.recv())
        self._pipe.close()

    @property
    def id(self) -> str:
        return self.state.id

    def poll(self) -> None:
        while self._pipe.poll():
            self._take(self._pipe.recv())

    def assignment(self) -> Owned:
        return self.state.owned

    def _take(self, message: tuple[State, list[Given], list[Record]]) -> None:
        self.state = message[0]
        self.given.extend(message[1])
        self.records.extend(message[2])


def _live(pipe: Connection, bootstrap: str, group: str, topic: str, rack: str) -> None:
    # It may be killed, and the others wait until its session has ended.
    config = {**CONSUMER, "session_timeout_ms": scaled_ms(2500)}
    consumer = RackAwareConsumer(topic, bootstrap_servers=bootstrap, group_id=group, client_rack=rack, **config)
    noted: list[Given] = []
    note_assignments(consumer, noted.append)
    last = State()
    # Nothing is ever sent to it, so that what is there to read is the end: whoever started it is gone.
    while not pipe.poll():
        read = poll_records(consumer, 200)
        state, news = state_of(consumer), noted.copy()
        if read or news or state != last:
            # Before it commits: what is committed nobody reads again.
            pipe.send((state, news, read))
            last = state
            del noted[: len(news)]
        if read:
            commit_records(consumer)
