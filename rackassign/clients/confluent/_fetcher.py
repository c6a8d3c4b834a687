"""The fetching half of the consumer: a librdkafka consumer in no group, its callbacks, and its replacement.

Callbacks that librdkafka calls, such as `error_cb`, `stats_cb` and the logger, run when it has returned.

confluent-kafka 2.16.1 forgets the records that a call has taken if a callback raises within that call. With `consume()`
it does not free them either, and `close()` waits for them for ever. Not to let the callback raise is not enough: Python
runs the handler of a signal that came during the call (Ctrl-C) when it enters a function, which is that callback.

So librdkafka gets functions that are not written in Python and only note the call. The first exception of a callback is
kept, and raised by the next `poll()` or `consume()` that has no records to return.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from weakref import ref

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from rackassign.clients.confluent._stats_meter import StatsMeter
from rackassign.clients.confluent.internals import STATE, TIMED_OUT, UNKNOWN_PARTITION, kafka_exception
from rackassign.clients.fetch_metrics import ConsumerView, count_reads
from rackassign.clients.kafka_python.internals.group_member import CommittedOffset, Partitions
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.text import short_repr

log = logging.getLogger(__name__)

_NEXT, _END = "\0", "\0\n"
"""What `print` writes behind the arguments of a call; no string of librdkafka contains a NUL."""


class UserCallbacks:
    """The callbacks of one consumer, as librdkafka gets them; each has one argument, but for the logger's."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        # Weak: clients are replaced, and with the last one that has a function its calls are gone.
        self._noted: list[tuple[Callable[[Any], object], ref[deque[Any]]]] = []

    @property
    def failed(self) -> bool:
        """Whether an exception waits to be raised."""
        return self._error is not None

    def guard_all(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.guard(value) if callable(value) else value for name, value in properties.items()}

    def guard(self, callback: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return a function that never raises and makes `run` call the callback."""
        calls: deque[Any] = deque()
        self._noted = [each for each in self._noted if each[1]() is not None]
        self._noted.append((callback, ref(calls)))
        return calls.append

    def guard_logger(self, logger: Any) -> Any:  # noqa: ANN401 - as confluent-kafka's
        """Return a logger that never raises and makes `run` log its messages.

        `log` has several arguments, and `print` is the function that takes any number and is not written in Python.
        """
        if not callable(getattr(logger, "log", None)):
            raise ConfigError(f"logger: expected a logger, got {short_repr(logger)}")
        write = self.guard(_Messages(logger))
        return SimpleNamespace(log=partial(print, sep=_NEXT, end=_END, file=SimpleNamespace(write=write)))

    def run(self) -> None:
        """Call the callbacks that were called meanwhile; keep their exceptions."""
        for callback, noted in self._noted:
            calls = noted()
            while calls:
                self._call(callback, calls.popleft())

    def _call(self, callback: Callable[[Any], object], argument: object) -> None:
        try:
            callback(argument)
        except BaseException as error:
            if self._error is None:
                self._error = error
            else:
                log.warning("a callback failed again before its first exception could be raised", exc_info=True)

    def raise_error(self) -> None:
        """Call the callbacks, and raise the exception that waits, if there is one."""
        self.run()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def log_error(self) -> None:
        """Call the callbacks, and log what waits: the consumer is closed, and nothing is left to raise it."""
        self.run()
        error, self._error = self._error, None
        if error is not None:
            log.warning("a callback failed while its consumer was closed", exc_info=error)


class _Messages:
    """Logs messages of librdkafka, which come in the pieces that `print` has written."""

    def __init__(self, logger: Any) -> None:  # noqa: ANN401 - as confluent-kafka's
        self._logger = logger
        self._pieces: list[str] = []

    def __call__(self, piece: str) -> None:
        """Take one piece, and log the message if it was the last one."""
        if piece == _END:
            (level, *text), self._pieces = self._pieces, []
            self._logger.log(int(level), *text)
        elif piece != _NEXT:
            self._pieces.append(piece)


EndOffsets = Callable[[Partitions], Mapping[TopicPartition, int]]
"""Returns the end offsets of partitions, as far as they are known."""

_COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors after which another broker is the coordinator of the group soon, or the same one can answer."""

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0
_PAUSE_S = 0.2

_SAME_CLIENT = 2
"""Waits after which a client that does not find the coordinator is not asked any more."""


class PartitionFetcher:
    """Reads assigned partitions from given offsets.

    A partition that is taken waits until its initial offset is known. librdkafka returns no records of a partition that
    was unassigned, even if it has fetched them already.
    """

    def __init__(
        self,
        make: Callable[[], confluent_kafka.Consumer],
        start: int,
        make_other: Callable[[], confluent_kafka.Consumer],
    ) -> None:
        # Partitions of the first consumer are changed only here; the second has equal properties and reads nothing.
        self._make, self._make_other = make, make_other
        self.consumer = make()
        # Initial position of a partition without committed offset.
        self._start = start
        self.held: Partitions = frozenset()
        """All partitions that were taken and not dropped."""
        self.waiting: Partitions = frozenset()
        """Those of them that are not being read yet."""
        self._begins: dict[TopicPartition, ConfluentPartition] = {}
        self._begun: dict[TopicPartition, ConfluentPartition] = {}
        self._resumed: dict[TopicPartition, ConfluentPartition] = {}
        """Positions of partitions that were begun again, for as long as librdkafka knows none of them."""
        self._paused: set[TopicPartition] = set()
        self.revision = 0
        """Changes whenever partitions are begun, sought or dropped."""

    def take(self, tps: Partitions) -> None:
        """Take partitions; they wait until `begin`."""
        self.waiting |= tps - self.held
        self.held |= tps

    def unknown(self) -> Partitions:
        """Return the waiting partitions whose committed offset is needed."""
        return self.waiting - set(self._begins)

    def committed(self, partitions: Sequence[ConfluentPartition], timeout_s: float) -> list[ConfluentPartition]:
        """Return the committed offsets of partitions, whichever broker becomes the group's coordinator meanwhile.

        librdkafka 2.16.1 has three gaps when the coordinator moves. `rd_kafka_committed` returns the error of a broker
        that has just stopped being the coordinator. It waits for a change of any connection after it has learnt that
        there is none: if a coordinator was found in between, it waits until connections are closed for being idle,
        which is ten minutes by default. And a client was seen to find no coordinator for ten minutes, in any call,
        though all brokers were up. So it is asked several times, with longer waits, and then another client, which
        knows no coordinator yet.
        """
        asked = list(partitions)
        until = math.inf if timeout_s < 0 else time.monotonic() + timeout_s
        wait, waits = _FIRST_WAIT_S, 0
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                return self._ask_committed(asked, min(wait, left), other=waits >= _SAME_CLIENT)
            except KafkaException as error:
                code = error.args[0].code()
                pause = _PAUSE_S if code in _COORDINATOR_MOVES else 0.0
                if not pause and code != TIMED_OUT:
                    raise
                if time.monotonic() + pause >= until:
                    raise
                waits += code == TIMED_OUT
            time.sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def _ask_committed(
        self, partitions: list[ConfluentPartition], wait_s: float, *, other: bool
    ) -> list[ConfluentPartition]:
        if not other:
            return list(self.consumer.committed(partitions, timeout=wait_s))
        with closing(self._make_other()) as client:
            return list(client.committed(partitions, timeout=wait_s))

    def begin(
        self,
        committed: Mapping[TopicPartition, CommittedOffset] | None,
        ends: EndOffsets = lambda _: {},
    ) -> None:
        """Read all waiting partitions, from the offsets set for them, or from committed offsets."""
        # Partitions that need committed offsets keep waiting while these are unknown.
        tps = self.waiting if committed is not None else self.waiting.intersection(self._begins)
        begins = {tp: self._begins.get(tp) or _begin(tp, committed or {}, self._start) for tp in sorted(tps)}
        known = _with_ends(begins, ends)
        if known:
            self._read(known)
        # Only now: the handler of a signal may have raised before, and a partition must not be forgotten.
        self.waiting -= tps
        for tp in tps:
            self._begins.pop(tp, None)

    def _read(self, known: Mapping[TopicPartition, ConfluentPartition]) -> None:
        self.revision += 1
        self._begun.update(known)
        begins = list(known.values())
        try:
            self.consumer.incremental_assign(begins)
        except KafkaException:
            # A call that the handler of a signal has ended may have assigned them, or not unassigned them.
            assigned = [each for each in self.consumer.assignment() if to_topic_partition(each) in known]
            if not assigned:
                raise
            self.consumer.incremental_unassign(assigned)
            self.consumer.incremental_assign(begins)
        paused = [begin for begin in begins if to_topic_partition(begin) in self._paused]
        if paused:
            self.consumer.pause(paused)
        # librdkafka keeps a pause beyond the assignment it was made in.
        self.consumer.resume([begin for begin in begins if to_topic_partition(begin) not in self._paused])

    def reading(self) -> Partitions:
        return self.held - self.waiting - self._paused

    def recreate(self) -> None:
        """Replace the consumer of librdkafka; all partitions wait, to be continued at their positions."""
        fresh = self._make()
        self._suspend_all()
        old, self.consumer = self.consumer, fresh
        old.close()

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        self.revision += 1
        dropped = self.held.intersection(tps)
        read = dropped - self.waiting
        self.held -= dropped
        self.waiting -= dropped
        self._paused -= dropped
        for tp in dropped:
            self._begins.pop(tp, None)
            self._begun.pop(tp, None)
            self._resumed.pop(tp, None)
        if read:
            self._let_go(read)

    def _suspend_all(self) -> None:
        """Make partitions wait that are being read, to begin at their position or initial offset."""
        self._resume_at(self.positions(self.held - self.waiting))
        known = self.next_offsets()
        self._begins |= known
        self.waiting |= frozenset(known)

    def _let_go(self, tps: Partitions) -> None:
        try:
            self.consumer.incremental_unassign([ConfluentPartition(*tp) for tp in sorted(tps)])
        except KafkaException as error:
            # Whatever the error is, only owned partitions may be read. Those are restarted at their positions.
            log.warning("librdkafka cannot unassign some partitions, and is assigned all others again: %s", error)
            self._suspend_all()
            self.consumer.unassign()

    def positions(self, tps: Iterable[TopicPartition]) -> list[ConfluentPartition]:
        """Return the next offset of each partition with delivered records since it was taken or sought."""
        held = self.held.intersection(tps)
        asked = [ConfluentPartition(*tp) for tp in sorted(held - self.waiting)]
        # A copy, since commits and `position()` may come from other threads than the polling one.
        known = {tp: resumed for tp, resumed in list(self._resumed.items()) if tp in held}
        for position in self.consumer.position(asked) if asked else ():
            if position.offset >= 0:
                known[to_topic_partition(position)] = position
        return [known[tp] for tp in sorted(known)]

    def _resume_at(self, positions: Iterable[ConfluentPartition]) -> None:
        self._resumed |= {to_topic_partition(each): each for each in positions if each.offset >= 0}

    def next_offsets(self) -> dict[TopicPartition, ConfluentPartition]:
        """Return where each partition that is being read continues: at its position or initial offset."""
        read = self.held - self.waiting
        known = {to_topic_partition(position): position for position in self.positions(read)}
        return {tp: known.get(tp, self._begun[tp]) for tp in read}

    def put_back(self, offsets: Mapping[TopicPartition, ConfluentPartition]) -> Partitions:
        """Begin partitions again that have moved beyond these offsets, and return them."""
        now = {to_topic_partition(position): position.offset for position in self.positions(offsets)}
        moved = frozenset(tp for tp, offset in now.items() if offset != offsets[tp].offset)
        if moved:
            again = {tp: offsets[tp] for tp in sorted(moved)}
            self._resume_at(again.values())
            self._begin_again(again)
        return moved

    def begin_at(self, partition: ConfluentPartition) -> None:
        """Set the initial offset of a waiting partition; it may be a logical offset of librdkafka."""
        if to_topic_partition(partition) in self.waiting and partition.offset != confluent_kafka.OFFSET_INVALID:
            self._begins[to_topic_partition(partition)] = partition
            self._resumed.pop(to_topic_partition(partition), None)

    def seek(self, partition: ConfluentPartition, ends: EndOffsets = lambda _: {}) -> None:
        """Continue a partition at its offset, which may be a logical one."""
        tp = self._checked(partition)
        if tp in self.waiting:
            self.begin_at(partition)
            return
        [partition] = _with_ends({tp: partition}, ends).values()
        self._resumed.pop(tp, None)
        self.revision += 1
        try:
            self.consumer.seek(partition)
            self._begun[tp] = partition
        except KafkaException as error:
            if error.args[0].code() != STATE:
                raise
            # librdkafka cannot seek in a partition that is only about to begin.
            self._begin_again({tp: partition})

    def _begin_again(self, begins: Mapping[TopicPartition, ConfluentPartition]) -> None:
        # Whatever ends this, they wait to be begun.
        self.revision += 1
        self._begins |= begins
        self.waiting |= frozenset(begins)
        self.consumer.incremental_unassign([ConfluentPartition(*tp) for tp in sorted(begins)])
        self.begin(None)

    def pause(self, partitions: Iterable[ConfluentPartition]) -> None:
        """Deliver no records of these partitions until they are resumed; pause none if one is not owned."""
        tps = {self._checked(partition) for partition in partitions}
        self._paused |= tps
        self.consumer.pause([ConfluentPartition(*tp) for tp in sorted(tps - self.waiting)])

    def resume(self, partitions: Iterable[ConfluentPartition]) -> None:
        """Resume delivery of these partitions; of none if one is not owned."""
        tps = {self._checked(partition) for partition in partitions}
        self._paused -= tps
        self.consumer.resume([ConfluentPartition(*tp) for tp in sorted(tps - self.waiting)])

    def _checked(self, partition: ConfluentPartition) -> TopicPartition:
        tp = to_topic_partition(partition)
        if tp not in self.held:
            raise kafka_exception(UNKNOWN_PARTITION, f"{tp.topic}-{tp.partition} is not assigned")
        return tp


def to_topic_partition(partition: ConfluentPartition) -> TopicPartition:
    if not isinstance(partition, ConfluentPartition):
        raise TypeError(f"expected a confluent_kafka.TopicPartition, got {short_repr(partition)}")
    return TopicPartition(partition.topic, partition.partition)


def leader_epoch(partition: ConfluentPartition) -> int:
    epoch: int | None = partition.leader_epoch
    return -1 if epoch is None else epoch


def make_offset(
    tp: TopicPartition, offset: int, leader_epoch: int | None, metadata: str | None = None
) -> ConfluentPartition:
    """Return a partition with an offset; with the leader epoch of the record before it, and metadata, if there are any.

    confluent-kafka takes None for neither of them, and neither can be set later.
    """
    more: dict[str, Any] = {}
    if leader_epoch is not None and leader_epoch >= 0:
        more["leader_epoch"] = leader_epoch
    if metadata:
        more["metadata"] = metadata
    return ConfluentPartition(tp.topic, tp.partition, offset, **more)


def _begin(tp: TopicPartition, committed: Mapping[TopicPartition, CommittedOffset], start: int) -> ConfluentPartition:
    known = committed.get(tp)
    return ConfluentPartition(*tp, start) if known is None else make_offset(tp, known.offset, known.leader_epoch)


def _with_ends(
    begins: Mapping[TopicPartition, ConfluentPartition], ends: EndOffsets
) -> dict[TopicPartition, ConfluentPartition]:
    """Return initial offsets with numbers for ends: with another consumer of librdkafka "the end" is another one."""
    at_end = frozenset(tp for tp, begin in begins.items() if begin.offset == confluent_kafka.OFFSET_END)
    found = ends(at_end) if at_end else {}
    return {**begins, **{tp: ConfluentPartition(*tp, end) for tp, end in found.items() if tp in at_end and end >= 0}}


def consumer_view(
    meter: StatsMeter, reader: PartitionFetcher, racks: BrokerRackCache, group: str | None
) -> ConsumerView:
    """Return how a consumer is read; what this returns must not refer to it."""

    def assigned_locality(_: object) -> Locality:
        return count_reads(meter.locality(), map(meter.broker_of, reader.held), racks.rack_of)

    return ConsumerView(group, meter.locality, assigned_locality, attrgetter("_closed"))


class ConsumerFactory:
    """Creates consumers with equal properties, one after the other; only the newest one's statistics count."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        logger: Any,  # noqa: ANN401 - as confluent-kafka's
        callbacks: UserCallbacks,
        meter: StatsMeter,
        listeners: Sequence[Callable[[str], object]],
    ) -> None:
        # confluent-kafka takes a logger from both places.
        chosen = properties.get("logger") if logger is None else logger
        self._properties = callbacks.guard_all({name: value for name, value in properties.items() if name != "logger"})
        self._callbacks = callbacks
        self._more = {} if chosen is None else {"logger": callbacks.guard_logger(chosen)}
        self._meter = meter
        self._listeners: tuple[Callable[[str], object], ...] = (meter, *listeners)
        self._made = 0

    def __call__(self) -> confluent_kafka.Consumer:
        number = self._made + 1

        def see(statistics: str) -> None:
            # A closed consumer may emit statistics once more.
            if number == self._made:
                for listener in self._listeners:
                    listener(statistics)

        made = confluent_kafka.Consumer({**self._properties, "stats_cb": self._callbacks.guard(see)}, **self._more)
        self._made = number
        self._meter.reset()
        return made

    def without_statistics(self) -> confluent_kafka.Consumer:
        """Create a consumer beside the others, whose statistics do not count."""
        return confluent_kafka.Consumer({**self._properties, "statistics.interval.ms": 0}, **self._more)
