"""Consumer groups in tests: members in threads, a group that settles, and records that keep coming.

A group can have members of kafka-python, aiokafka and confluent-kafka. `GroupHarness.settle` waits until every member
has the partitions that the group coordinator assigned to it, and `Traffic` writes records meanwhile:

    with GroupHarness(cluster.client_config(), "g", {topic: 6}) as group, Traffic(cluster.client_config(), [topic]):
        for rack in "abc":
            group.add(rack, KafkaPythonMember(lambda rack=rack: RackAwareConsumer(topic, client_rack=rack, ...)))
        assert len(group.settle()["a"]) == 2

Every wait ends with a `TimeoutError` that states what was waited for. No wait decides by time alone: a member is asked
for its assignment and the coordinator for what it assigned, until the two agree.

Each member is created, polled and closed by a thread of its own. What runs is up to the function that creates the
consumer: a member changes nothing of it, and closes it as a service does, so that it leaves its group. An error of the
thread is raised in the test that looks at the member.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import CommitFailedError, CoordinatorNotAvailableError, KafkaError, RebalanceInProgressError

from rackassign.admin.admin_client import connected
from rackassign.admin.raw_requests import GroupCoordinators
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")

Owned = frozenset[TopicPartition]
"""Partitions that a member owns."""

TIMEOUT_S = 600.0
"""Default time limit of every wait: a guard against hanging, on a busy machine too."""

_BATCH = 500


class Record(NamedTuple):
    """A record that a member received."""

    tp: TopicPartition
    offset: int
    value: bytes | None


class GroupMember(Protocol):
    """What `settle` needs of a member of any client."""

    @property
    def id(self) -> str:
        """Member ID; empty before it has joined."""

    def poll(self) -> None:
        """Poll once unless the member polls by itself; raise the error that ended it."""

    def assignment(self) -> Owned:
        """Return the partitions that it owns."""


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float = TIMEOUT_S) -> None:
    """Call `condition` until it returns True.

    Args:
        condition: Called every 20 ms.
        what: What is waited for; it is part of the error message.
        timeout_s: Time limit in seconds.

    Raises:
        TimeoutError: It did not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.02)


class ThreadedMember(ABC):
    """A consumer that a thread creates, polls and closes, as long as the `with` block lasts.

    Attributes:
        consumer: The consumer; None before it was created.
        records: What was received, in this order.
    """

    def __init__(self) -> None:
        self.consumer: Any = None
        self.records: list[Record] = []
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_guarded, name="group member", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"a consumer did not close in {TIMEOUT_S:g} s")
        self.poll()

    def stop(self) -> None:
        """Close after the current poll. Does not wait for it."""
        self._stopping.set()

    def poll(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    @property
    def failed(self) -> bool:
        """Whether an error ended the thread."""
        return self._error is not None

    def take_error(self) -> BaseException | None:
        """Return the error that ended the thread, and do not raise it any more."""
        error, self._error = self._error, None
        return error

    @property
    @abstractmethod
    def id(self) -> str:
        """Member ID; empty before it has joined."""

    def assignment(self) -> Owned:
        """Return the partitions that it owns; empty before it has joined."""
        return Owned() if self.consumer is None else to_owned(self.consumer.assignment())

    @abstractmethod
    def _run(self) -> None:
        """Create the consumer, poll it until `_stopping` is set, and close it."""

    def _run_guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised again by poll(), in the thread of the test
            self._error = error


class _PolledMember(ThreadedMember):
    """A member with a blocking client: tasks run between two polls, on its thread."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: SimpleQueue[Callable[[Any], None]] = SimpleQueue()

    def do(self, task: Callable[[Any], T]) -> T:
        """Call `task` with the consumer between two polls, on the member's thread, and return its result."""
        result: Future[T] = Future()

        def run(consumer: object) -> None:
            try:
                result.set_result(task(consumer))
            except BaseException as error:  # noqa: BLE001 - raised again by result()
                result.set_exception(error)

        def done() -> bool:
            self.poll()
            return result.done()

        self._tasks.put(run)
        wait_until(done, "a task between two polls")
        return result.result()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the member from polling while the block lasts; its heartbeats go on."""
        begun, over = threading.Event(), threading.Event()

        def wait(_: object) -> None:
            begun.set()
            over.wait(TIMEOUT_S)

        self._tasks.put(wait)
        if not begun.wait(TIMEOUT_S):
            raise TimeoutError(f"a member did not pause in {TIMEOUT_S:g} s")
        try:
            yield
        finally:
            over.set()

    def _run_tasks(self, consumer: object) -> None:
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()(consumer)


class KafkaPythonMember(_PolledMember):
    """A consumer of kafka-python.

    Args:
        make: Creates the subscribed consumer. A plain `KafkaConsumer` should have gone through `rackassign.attach`:
            without patches it may miss the end of a join between two polls, and then stays out of its group for good.
        commit: Whether it commits after each poll that returned records. A commit that a rebalance prevents is skipped.
        poll_ms: Duration of a poll in milliseconds.
        pause_s: Time between two polls in seconds, as if records were processed.
    """

    def __init__(
        self, make: Callable[[], KafkaConsumer], *, commit: bool = False, poll_ms: int = 200, pause_s: float = 0.0
    ) -> None:
        super().__init__()
        self.commits = commit
        self._make = make
        self._poll_ms = poll_ms
        self._pause_s = pause_s

    @property
    def id(self) -> str:
        """Member ID; empty before it has joined."""
        return "" if self.consumer is None else str(self.consumer.group_metadata().member_id)

    def _run(self) -> None:
        with closing(self._make()) as consumer:
            self.consumer = consumer
            while not self._stopping.wait(self._pause_s):
                self._run_tasks(consumer)
                received = poll_records(consumer, self._poll_ms)
                self.records.extend(received)
                if received and self.commits:
                    commit_records(consumer)


class ConfluentMember(_PolledMember):
    """A consumer of confluent-kafka, its own or rackassign's.

    Args:
        make: Creates the subscribed consumer.
        poll_ms: Duration of a poll in milliseconds.
        ignore: Codes of errors that are no failure of the test.
    """

    def __init__(self, make: Callable[[], Any], *, poll_ms: int = 200, ignore: Iterable[int] = ()) -> None:
        super().__init__()
        self._make = make
        self._poll_s = poll_ms / 1000
        self._ignore = frozenset(ignore)
        # Member ID and partitions. They are asked for on the member's thread only: librdkafka's `memberid()` waits for
        # one of its own threads with Python's lock held, and never returns if that thread waits for a callback.
        self._seen = ("", Owned())

    @property
    def id(self) -> str:
        """Member ID as of the last poll; empty before it has joined."""
        return self._seen[0]

    def assignment(self) -> Owned:
        """Return the partitions that it owned after the last poll; empty before it has joined."""
        return self._seen[1]

    def _run(self) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

        with closing(self._make()) as consumer:
            self.consumer = consumer
            while not self._stopping.is_set():
                self._run_tasks(consumer)
                self._seen = (str(consumer.memberid() or ""), to_owned(consumer.assignment()))
                for message in consumer.consume(_BATCH, self._poll_s):
                    error = message.error()
                    if error is None:
                        tp = TopicPartition(message.topic(), message.partition())
                        self.records.append(Record(tp, message.offset(), message.value()))
                    elif error.code() not in self._ignore:
                        raise KafkaException(error)


class AiokafkaMember(ThreadedMember):
    """A consumer of aiokafka, on an event loop of its own.

    Args:
        make: Creates the subscribed consumer, on that loop; the harness starts and stops it.
        poll_ms: Duration of a poll in milliseconds.
    """

    def __init__(self, make: Callable[[], Any], *, poll_ms: int = 100) -> None:
        super().__init__()
        self._make = make
        self._poll_ms = poll_ms

    @property
    def id(self) -> str:
        """Member ID; empty before it has joined."""
        from rackassign.clients.aiokafka.internals import membership_of  # noqa: PLC0415 - an extra

        membership = None if self.consumer is None else membership_of(self.consumer)
        return "" if membership is None else membership.member_id()

    def do(self, task: Callable[[Any], Awaitable[T]]) -> T:
        """Await `task` of the started consumer on the member's loop, and return its result."""

        def started() -> bool:
            self.poll()
            return self.consumer is not None

        async def run() -> T:
            return await task(self.consumer)

        wait_until(started, "a started consumer")
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT_S)

    def _run(self) -> None:
        asyncio.run(self._poll_until_stopped())

    async def _poll_until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        consumer = self._make()
        try:
            await consumer.start()
            self.consumer = consumer
            while not self._stopping.is_set():
                polled = await consumer.getmany(timeout_ms=self._poll_ms)
                self.records.extend(_records_of(polled))
        finally:
            await consumer.stop()


def to_owned(partitions: Iterable[Any]) -> Owned:
    """Return any client's topic partitions as a set of `TopicPartition`."""
    return frozenset(TopicPartition(each.topic, each.partition) for each in partitions)


def poll_records(consumer: KafkaConsumer, poll_ms: int) -> list[Record]:
    """Poll a consumer of kafka-python once; return the records received, in order."""
    return _records_of(consumer.poll(timeout_ms=poll_ms))


def commit_records(consumer: KafkaConsumer) -> None:
    """Commit the positions of a consumer of kafka-python, unless a rebalance prevents it."""
    # Then the next owner of the partitions processes these records again.
    with suppress(CommitFailedError, RebalanceInProgressError):
        consumer.commit()


def _records_of(polled: Mapping[Any, Sequence[Any]]) -> list[Record]:
    return [
        Record(TopicPartition(tp.topic, tp.partition), record.offset, record.value)
        for tp, records in polled.items()
        for record in records
    ]


MemberT = TypeVar("MemberT", bound=GroupMember)


class GroupHarness(Generic[MemberT]):
    """Members of one group by name, as long as the `with` block lasts.

    Args:
        client_config: Connection arguments of a kafka-python client, such as `cluster.client_config()`.
        group: The group's name (`group.id`).
        topics: Number of partitions of each topic that the members subscribe to.

    Attributes:
        admin: An admin client of the cluster.
        members: Members that have been added and have not ended.
        client_config, group, topics: The arguments.
    """

    def __init__(self, client_config: Mapping[str, Any], group: str, topics: Mapping[str, int]) -> None:
        self.group = group
        self.members: dict[str, MemberT] = {}
        self.client_config = client_config
        self.topics = dict(topics)
        self._open: dict[str, ExitStack] = {}

    def __enter__(self) -> Self:
        self.admin = connected(KafkaAdminClient, self.client_config)
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self.admin), ExitStack() as members:
            for opened in self._open.values():
                members.push(opened)

    def renew_admin(self) -> None:
        """Replace the admin client: kafka-python's keeps asking the coordinator that it found first.

        That one may have ended. `settle` itself finds a coordinator that has moved.
        """
        self.admin.close()
        self.admin = connected(KafkaAdminClient, self.client_config)

    def add(self, name: str, member: Any) -> None:  # noqa: ANN401 - a MemberT that is a context manager
        """Start a member; it joins the group in its own time.

        Raises:
            ConfigError: There is a member with this name.
        """
        if name in self.members:
            raise ConfigError(f"there is a member {name!r} already: members of one rack need different names")
        opened = ExitStack()
        self.members[name] = opened.enter_context(member)
        self._open[name] = opened

    def end(self, name: str) -> None:
        """Close a member, and wait until it has left the group."""
        del self.members[name]
        self._open.pop(name).close()

    def settle(self) -> dict[str, Owned]:
        """Wait until every partition is owned exactly once, as the coordinator assigned it.

        Returns:
            The partitions of each member, by its name.

        Raises:
            TimeoutError: It did not happen in `TIMEOUT_S`.
        """
        owned = settle(self.admin, self.group, list(self.members.values()), self.topics)
        return dict(zip(self.members, owned, strict=True))


def settle(
    admin: KafkaAdminClient,
    group: str,
    members: Sequence[GroupMember],
    topics: Mapping[str, int],
    *,
    timeout_s: float = TIMEOUT_S,
) -> list[Owned]:
    """Wait until a group is stable, has exactly these members, and each owns what the coordinator assigned to it.

    Args:
        admin: Client that asks the coordinator.
        group: The group's name.
        members: All of its members.
        topics: Number of partitions of each topic; each of them must be owned exactly once.
        timeout_s: Time limit in seconds.

    Returns:
        The partitions of each member.

    Raises:
        TimeoutError: It did not happen in time; the message has what members own and what was assigned.
    """
    expected = sorted(TopicPartition(topic, p) for topic, count in topics.items() for p in range(count))
    owned: list[Owned] = []

    def look() -> bool:
        for member in members:
            member.poll()
        ids = [member.id for member in members]
        owned[:] = [member.assignment() for member in members]
        # The coordinator is asked last: before the first member has joined there may be none.
        whole = sorted(tp for tps in owned for tp in tps) == expected
        return whole and assigned(admin, group) == dict(zip(ids, owned, strict=True))

    try:
        wait_until(look, f"group {group} to settle", timeout_s=timeout_s)
    except TimeoutError as error:
        seen = [(member.id, sorted(member.assignment())) for member in members]
        raise TimeoutError(f"{error}; members own {seen}, the coordinator has {assigned(admin, group)}") from None
    return owned


def assigned(admin: KafkaAdminClient, group: str) -> dict[str, Owned] | None:
    """Return the partitions that the coordinator has for each member ID; None if the group is not stable."""
    try:
        described = admin.describe_groups([group])[group]
    except CoordinatorNotAvailableError:
        # The topic of offsets is being created, or none of its replicas for this group is online.
        return None
    if described.get("error"):
        # kafka-python's admin client asks the coordinator that it found first, for ever.
        GroupCoordinators(admin).forget(group)
    if described["group_state"] != "Stable":
        return None
    return {
        member["member_id"]: frozenset(
            TopicPartition(of_topic["topic"], partition)
            for of_topic in member["member_assignment"]["assigned_partitions"]
            for partition in of_topic["partitions"]
        )
        for member in described["members"]
    }


Acknowledged = Callable[[TopicPartition, int, int], None]
"""Called with a record's partition, its number and its offset, on the producer's thread."""


class Traffic:
    """Records to all partitions in turn, also to those that are added, until the `with` block ends.

    The value of a record is its number in its partition, in decimal digits.

    Args:
        client_config: Connection arguments of a kafka-python client.
        topics: Topics to write to.
        rate: Records per second.
        most_records: Number of records after which it stops, for a test that does not end.
        tolerant: Whether a failed producer is replaced by a new one. A record that is not acknowledged then may be in
            the topic or not. Otherwise `written` raises the error.
        on_acknowledged: Called for each acknowledged record.
    """

    def __init__(
        self,
        client_config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        rate: float = 200.0,
        most_records: int = 100_000,
        tolerant: bool = False,
        on_acknowledged: Acknowledged | None = None,
    ) -> None:
        self._client_config = client_config
        self._topics = topics
        self._interval_s = 1 / rate
        self._most = most_records
        self._tolerant = tolerant
        self._on_acknowledged = on_acknowledged
        self._counts = Counter[TopicPartition]()
        self._listed: set[TopicPartition] = set()
        self._written: set[tuple[TopicPartition, int]] = set()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"a producer did not close in {TIMEOUT_S:g} s")

    def wait_for_more(self, per_partition: int = 5) -> None:
        """Wait until so many more records have been acknowledged for each partition that is written to.

        Args:
            per_partition: Number of records for each partition; the sum over all partitions counts.
        """

        def begun() -> bool:
            self._raise()
            return bool(self._listed)

        # Before that the number of partitions is unknown.
        wait_until(begun, "partitions to write to")
        goal = len(self._written) + per_partition * len(self._listed)

        def enough() -> bool:
            self._raise()
            return len(self._written) >= goal

        wait_until(enough, "more acknowledged records")

    def written(self) -> set[tuple[TopicPartition, int]]:
        """Return the partition and the offset of all acknowledged records, once the block has ended."""
        self._raise()
        return set(self._written)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while self._counts.total() < self._most and not self._ended.is_set():
                # A producer that met a fatal error sends nothing more.
                with closing(KafkaProducer(**self._client_config, acks="all", metadata_max_age_ms=1000)) as producer:
                    try:
                        self._send(producer)
                        producer.flush(timeout=TIMEOUT_S)
                    except KafkaError:
                        if not self._tolerant:
                            raise
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the test
            self._error = error

    def _send(self, producer: KafkaProducer) -> None:
        while self._counts.total() < self._most:
            tps = [TopicPartition(topic, p) for topic in self._topics for p in sorted(producer.partitions_for(topic))]
            self._listed = {*tps}
            for tp in tps:
                if self._ended.wait(self._interval_s):
                    return
                number = self._counts[tp]
                self._counts[tp] += 1
                sent = producer.send(tp.topic, str(number).encode("ascii"), partition=tp.partition)
                sent.add_callback(partial(self._acknowledge, tp, number))
                if not self._tolerant:
                    sent.add_errback(self._fail)

    def _acknowledge(self, tp: TopicPartition, number: int, metadata: Any) -> None:  # noqa: ANN401 - of kafka-python
        self._written.add((tp, metadata.offset))
        if self._on_acknowledged is not None:
            self._on_acknowledged(tp, number, metadata.offset)

    def _fail(self, error: BaseException) -> None:
        self._error = error


__all__ = [
    "TIMEOUT_S",
    "AiokafkaMember",
    "ConfluentMember",
    "GroupHarness",
    "GroupMember",
    "KafkaPythonMember",
    "Owned",
    "Record",
    "ThreadedMember",
    "Traffic",
    "assigned",
    "commit_records",
    "poll_records",
    "settle",
    "to_owned",
    "wait_until",
]
