"""`StatefulConsumer`: it processes records with state that other members can take over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka.errors import KafkaError

from rackassign.clients.kafka_python import RackAwareConsumer, StandbyAwareAssignor
from rackassign.errors import ConfigError, KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful._active_tasks import (
    ActiveTasks,
    MembershipCheck,
    OnRestore,
    UserFunctionError,
)
from rackassign.stateful._changelog_client import ChangelogBatch, ChangelogClient, client_settings
from rackassign.stateful._changelog_topics import topic_ids
from rackassign.stateful._inputs import Inputs, Tasks, changelog_names
from rackassign.stateful._local_state import ElapsedTime, longest_left_s
from rackassign.stateful._output import check_output, check_output_topics
from rackassign.stateful._processing import Process, Punctuate, Work, check_process, check_punctuations, stored_state
from rackassign.stateful._snapshot import StateSnapshot
from rackassign.stateful._sqlite_file import StoreError
from rackassign.stateful._state_directory import StateDirectory
from rackassign.stateful._statistics import StateCounts, StateStatistics, TaskStatistics, publish
from rackassign.stateful._stores import AnyStore, State, stores_by_name
from rackassign.stateful._transactions import TransactionalProducer, TransactionCommits
from rackassign.strategies.standby import StandbyOptions
from rackassign.text import WarnOnce, short_repr, truncate
from rackassign.util.callbacks import check_function

if TYPE_CHECKING:
    from typing_extensions import Self


log = logging.getLogger(__name__)


_ENDS_S = 2.0


_ENDS_AGAIN_S = 20.0


_KEEP_S = 600.0


_RESTORING_MS = 50


_PARTS_S = 30.0
"""Longer than a rebalance in which one member gives up its parts of a task and another gets them."""


_DEFAULTS: Mapping[str, object] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
    "isolation_level": "read_committed",
}
"""Unless they are given. kafka-python has one request under way to each broker: while that waits for records of
partitions that are read to the end, a task that has just begun gets none of its own. As in Kafka Streams, what is
processed exactly once is read from those who write exactly once."""


_REGULAR = (UserFunctionError, RackassignError, KafkaError)
"""What a call raises by itself, with states and positions that agree."""


class _OneCall:
    """Refusal of a second call while one is running.

    A commit that fails discards the state of its task. If `process` made that call, the records of its batch would be
    processed on top of a state that no longer has the ones before them. And what `process` has written to the output
    would be in a commit that has no other effects of its record, and be written again with them.

    The handler of a signal may raise between any two lines, also what is no `KeyboardInterrupt`. Then it is not known
    which records the state has, or which of those that the client has returned were processed.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._running = ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if self._running:
            raise RackassignError(
                f"{name}() was called while {self._running}() is running: by process, another function of yours that"
                " it calls, or another thread"
            )
        try:
            try:
                self._running = name
                yield
            finally:
                self._running = ""
        except _REGULAR:
            raise
        except BaseException:
            # Releases all tasks, so that records are read again with the state of the files.
            self._release()
            raise
        finally:
            # Once more: the first one may have been interrupted.
            self._running = ""


@dataclass(frozen=True, slots=True)
class _Known:
    """Values that the assignor reads from another thread: replaced as a whole, never changed."""

    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class StatefulConsumer:
    """A group member that keeps state for what it reads, and standbys of other members' state (KIP-708).

    The state has the effects of each record exactly once, whichever member fails at any time: the state is what the
    changelog contains, together with the offset of the input. So has what `process` writes to `output`. All of it is
    committed in one transaction (KIP-447). Other effects of `process`, as calls, may happen twice.

    It may be used by one thread only, except for `state` and `statistics`. `process` must not keep a reference to the
    state.

    Args:
        *input_topics: Topics to read.
        process: Processes a record before it returns; it is no coroutine or generator function.
        state_dir: Directory of local files, for this member only. Existing files are reused.
        topics: Topics to read, in place of the positional ones.
        copartitioned: Whether the partitions of one number have one state and are assigned together, for joins. The
            topics need equal numbers of partitions.
        stores: Named stores that `process` uses.
        punctuate: Functions that are called at intervals.
        commit_interval_ms: Milliseconds between commits, in which all changes of a key are written as one.
        output: Topic that `process` writes to, or several. `process` and functions of `punctuate` get an `Output` as
            their third argument. Its records are visible once they are committed, to readers with
            `isolation_level="read_committed"`.
        transactional_id: Name of this member in brokers: no other has it, and it stays the same when the member is
            started again. By default it is made of the group and of an ID in `state_dir`.
        transaction_timeout_ms: Milliseconds after which brokers abort a transaction, 10,000 by default: for how long
            others wait for the partitions of a member that died in one. It has to be enough for what one record, or one
            function of `punctuate`, writes.
        client_tags: Location of this member, for the distribution of standbys (`zone`, `cluster`, ..).
        standbys: How standbys are placed.
        on_restore: Called with the progress of a restore.
        changelog: Return the changelog's name for a topic; `{group}-{topic}-changelog` by default. Co-partitioned
            topics have one changelog, and the function is called with the first of them in alphabetical order; by
            default its name contains all of them. Missing changelogs are created.
        client_rack: As for `RackAwareConsumer`.
        **config: As for `RackAwareConsumer`; `bootstrap_servers` and `group_id` are required. Settings of connections
            apply to the clients of the changelog as well.

    Raises:
        ConfigError: An option is invalid, a changelog does not match its topic, or a topic of `output` does not exist.
        KafkaUnavailableError: Kafka does not respond, or a permission is missing (`AuthorizationError`).
        StoreError: Another member uses the directory.
    """

    def __init__(
        self,
        *input_topics: str,
        process: Process,
        state_dir: str | Path,
        topics: Iterable[str] = (),
        copartitioned: bool = False,
        stores: Iterable[AnyStore] = (),
        punctuate: Iterable[Punctuate] = (),
        commit_interval_ms: int = 1000,
        output: str | Iterable[str] | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
        client_tags: Mapping[str, str] | None = None,
        standbys: StandbyOptions | None = None,
        on_restore: OnRestore | None = None,
        changelog: Callable[[str], str] | None = None,
        client_rack: str | None = None,
        **config: Any,  # noqa: ANN401 - as in kafka-python
    ) -> None:
        names = check_arguments(input_topics, topics, process, state_dir, config)
        check_commit_interval(commit_interval_ms)
        check_on_restore(on_restore)
        written = check_output(output, transactional_id, transaction_timeout_ms)
        settings = client_settings(config)
        self._group: str = config["group_id"]
        self._tasks = Tasks(names, copartitioned)
        self._work = Work(process, stores_by_name(stores), check_punctuations(punctuate))
        self._work.check_arguments(output=bool(written))
        self._known = _Known({}, {})
        self._unwanted: dict[TopicPartition, float] = {}
        self._parts: dict[TopicPartition, float] = {}
        self._looked = float("-inf")
        self._since_poll = ElapsedTime()
        self._once = WarnOnce(log)
        named = changelog or changelog_names(self._group, self._tasks)
        self._assignor = StandbyAwareAssignor(
            client_rack,
            client_tags=client_tags,
            standbys=standbys,
            positions=lambda: self._known.positions,
            ends=lambda: self._known.ends,
            changelog=named,
            copartition=[names] if copartitioned and len(names) > 1 else (),
        )
        with ExitStack() as begun:
            counts = self._counts = StateCounts()
            self._shelf = StateDirectory(Path(state_dir), counts)
            begun.callback(self._shelf.close)
            self._logs = ChangelogClient(named, self._tasks.sets, config, client_rack, counts)
            begun.callback(self._logs.close)
            check_output_topics(settings.admin, written, self._logs.names)
            self._shelf.deletes_ms, self._shelf.largest_bytes = self._logs.deletes_ms, self._logs.largest_bytes
            self._shelf.open_existing(self._logs.ids)
            self._consumer = RackAwareConsumer(
                client_rack=client_rack,
                enable_auto_commit=False,
                partition_assignment_strategy=[self._assignor],
                **{**_DEFAULTS, **config},
            )
            begun.callback(self._consumer.close)
            repeated = config.get("auto_offset_reset", "earliest") == "earliest"
            self._inputs = Inputs(
                self._consumer,
                self._tasks,
                repeated=repeated,
                once=self._once,
                topic_ids=partial(topic_ids, settings.admin),
            )
            identity = transactional_id or f"{self._group}-{self._shelf.member_id()}"
            producer = TransactionalProducer(settings.producer, identity, transaction_timeout_ms, once=self._once)
            begun.callback(producer.close)
            producer.wait_until_ready()
            transactions = TransactionCommits(
                *(producer, self._consumer, self._tasks, self._inputs, self._logs), topics=written, once=self._once
            )
            self._active = ActiveTasks(
                state_directory=self._shelf,
                logs=self._logs,
                inputs=self._inputs,
                check=MembershipCheck(self._consumer, self._once),
                assignor=self._assignor,
                work=self._work,
                commit_s=commit_interval_ms / 1000,
                on_restore=on_restore,
                transactions=transactions,
                once=self._once,
                counts=counts,
            )
            self._one_call = _OneCall(self._active.release_all)
            publish(self._consumer, self.statistics, counts, self._once)
            begun.callback(self._finish)
            self._publish()
            self._consumer.subscribe(list(names))
            # `close` closes these in the opposite order.
            self._begun = begun.pop_all()

    @property
    def consumer(self) -> RackAwareConsumer:
        """The consumer of the topics; do not poll it."""
        return self._consumer

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._group

    def statistics(self) -> StateStatistics:
        """Return how far the tasks are, and what was done so far; it may be called in any thread.

        The same is in `consumer.metrics()`, in the group `rackassign-state-metrics`.
        """
        known = self._known
        tasks = self._active.statistics(known.ends)
        active, standbys = {each.tp for each in tasks}, self._assignor.standbys
        for task, position in known.positions.items():
            if task in standbys and task not in active:
                tasks.append(TaskStatistics(task, "standby", max(0, known.ends.get(task, 0) - position)))
        return StateStatistics(tuple(sorted(tasks, key=lambda each: each.tp)), replace(self._counts))

    def active_partitions(self) -> frozenset[TopicPartition]:
        """Return the input partitions that this member processes, with their state restored."""
        return frozenset(tp for task in self._active.ready() for tp in self._tasks.inputs(task))

    def standby_partitions(self) -> frozenset[TopicPartition]:
        """Return the input partitions of this member's standbys."""
        return frozenset(tp for task in self._standbys() for tp in self._tasks.inputs(task))

    def _standbys(self) -> set[TopicPartition]:
        return set(self._assignor.standbys) - self._active.tasks()

    def store(self, tp: TopicPartition | tuple[str, int]) -> State:
        """Return the local state of an input partition, active or standby.

        Raises:
            StoreError: The partition has no local state.
        """
        task = self._tasks.of(TopicPartition(*tp))
        run, file = self._active.run(task), self._shelf.find(task)
        if run is not None:
            return run.state
        if file is None:
            raise StoreError(f"{task.topic}-{task.partition} has no local state")
        return stored_state(file, self._work.stores)

    def state(self, tp: TopicPartition | tuple[str, int]) -> StateSnapshot:
        """Return the local state of an input partition as of its last commit; it may be called in any thread.

        It is to be closed: `with consumer.state(tp) as state`.

        Args:
            tp: The partition, active or standby.

        Raises:
            StoreError: The partition has no local state, or it cannot be read.
        """
        return StateSnapshot(self._shelf.path(self._tasks.of(TopicPartition(*tp))), self._work.stores)

    def poll(self, timeout_ms: int = 500) -> int:
        """Read and process records, and update standbys; return the number of processed records.

        Changes are committed at intervals.

        Args:
            timeout_ms: How long to wait for records.

        Raises:
            Exception: Any error of `process`; the changes of that record are discarded, and it is processed again with
                one of the next polls. The other partitions continue.
            ConfigError: A changelog is of a format that is not read any more.
            AuthorizationError: A topic must not be written to any more.
            KafkaError: Brokers refuse a record of `output` for good, for example one without a key for a compacted
                topic.
            RackassignError: It is called by `process`, or in another thread at the same time.
        """
        try:
            with self._one_call("poll"):
                return self._polled(timeout_ms)
        except UserFunctionError as failed:
            error = failed.error
        # Not above, where `failed` would be its context.
        raise error

    def _polled(self, timeout_ms: int) -> int:
        self._reset_after_long_pause()
        restoring = self._active.restoring
        polled = self._consumer.poll(timeout_ms=self._active.wait_ms(timeout_ms))
        todo: dict[TopicPartition, Sequence[Any]] = {TopicPartition(*tp): batch for tp, batch in polled.items()}
        done = 0
        try:
            self._apply_assignment()
            self._inputs.received(todo)
            reading = self._active.reading()
            known = self._active.changelogs_are_known()
            if known:
                self._follow()
                self._take(self._logs.read(_RESTORING_MS if restoring else 0))
            if known and self._active.present():
                self._active.advance()
                if time.monotonic() - self._looked >= _ENDS_S:
                    self._looked = time.monotonic()
                    self._check_changelogs()
                done = self._active.process(todo, reading)
        finally:
            for tp, batch in todo.items():
                # After any error, records that were not reached, or not completed, are read again.
                self._active.interrupt(self._tasks.of(tp))
                self._inputs.rewind(tp, batch[0].offset)
            self._publish()
        return done

    def _reset_after_long_pause(self) -> None:
        """Discard the state after a pause so long that compaction may have removed deletions since."""
        if self._since_poll.seconds() > longest_left_s(self._logs.deletes_ms):
            self._active.release_all()
            self._shelf.expire()
        self._since_poll.restart()

    def commit(self) -> None:
        """Commit all changes so far, with the offsets of the input, without waiting for the end of the interval.

        If that fails, the records are processed again, as after any other failure of a commit.

        Raises:
            RackassignError: It is called by `process`, or in another thread while `poll` is running.
        """
        with self._one_call("commit"):
            if self._active.present():
                self._active.commit()

    def close(self) -> None:
        """Commit, leave the group and close everything; the files remain, so the next start need not restore them.

        Raises:
            RackassignError: It is called by `process`, or in another thread while `poll` is running.
        """
        with self._one_call("close"):
            self._begun.close()

    def _finish(self) -> None:
        """Commit what was processed; what cannot be committed is processed again by the next owner."""
        try:
            if self._active.present():
                self._active.commit()
        finally:
            self._active.release_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply_assignment(self) -> None:
        assigned = self._inputs.assigned()
        whole = self._tasks.whole(assigned)
        parts = {self._tasks.of(tp) for tp in assigned} - whole
        self._stop_parts(parts, assigned)
        self._grow(whole | parts | self._assignor.standbys)
        self._active.assign(whole)

    def _stop_parts(self, parts: set[TopicPartition], assigned: set[TopicPartition]) -> None:
        """Process nothing of tasks of which only some inputs are assigned; warn if that remains so."""
        now = time.monotonic()
        self._parts = {task: self._parts.get(task, now) for task in parts}
        for task, since in self._parts.items():
            self._inputs.stop(task)
            if now - since > _PARTS_S:
                missing = [tp for tp in self._tasks.inputs(task) if tp not in assigned]
                self._once.warn(
                    "part",
                    "%s are not assigned to this member, but other partitions of the same number are: nothing of them"
                    " is processed; all members need copartitioned=True and the same topics",
                    ", ".join(f"{tp.topic}-{tp.partition}" for tp in missing),
                )

    def _grow(self, tasks: set[TopicPartition]) -> None:
        """Extend changelogs if their topics have new partitions; those are not processed until that succeeds."""
        if all(map(self._logs.has, tasks)):
            return
        try:
            self._logs.grow()
        except (ConfigError, KafkaUnavailableError) as error:
            self._once.warn("grow", "new partitions are not processed yet: %s", error, about=str(error))

    def _follow(self) -> None:
        """Read the changelogs of standbys and restoring tasks; delete files no longer needed."""
        active = self._active.tasks()
        wanted = set(filter(self._logs.has, self._standbys())) | (active - self._active.ready())
        found = {task: self._shelf.available(task) for task in wanted}
        self._logs.assign({task: store.reads_from for task, store in found.items() if store is not None})
        now = time.monotonic()
        unwanted = self._shelf.tps() - wanted - active
        for task in unwanted:
            if now - self._unwanted.setdefault(task, now) > _KEEP_S:
                self._shelf.delete(task)
        self._unwanted = {task: since for task, since in self._unwanted.items() if task in unwanted}

    def _take(self, found: Mapping[TopicPartition, ChangelogBatch]) -> None:
        for task, read in found.items():
            store = self._shelf.available(task)
            if store is None:
                continue
            try:
                if read.start < store.reads_from:
                    # Reading began there, so the changelog was recreated: the state belongs to the old one.
                    log.warning("%s-%d: its changelog was recreated: discarding and rebuilding the local state", *task)
                    store.clear()
                elif (changes := store.verify(read.changes, read.end)) is None:
                    log.warning(
                        "%s-%d: its changelog does not have the last record that its local file was read up to (removed"
                        " by compaction, or lost in an unclean leader election): discarding and rebuilding the local"
                        " state",
                        *task,
                    )
                    store.clear()
                else:
                    last = changes[-1].offset if changes else None
                    store.apply({each.key: each.value for each in changes}, max(read.end, store.position), last)
            except StoreError as error:
                self._active.store_failed(task, error)

    def _check_changelogs(self) -> None:
        """Read the ends of changelogs."""
        try:
            bounds = self._logs.offset_range(self._logs.tps())
        except KafkaUnavailableError as error:
            # Nothing that is urgent waits for it, and it may have taken seconds.
            self._looked = time.monotonic() + _ENDS_AGAIN_S
            self._once.warn("ends", "%s", error, about=str(error))
            return
        self._known = _Known(self._known.positions, {task: end for task, (_, end) in bounds.items()})
        self._shelf.confirm(self._known.ends)

    def _publish(self) -> None:
        active = self._active.tasks()
        positions = {task: at for task, at in self._shelf.positions().items() if task not in active}
        self._known = _Known(positions, self._known.ends)


_RESETS = ("earliest", "latest")


_LONGEST_COMMIT_MS = 60_000


_WITHOUT_EFFECT = {
    "auto_commit_interval_ms": "use commit_interval_ms",
    "default_offset_commit_callback": "it commits offsets itself, and repeats a commit that fails",
    "consumer_timeout_ms": "it is not iterated over, and poll has timeout_ms",
}
"""Settings of `KafkaConsumer` for what this consumer does not do, with the reason."""


def check_arguments(
    positional: Sequence[str],
    topics: Iterable[str],
    process: Process,
    state_dir: str | Path,
    config: Mapping[str, Any],
) -> tuple[str, ...]:
    """Refuse invalid arguments; return the topics."""
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise ConfigError(f"topics must be a list of names, got {short_repr(topics)}")
    names = (*positional, *topics)
    if not names or not config.get("group_id"):
        raise ConfigError("topics and group_id are needed")
    for topic in names:
        if not isinstance(topic, str):
            raise ConfigError(f"topics must be names, one after the other, got {short_repr(topic)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"each topic can be given once, got {', '.join(map(truncate, names))}")
    check_process(process)
    if not isinstance(state_dir, (str, Path)):
        raise ConfigError(f"state_dir must be a path, got {short_repr(state_dir)}")
    if state_dir == "":
        raise ConfigError("state_dir is empty, which would be the directory in which the program was started")
    for name in ("enable_auto_commit", "partition_assignment_strategy"):
        if name in config:
            raise ConfigError(f"{name} is set by this consumer")
    for name, reason in _WITHOUT_EFFECT.items():
        if config.get(name) is not None:
            raise ConfigError(f"{name} has no effect in this consumer: {reason}")
    for name in ("key_deserializer", "value_deserializer"):
        # kafka-python (3.0.12) calls a deserializer that raises again and again, and poll() never returns.
        if config.get(name) is not None:
            raise ConfigError(f"{name} is not supported by this consumer: decode records in process")
    if config.get("auto_offset_reset", "earliest") not in _RESETS:
        raise ConfigError(
            f"auto_offset_reset must be earliest or latest, got {short_repr(config['auto_offset_reset'])}"
        )
    return names


def check_on_restore(on_restore: object) -> None:
    if on_restore is not None:
        check_function(on_restore, "on_restore", "partition", "read", "all")


def check_commit_interval(commit_interval_ms: object) -> None:
    if type(commit_interval_ms) is not int or not 0 <= commit_interval_ms <= _LONGEST_COMMIT_MS:
        raise ConfigError(
            f"commit_interval_ms must be an integer from 0 to {_LONGEST_COMMIT_MS},"
            f" got {short_repr(commit_interval_ms)}"
        )
