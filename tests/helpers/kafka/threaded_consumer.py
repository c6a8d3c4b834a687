"""Consumers as services run them, each in a thread of its own, or in a process that can be killed."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafka import KafkaConsumer
from kafka.errors import CommitFailedError, RebalanceInProgressError

from rackassign import RackAwareConsumer
from rackassign.model import TopicPartition
from tests.helpers.kafka.assignment_recorder import Owned
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

PartitionOffset = tuple[int, int]
"""Partition and offset."""


class State(NamedTuple):
    """How a member sees itself."""

    id: str = ""
    generation: int = -1
    resting: bool = False
    """It has what it was given last and does not mean to join again."""
    owned: Owned = frozenset()


class Given(NamedTuple):
    """The assignment of a member in a generation."""

    generation: int
    owned: Owned


class ThreadedConsumer:
    """A consumer that a thread polls, processes and commits for, as long as the `with` block lasts.

    Args:
        make: Makes the consumer, on that thread.
        poll_ms: How long one poll may take. A consumer without our patches needs long ones: a join that finishes
            between two polls is lost on it.
        work_s: How long it works between two polls, whether there are records or not.
    """

    def __init__(self, make: Callable[[], KafkaConsumer], *, poll_ms: int = 200, work_s: float = 0.0) -> None:
        self.given: list[Given] = []
        self.processed: list[PartitionOffset] = []
        self.commits = True
        self._make = make
        self._poll_ms = poll_ms
        self._work_s = work_s
        self._tasks: SimpleQueue[Callable[[KafkaConsumer], None]] = SimpleQueue()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._consumer: KafkaConsumer | None = None
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a consumer that does not close"
        self.poll()

    def stop(self) -> None:
        """End the loop after the current poll; do not wait for that."""
        self._ended.set()

    @property
    def state(self) -> State:
        # Not kept after each poll, since one may take a long time.
        return State() if self._consumer is None else state_of(self._consumer)

    @property
    def id(self) -> str:
        return self.state.id

    def poll(self) -> None:
        """Raise the error that ended the thread, if any; the thread itself polls the consumer."""
        if self._error is not None:
            raise self._error

    def assignment(self) -> Owned:
        return self.state.owned

    def do(self, task: Callable[[KafkaConsumer], T]) -> T:
        """Run a task between two polls, on the consumer's thread, and return its result."""
        answer: Future[T] = Future()

        def run(consumer: KafkaConsumer) -> None:
            try:
                answer.set_result(task(consumer))
            except BaseException as error:  # noqa: BLE001 - raised again by result()
                answer.set_exception(error)

        def done() -> bool:
            self.poll()
            return answer.done()

        self._tasks.put(run)
        wait_until(done, "a service that does what it is told")
        return answer.result()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it from polling while the block lasts; its heartbeats go on."""
        begun, over = threading.Event(), threading.Event()

        def wait(_: KafkaConsumer) -> None:
            begun.set()
            over.wait(PATIENCE_S)

        self._tasks.put(wait)
        assert begun.wait(PATIENCE_S), "a service that does not hold"
        try:
            yield
        finally:
            over.set()

    def _run(self) -> None:
        try:
            with closing(self._make()) as consumer:
                self._consumer = consumer
                note_assignments(consumer, self.given.append)
                while not self._ended.wait(self._work_s):
                    self._work(consumer)
        except BaseException as error:  # noqa: BLE001 - raised again by poll(), on the test's thread
            self._error = error

    def _work(self, consumer: KafkaConsumer) -> None:
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()(consumer)
        read = process(consumer, self._poll_ms)
        self.processed.extend(read)
        if read and self.commits:
            commit(consumer)


class KillableConsumer:
    """A `RackAwareConsumer` in a process of its own, which can be killed. It polls, processes and commits.

    Args:
        bootstrap: Of the cluster.
        group: The group's name.
        topic: To subscribe to.
        rack: Where it stands.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, rack: str) -> None:
        self.state = State()
        self.given: list[Given] = []
        self.processed: list[PartitionOffset] = []
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
        self._process.join(PATIENCE_S)
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

    def _take(self, said: tuple[State, list[Given], list[PartitionOffset]]) -> None:
        self.state = said[0]
        self.given.extend(said[1])
        self.processed.extend(said[2])


def _live(pipe: Connection, bootstrap: str, group: str, topic: str, rack: str) -> None:
    config = {**CONSUMER, "session_timeout_ms": 2500}
    consumer = RackAwareConsumer(topic, bootstrap_servers=bootstrap, group_id=group, client_rack=rack, **config)
    noted: list[Given] = []
    note_assignments(consumer, noted.append)
    told = State()
    # Nothing is ever sent to it, so that what is there to read is the end: whoever started it is gone.
    while not pipe.poll():
        read = process(consumer, 200)
        state, news = state_of(consumer), noted.copy()
        if read or news or state != told:
            # Before it commits: what is committed nobody reads again.
            pipe.send((state, news, read))
            told = state
            del noted[: len(news)]
        if read:
            commit(consumer)


def note_assignments(consumer: KafkaConsumer, note: Callable[[Given], None]) -> None:
    """Record the assignment of each generation, with any assignors."""
    for assignor in consumer._coordinator._assignors.values():
        _note(assignor, note)


def _note(assignor: Any, note: Callable[[Given], None]) -> None:
    original = assignor.on_assignment

    def on_assignment(assignment: Any, generation: int) -> None:
        note(Given(generation, frozenset(TopicPartition(*place) for place in assignment.partitions())))
        original(assignment, generation)

    assignor.on_assignment = on_assignment


def process(consumer: KafkaConsumer, poll_ms: int) -> list[PartitionOffset]:
    """Poll once; return the records received, in order."""
    polled = consumer.poll(timeout_ms=poll_ms)
    return [(tp.partition, record.offset) for tp, records in polled.items() for record in records]


def commit(consumer: KafkaConsumer) -> None:
    # If a rebalance came between, whoever owns the partitions next processes these records again.
    with suppress(CommitFailedError, RebalanceInProgressError):
        consumer.commit()


def state_of(consumer: KafkaConsumer) -> State:
    group = consumer.group_metadata()
    return State(
        str(group.member_id),
        group.generation_id,
        group.state == "<stable>" and not consumer._coordinator.need_rejoin(),
        frozenset(TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment()),
    )
