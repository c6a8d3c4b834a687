"""Transactions: results, changes of state and input offsets of several tasks are committed together (KIP-98, KIP-447).

Theory of operation
-------------------
A transaction contains the results of a member, the changes of its tasks' states and the offsets of their input. It
begins when all of that is known, and ends before the call returns: nothing is added to it while records are processed.

Two things fence a former owner of a partition. The offsets are sent with the generation of the assignment, and the
coordinator of the group refuses them once there is another: then the transaction cannot be committed. They are sent
when everything else of the transaction is in the logs. So the records of a transaction that can still be committed
precede all that the next owner writes, and it reads up to there before it processes anything.

A producer with the same transactional ID, as that of the member when it is started again, aborts what the former one
has left open. If none starts, the broker does after the timeout; until then readers of committed records wait.

kafka-python (3.0.12) waits for the end of a transaction without a limit, and was seen to wait for ever after a broker
was killed. Nor can it continue after an aborted one: it sends the offsets of that again. So each step runs in a thread
of its own, for which the caller waits a limited time, and after any failure another producer begins.

A member that has the next assignment may still commit what it has processed before,
since the next owner of a revoked task gets it only after this member has rejoined (KIP-429).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from kafka import KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionTimeoutError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    ProducerFencedError,
    RecordListTooLargeError,
)

from rackassign.admin.admin_client import AuthorizationError, is_authorization_error
from rackassign.clients.kafka_python.internals.attributes import discard
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful._active_task import ActiveTask
from rackassign.stateful._changelog_client import WRONG_CLOCK, ChangelogClient, is_clock_error
from rackassign.stateful._inputs import Inputs, Tasks
from rackassign.stateful._output import Output, ProducerRecord
from rackassign.stateful._sqlite_file import StoreError
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

T = TypeVar("T")

TIMEOUT_MS = 10_000
"""Kafka Streams' transaction.timeout.ms: how long others wait for the partitions of a member that hangs."""

_REFUSED = (
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
)
"""Errors of records that would be refused the next time as well."""

_SPARE_S = 2.0
_BEGIN_S = 60.0
_LOOK_S = 0.05
_RETRY_S = 1.0


class TransactionalProducer:
    """Commits records and offsets together."""

    def __init__(
        self, settings: Mapping[str, Any], transactional_id: str, timeout_ms: int | None, once: WarnOnce
    ) -> None:
        self._timeout_ms = TIMEOUT_MS if timeout_ms is None else timeout_ms
        # After that the broker has aborted it, or is about to.
        self._limit_s = self._timeout_ms / 1000 + _SPARE_S
        self._settings = {
            **settings,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": self._timeout_ms,
            "max_block_ms": int(self._limit_s * 1000),
            "linger_ms": 2,
        }
        self._id = transactional_id
        self._once = once
        self._producer: Any = None
        self._starting: Future[Any] | None = None
        self._not_before = float("-inf")
        self._refused: KafkaError | None = None

    def wait_until_ready(self) -> None:
        until = time.monotonic() + _BEGIN_S
        while not self.is_ready():
            if isinstance(self._refused, AuthorizationError):
                raise self._refused
            if isinstance(self._refused, InvalidTransactionTimeoutError):
                raise ConfigError(self._refused.args[0])
            if time.monotonic() >= until:
                raise KafkaUnavailableError(
                    f"transactions of {self._id} cannot be begun: {self._refused or 'Kafka does not respond'};"
                    " are there as many brokers as transaction.state.log.replication.factor?"
                )
            time.sleep(_LOOK_S)

    def is_ready(self) -> bool:
        """Return whether a transaction can be committed; otherwise a producer is beginning, which takes a while."""
        if self._producer is not None:
            return True
        if self._starting is None:
            if time.monotonic() < self._not_before:
                return False
            self._starting = _in_thread(self._begun)
        if not self._starting.done():
            return False
        starting, self._starting = self._starting, None
        try:
            self._producer = starting.result()
        except KafkaError as error:
            self._refused = self._cause(error)
            self._not_before = time.monotonic() + _RETRY_S
            self._once.warn(
                "begin", "transactions of %s cannot be begun yet: %s", self._id, self._refused, about=str(self._refused)
            )
            return False
        self._refused = None
        return True

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the error by its cause, if it is one that the user can remove."""
        if is_authorization_error(error):
            return AuthorizationError("WRITE", f"transactional ID {self._id}")
        # kafka-python 3.0.12 raises it as a plain KafkaError with the name in its text.
        if InvalidTransactionTimeoutError.__name__ in f"{type(error).__name__}: {error}":
            return InvalidTransactionTimeoutError(
                f"transaction_timeout_ms of {self._timeout_ms} is more than brokers allow (transaction.max.timeout.ms)"
            )
        return error

    def _begun(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Return a producer that has aborted what an earlier one of this ID has left open."""
        producer = KafkaProducer(**self._settings)
        try:
            producer.init_transactions()
        except BaseException:
            discard(producer)
            raise
        return producer

    def partitions(self, topic: str) -> int:
        if self._producer is None:
            raise KafkaUnavailableError(f"the partitions of {topic} are not known yet")
        try:
            return len(self._producer.partitions_for(topic))
        except KafkaError as error:
            raise KafkaUnavailableError(f"the partitions of {topic} are not known: {error}") from None

    def commit(
        self,
        records: Sequence[ProducerRecord],
        offsets: Mapping[TopicPartition, int],
        membership: Any,  # noqa: ANN401
        check: Callable[[Sequence[int]], None],
    ) -> list[int]:
        """Write records and commit them together with input offsets; return the offsets of the records.

        `check` is called with those offsets before the transaction is committed. If it raises, nothing is.
        """
        # With no `offsets`, the coordinator of the group would not check the membership, which has the generation in
        # which the records were processed.
        try:
            return self._commit(records, offsets, membership, check)
        except _REFUSED as error:
            # The client's own error has neither the topic nor, mostly, any text.
            topics = ", ".join(sorted({record.topic for record in records}))
            why = f": {WRONG_CLOCK}" if is_clock_error(error) else ""
            raise type(error)(f"a record of the transaction of {self._id} for one of {topics}{why}") from error
        except (ProducerFencedError, InvalidProducerEpochError):
            self._once.warn(
                "fenced",
                "the transaction of %s was aborted by the broker: this process stood still for more than %d s, or"
                " another member has the same transactional_id; its records are processed again",
                *(self._id, self._timeout_ms // 1000),
            )
            raise KafkaUnavailableError(f"the broker has aborted the transaction of {self._id}") from None
        except KafkaError as error:
            if is_authorization_error(error):
                topics = ", ".join(sorted({record.topic for record in records}))
                raise AuthorizationError("WRITE", f"one of {topics}, or READ of the group") from None
            raise KafkaUnavailableError(f"the transaction of {self._id} cannot be committed: {error!r}") from None
        except FutureTimeoutError:
            raise KafkaUnavailableError(
                f"the transaction of {self._id}, with {len(records)} records, is not committed within"
                f" {self._limit_s:.0f} s; if that repeats, raise transaction_timeout_ms"
            ) from None

    def _commit(
        self,
        records: Sequence[ProducerRecord],
        offsets: Mapping[TopicPartition, int],
        membership: Any,  # noqa: ANN401
        check: Callable[[Sequence[int]], None],
    ) -> list[int]:
        producer = self._producer
        given = {KafkaPythonPartition(*tp): OffsetAndMetadata(offset, "", -1) for tp, offset in offsets.items()}

        def committed() -> list[int]:
            written = _written(producer, records, self._limit_s)
            check(written)
            producer.send_offsets_to_transaction(given, membership)
            producer.commit_transaction()
            return written

        try:
            return _in_thread(committed).result(self._limit_s)
        except BaseException:
            # After any failure, and if interrupted anywhere: the next producer aborts what is open.
            self._drop()
            raise

    def _drop(self) -> None:
        """Give the producer up; the next one begins at once, and aborts what it has left open."""
        producer, self._producer = self._producer, None
        self._starting = _in_thread(self._begun)
        _in_thread(lambda: discard(producer))

    def close(self) -> None:
        """Close the producer; a transaction that is open is aborted by the next one, or by the broker."""
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.add_done_callback(lambda found: None if found.exception() else discard(found.result()))
        if self._producer is not None:
            producer, self._producer = self._producer, None
            discard(producer)


def _written(producer: Any, records: Sequence[ProducerRecord], limit_s: float) -> list[int]:  # noqa: ANN401 - untyped
    """Begin a transaction and write records; return their offsets."""
    until = time.monotonic() + limit_s
    for topic, partition in {(record.topic, record.partition) for record in records if record.partition is not None}:
        # kafka-python (3.0.12) learns of new partitions after `metadata_max_age_ms`; the next producer knows them.
        if partition not in producer.partitions_for(topic):
            raise KafkaUnavailableError(f"{topic}-{partition} has no metadata yet")
    producer.begin_transaction()
    try:
        answers = [
            producer.send(
                record.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
    except KafkaError as error:
        # Once a record was refused, kafka-python takes no further one. Why is only an argument of the error.
        cause = error.args[-1] if error.args else None
        raise cause if isinstance(cause, KafkaError) else error from None
    # Not `flush`, which raises "Future not done" if a batch was too large and its records are sent again in smaller
    # ones. And kafka-python would commit a transaction of which a record was not written in time.
    return [answer.get(max(0.0, until - time.monotonic())).offset for answer in answers]


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Call a function in a thread that ends with the process, however long it takes."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, name="rackassign-transaction", daemon=True).start()
    return future


class _StaleGenerationError(RackassignError):
    """The membership of the consumer is not that of its last assignment, so others may own its tasks."""


class _LostRecordsError(RackassignError):
    """A changelog has lost records on which its task has built: its partition is in the argument."""

    def __init__(self, task: TopicPartition) -> None:
        super().__init__(f"{task.topic}-{task.partition}")
        self.task = task


class _Commit(NamedTuple):
    """The changes of a task, and where their records begin among those of the transaction."""

    active: ActiveTask
    changes: Mapping[bytes, bytes | None]
    begin: int


class TransactionCommits:
    """The transactions of a member, one at a time."""

    def __init__(
        self,
        producer: TransactionalProducer,
        consumer: Any,  # noqa: ANN401 - kafka-python is untyped
        tasks: Tasks,
        inputs: Inputs,
        logs: ChangelogClient,
        *,
        topics: Sequence[str],
        once: WarnOnce,
    ) -> None:
        self._producer = producer
        self._topics = topics
        self._consumer = consumer
        self._tasks = tasks
        self._inputs = inputs
        self._logs = logs
        self._once = once

    def is_ready(self) -> bool:
        """Return whether a transaction can be committed, and what was open before is aborted."""
        return self._producer.is_ready()

    def new_output(self) -> Output | None:
        """Return what the functions of one task write to; None without topics."""
        return Output(self._topics, self._producer.partitions) if self._topics else None

    def commit(self, tasks: Mapping[TopicPartition, ActiveTask], generation: int) -> bool:
        """Commit all that these tasks have processed; if that fails, their states have to be restored."""
        # Also after an error: what the changelogs have of it is not known.
        try:
            self._commit(tasks, generation)
        except _StaleGenerationError as error:
            log.info("%d tasks are released without their last transaction: %s", len(tasks), error)
        except _LostRecordsError as error:
            log.warning("%s: its changelog has lost records: discarding and rebuilding the local state", error)
            with suppress(StoreError):
                # The file keeps its failure, and is discarded before it is used again.
                tasks[error.task].store.clear()
        except AuthorizationError:
            # That does not pass by itself.
            raise
        except (KafkaUnavailableError, StoreError) as error:
            self._once.warn(
                "transaction", "a transaction failed, its records are processed again: %s", error, about=str(error)
            )
        else:
            return True
        return False

    def _commit(self, tasks: Mapping[TopicPartition, ActiveTask], generation: int) -> None:
        # Once it has lost its membership, kafka-python has none to send, and the coordinator would not check it.
        membership = self._consumer.group_metadata()
        if membership.generation_id != generation or not membership.member_id:
            raise _StaleGenerationError(f"generation {membership.generation_id} follows {generation}")
        if not self._producer.is_ready():
            raise KafkaUnavailableError("the next producer of transactions has not begun yet")
        offsets: dict[TopicPartition, int] = {}
        output: list[ProducerRecord] = []
        changes: list[ProducerRecord] = []
        commits: list[_Commit] = []
        for task, active in tasks.items():
            run = active.run
            if run is None:
                continue
            changed = run.take_commit()
            commits.append(_Commit(active, changed, len(changes)))
            changes += self._logs.encode(task, changed)
            output += run.take_output()
            offsets.update({tp: self._inputs.next_offset(tp, run) for tp in self._tasks.inputs(task)})

        def check(written: Sequence[int]) -> None:
            for each in commits:
                first, store = written[each.begin], each.active.store
                if first < store.position:
                    raise _LostRecordsError(each.active.tp)
                # A leader that stood still, and has not learned that it is none, may have answered with a former end.
                if first != store.reached:
                    name = f"{each.active.tp.topic}-{each.active.tp.partition}"
                    raise KafkaUnavailableError(f"{name}: its changelog has records that were not read")

        written = self._producer.commit(changes + output, offsets, membership, check)
        for each in commits:
            try:
                each.active.committed(each.changes, written[each.begin + len(each.changes) - 1] + 1)
            except StoreError as error:  # noqa: PERF203 - each file by itself
                # It is restored: the changelog has the commit.
                each.active.store.fail(error)
