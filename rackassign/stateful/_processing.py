"""The processing of a task: its records in order, and functions that are due; all changes stay in memory.

The user's `process` must have done its work when it returns. Functions are called at intervals of stream time or
wall-clock time (Kafka Streams' `Punctuator`). How far a task is, its progress, is part of its state.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from rackassign.errors import ConfigError, WireError
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._output import OVERHEAD, Output, ProducerRecord
from rackassign.stateful._sqlite_file import FIRST_EXPIRY, StoreError
from rackassign.stateful._stores import PROGRESS, AnyStore, State, StateSource, expiry_of
from rackassign.text import WarnOnce, short_repr
from rackassign.util.callbacks import deferred_function, takes

Process = Callable[[Any, State], None] | Callable[[Any, State, Output], None]
"""Called with a record of kafka-python and the state of its task, which it reads and changes. With transactions it is
also called with what it writes to."""

_INSTEAD = (
    "its body would never run, and its records would be committed: use a plain function (def, without yield);"
    " asyncio.run(..) in it runs a coroutine, list(..) a generator"
)


def check_process(process: object, name: str = "process") -> None:
    """Refuse what does not do its work when it is called."""
    if not callable(process):
        raise ConfigError(f"{name} must be a function of a record and a state, got {short_repr(process)}")
    kind = deferred_function(process)
    if kind is not None:
        raise ConfigError(f"{name} is {kind}: {_INSTEAD}")


def check_arguments(process: Callable[..., None], name: str, first: str, *, output: bool) -> None:
    """Refuse a function that cannot be called with what it is called with."""
    arguments = (first, "state", "output") if output else (first, "state")
    if not takes(process, *arguments):
        why = "with output=..," if output else "without output=..,"
        raise ConfigError(f"{why} {name} is called with {len(arguments)} arguments ({', '.join(arguments)})")


def check_returned(returned: object) -> None:
    """Refuse what `process`, or a function of `punctuate`, has returned if it has the work still to be done."""
    kind = _deferred_object(returned)
    if kind is not None:
        close = getattr(returned, "close", None)
        if inspect.iscoroutine(returned) and close is not None:
            # Otherwise Python warns that it was never awaited.
            close()
        raise ConfigError(f"process returned {kind}: {_INSTEAD}")


def _deferred_object(returned: object) -> str | None:
    if inspect.isgenerator(returned):
        return "a generator"
    if inspect.isasyncgen(returned):
        return "an asynchronous generator"
    if inspect.iscoroutine(returned):
        return "a coroutine"
    return f"an awaitable ({type(returned).__name__})" if inspect.isawaitable(returned) else None


Clock = Literal["stream", "wall"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)

_LEAST_S = 0.05
_LONGEST_S = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Punctuate:
    """A function that is called at intervals, for each active task.

    With stream time it is called behind the record whose timestamp reaches a multiple of the interval, with that
    multiple: the same calls happen whenever the input is read. With wall-clock time it is called in `poll`. Several
    intervals that pass at once cause one call. Its changes and the time of the call are in one commit, so a successor
    continues with the next interval.

    Args:
        call: Called with the time in milliseconds and the state of the task; with transactions, also with the output.
        interval_s: Seconds between calls.
        time: `stream` for timestamps of input records, `wall` for the clock of this machine.
        name: Name under which the last call is stored; the function's by default.

    Raises:
        ConfigError: An option is invalid.
    """

    call: Callable[[int, State], None] | Callable[[int, State, Output], None]
    interval_s: float
    time: Clock = "stream"
    name: str = ""

    def __post_init__(self) -> None:
        """Check the options."""
        check_process(self.call, "the function of punctuate")
        interval_s: object = self.interval_s
        number = isinstance(interval_s, (int, float)) and not isinstance(interval_s, bool)
        if not number or not _LEAST_S <= self.interval_s <= _LONGEST_S:
            raise ConfigError(
                f"interval_s of punctuate must be a number of seconds from {_LEAST_S} to {_LONGEST_S},"
                f" got {short_repr(interval_s)}"
            )
        if self.time not in CLOCKS:
            raise ConfigError(f"time of punctuate must be {' or '.join(CLOCKS)}, got {short_repr(self.time)}")
        if not isinstance(self.name, str):
            raise ConfigError(f"name of punctuate must be a string, got {short_repr(self.name)}")
        if not self.name:
            object.__setattr__(self, "name", getattr(self.call, "__name__", ""))
        if not self.name or self.name == "<lambda>":
            raise ConfigError("a function of punctuate without a name needs name=, under which its last call is stored")

    @property
    def interval_ms(self) -> int:
        """The interval in milliseconds."""
        return round(self.interval_s * 1000)

    def due(self, time_ms: int, last_ms: int | None) -> int | None:
        """Return the time to call it with; None if it is not due.

        Args:
            time_ms: The time now.
            last_ms: The time of the last call, or from which on intervals count; None at first.
        """
        if last_ms is None or time_ms - last_ms < self.interval_ms:
            return None
        return self.begin(time_ms)

    def begin(self, time_ms: int) -> int:
        """Return the time from which on the next interval counts."""
        return time_ms - time_ms % self.interval_ms if self.time == "stream" else time_ms


def check_punctuations(given: Iterable[Punctuate]) -> tuple[Punctuate, ...]:
    if isinstance(given, (str, Punctuate)) or not isinstance(given, Iterable):
        raise ConfigError(f"punctuate must be a list of Punctuate, got {short_repr(given)}")
    functions = tuple(given)
    for each in functions:
        if not isinstance(each, Punctuate):
            raise ConfigError(f"punctuate must be a list of Punctuate, got {short_repr(each)} in it")
    names = [each.name for each in functions]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two functions of punctuate have the name {short_repr(name)}: give one another name=")
    return functions


NO_TIME = -1


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a task."""

    # Offset of the next record of each input topic that has been read.
    next: Mapping[str, int] = field(default_factory=dict)
    # Stream time: the latest timestamp of its input records, in milliseconds; -1 before the first.
    time_ms: int = NO_TIME
    # When each function of `punctuate` was due last, in milliseconds of its clock.
    punctuated: Mapping[str, int] = field(default_factory=dict)
    # Topic ID of each input topic to which `next` belongs; none in a progress of before.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what may come from a changelog."""
        numbers: tuple[object, ...] = (self.next, self.punctuated)
        time_ms: object = self.time_ms
        if not all(isinstance(each, Mapping) and _are_numbers(each) for each in numbers) or type(time_ms) is not int:
            raise WireError(0, "the progress of a task consists of numbers")
        ids: object = self.topic_ids
        if not isinstance(ids, Mapping) or not all(isinstance(each, str) for each in ids.values()):
            raise WireError(0, "the topic IDs of a task are texts")

    def encode(self) -> bytes:
        fields = {"next": dict(self.next), "time": self.time_ms, "punctuated": dict(self.punctuated)}
        return json.dumps(fields | {"topic_ids": dict(self.topic_ids)}, sort_keys=True).encode()


def decode_progress(value: bytes | None) -> Progress:
    """Decode the progress of a task, which is empty if there is none."""
    if value is None:
        return Progress()
    try:
        fields = json.loads(value)
        return Progress(fields["next"], fields["time"], fields["punctuated"], fields.get("topic_ids", {}))
    except (ValueError, KeyError, TypeError):
        raise WireError(0, "the progress of a task cannot be decoded") from None


def read_progress(state: StateSource, name: str) -> Progress:
    try:
        return decode_progress(state.get(PROGRESS))
    except WireError as error:
        raise StoreError(f"{name}: {error}") from None


def _are_numbers(given: Mapping[object, object]) -> bool:
    return all(isinstance(name, str) and type(number) is int for name, number in given.items())


_EXPIRED_AT_ONCE = 1000
_EXPIRED_PER_CHANGE = 2
"""With less than one, a task that sets more values in a poll than `_EXPIRED_AT_ONCE` would never catch up."""

_NEVER = 1 << 62

LATEST_MS = 7_258_118_400_000
"""The year 2200, in milliseconds since 1970: the latest stream time. One record with a later timestamp would expire all
values, and end functions of stream time for good. Microseconds are later from March 1970 on."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with the records of a task."""

    process: Process
    stores: Mapping[str, AnyStore] = field(default_factory=dict)
    punctuate: tuple[Punctuate, ...] = ()

    def check_arguments(self, *, output: bool) -> None:
        check_arguments(self.process, "process", "record", output=output)
        for each in self.punctuate:
            check_arguments(each.call, f"{each.name} of punctuate", "time", output=output)


class Processed(NamedTuple):
    records: int
    # The error of `process` at the record behind them, or of a function that was due; None if there is none.
    failure: Exception | None


class TaskRun:
    """A task whose state is restored."""

    def __init__(self, store: StateFile, work: Work, once: WarnOnce, output: Output | None = None) -> None:
        self._store = store
        self._work = work
        self._once = once
        self._output = output
        self._extra = () if output is None else (output,)
        progress = read_progress(store, store.file.name)
        self._next = dict(progress.next)
        self._topic_ids = dict(progress.topic_ids)
        self._time_ms = progress.time_ms
        self._punctuated = dict(progress.punctuated)
        self._state = State(store, work.stores, lambda: self._time_ms)
        self._expiring = any(each.ttl_s is not None for each in work.stores.values())
        # All values that the file has up to this one are deleted or renewed, though maybe not yet in the file.
        self._swept = FIRST_EXPIRY
        self._changes_at_sweep = 0
        self._swept_at = store.position
        self._due_ms = self._next_due()
        self.changed = False
        """Whether anything was processed since the last commit."""

    @property
    def state(self) -> State:
        return self._state

    def next_offset(self, topic: str) -> int:
        """Return the offset of the next record of an input topic; 0 if none was processed."""
        return self._next.get(topic, 0)

    def is_another_topic(self, topic: str, topic_id: str) -> bool:
        """Return whether an input topic was deleted and made again since; its offsets count from 0 then."""
        known = self._topic_ids.get(topic, topic_id)
        self._topic_ids[topic] = topic_id
        if known == topic_id:
            return False
        self._next.pop(topic, None)
        self.changed = True
        return True

    def process(self, records: Iterable[Any], present: Callable[[], bool]) -> Processed | StoreError:
        """Process records, which are in order, up to the first that fails or for which this member is not present."""
        count = 0
        failure = self._sweep() or self._stream_functions()
        for record in records if failure is None else ():
            if not present():
                break
            if record.offset < self._next.get(record.topic, 0):
                self._skipped(record)
                continue
            former_ms = self._time_ms
            if record.timestamp > LATEST_MS:
                self._mistimed(record)
            elif record.timestamp > former_ms:
                self._time_ms = record.timestamp
            failure = self._attempt(self._work.process, record)
            if failure is not None:
                self._time_ms = former_ms
                self._locate(failure, f"process raised at {record.topic}-{record.partition}, offset {record.offset}")
                break
            self._next[record.topic] = record.offset + 1
            count += 1
            self.changed = True
            failure = self._stream_functions()
            if failure is not None:
                break
        # Whatever `process` has read from a file that has failed may be wrong, also if it has caught the error.
        return self._store.failure or Processed(count, failure)

    def call_due(self) -> StoreError | Processed:
        """Call the functions of wall-clock time that are due, and those of stream time that have failed."""
        failure = self._stream_functions() or self._functions("wall", _now_ms())
        return self._store.failure or Processed(0, failure)

    def take_commit(self) -> dict[bytes, bytes | None]:
        """Return the changes since the last commit, with the progress as the last one."""
        self.changed = False
        progress = Progress(self._next, self._time_ms, self._punctuated, self._topic_ids).encode()
        return {**self._store.uncommitted, PROGRESS: progress}

    def take_output(self) -> list[ProducerRecord]:
        return [] if self._output is None else self._output.take()

    @property
    def transaction_bytes(self) -> int:
        """Bytes of the records since the last commit, those of the output included, at most."""
        changes = self._store.uncommitted_bytes + OVERHEAD * len(self._store.uncommitted)
        return changes + (0 if self._output is None else self._output.size)

    def _attempt(self, call: Callable[..., None], given: Any) -> Exception | None:  # noqa: ANN401 - a record
        """Call a function of the user; return its error, after which nothing of it remains."""
        store, output = self._store, self._output
        try:
            store.begin()
            if output is not None:
                output.begin()
            # Typed as None, but users pass what they like.
            returned: Any = call(given, self._state, *self._extra)  # type: ignore[func-returns-value]
            if returned is not None:
                check_returned(returned)
        except Exception as error:  # noqa: BLE001 - the user's error; earlier records are kept
            return self._undo(error)
        try:
            store.commit_record()
        except StoreError as error:
            return self._undo(error)
        if output is not None:
            output.keep()
        # A failure of the file that the function has ignored.
        return store.failure

    def _undo(self, error: Exception) -> Exception:
        """Discard what a function of the user has done, and return its error."""
        self._store.rollback_record()
        if self._output is not None:
            self._output.drop()
        return error

    def _locate(self, failure: Exception, where: str) -> None:
        """Note where a function of the user has raised, in the error and, for Python 3.10, in the log."""
        if self._store.failure is not None:
            # The local file has failed, which is reported by itself.
            return
        if hasattr(failure, "add_note") and where not in getattr(failure, "__notes__", ()):
            failure.add_note(where)
        self._once.warn("raised", "%s: %s; it is tried again", where, repr(failure), about=where)

    def _skipped(self, record: Any) -> None:  # noqa: ANN401 - of kafka-python
        # The state already has the effects of this record, wherever it comes from.
        next_offset = self._next[record.topic]
        self._once.warn(
            "restarted",
            "%s-%d: its input restarts at %d, but its state has records up to %d: skipping records up to there;"
            " if the topic was recreated, delete its changelog as well",
            *(record.topic, record.partition, record.offset, next_offset - 1),
            about=(record.topic, record.partition),
        )

    def _mistimed(self, record: Any) -> None:  # noqa: ANN401 - of kafka-python
        # The limit is a fixed one. With the clock of the owner, the state would depend on when records are processed.
        self._once.warn(
            "mistimed",
            "%s-%d: record %d has the timestamp %d, which is after the year 2200 in milliseconds: stream time is not"
            " moved by it; does its producer write microseconds or nanoseconds?",
            *(record.topic, record.partition, record.offset, record.timestamp),
            about=(record.topic, record.partition),
        )

    def _stream_functions(self) -> Exception | None:
        """Call the functions of stream time that are due."""
        return self._functions("stream", self._time_ms) if self._time_ms >= self._due_ms else None

    def _functions(self, clock: str, now_ms: int) -> Exception | None:
        for each in self._work.punctuate:
            if each.time != clock:
                continue
            last_ms = self._punctuated.get(each.name)
            due_ms = each.due(now_ms, last_ms)
            if due_ms is not None:
                failure = self._attempt(each.call, due_ms)
                if failure is not None:
                    self._locate(failure, f"{each.name} of punctuate raised at {due_ms} in {self._store.file.name}")
                    return failure
                self._punctuated[each.name] = due_ms
                self.changed = True
            elif last_ms is None or last_ms > now_ms:
                # The first interval begins, or the clock was set back, or is another one than before.
                self._punctuated[each.name] = each.begin(now_ms)
                self.changed = True
        self._due_ms = self._next_due()
        return None

    def _next_due(self) -> int:
        """Return the stream time at which a function is due or its first interval begins."""
        return min(
            (
                last_ms + each.interval_ms
                if (last_ms := self._punctuated.get(each.name)) is not None and last_ms <= self._time_ms
                else 0
                for each in self._work.punctuate
                if each.time == "stream"
            ),
            default=_NEVER,
        )

    def _sweep(self) -> Exception | None:
        """Delete keys whose time is over; a limited number, so that records are not delayed."""
        if not self._expiring:
            return None
        now_ms, store = self._time_ms, self._store
        most = max(_EXPIRED_AT_ONCE, _EXPIRED_PER_CHANGE * (store.changes - self._changes_at_sweep))
        after = self._swept
        if store.position != self._swept_at:
            # Values that expire before others, of a store with a shorter time, may have come into the file after them.
            after = FIRST_EXPIRY
        swept_at, last = store.position, after

        def delete(*_: object) -> None:
            nonlocal last
            left = most
            for last in store.expired_keys(now_ms, most, after):
                value = store.get(last[1])
                if value is not None and expiry_of(value) <= now_ms:
                    store.change(last[1], None)
                    self.changed = True
                    left -= 1
                if not left:
                    break

        failure = self._attempt(delete, None)
        if failure is None:
            self._swept, self._swept_at = last, swept_at
        self._changes_at_sweep = store.changes
        return failure


def _now_ms() -> int:
    return int(time.time() * 1000)


def stored_state(store: StateFile, stores: Mapping[str, AnyStore]) -> State:
    """Return the state in a file of a task that is not processed here."""
    time_ms = read_progress(store, store.file.name).time_ms
    return State(store, stores, lambda: time_ms)
