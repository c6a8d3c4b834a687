"""The processing of a task: its records in order, and functions that are due; all changes stay in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rackassign.stateful.files.rows import FIRST_EXPIRY
from rackassign.stateful.files.sqlite_file import StoreError
from rackassign.stateful.files.state_file import StateFile
from rackassign.stateful.stores.declaration import AnyStore
from rackassign.stateful.stores.keys import PROGRESS, expiry_of
from rackassign.stateful.stores.state import State
from rackassign.stateful.tasks.process_call import Process, check_arguments, check_returned
from rackassign.stateful.tasks.progress import Progress, read_progress
from rackassign.stateful.tasks.punctuation import Punctuate
from rackassign.stateful.transactions.output import OVERHEAD, Output, ProducerRecord
from rackassign.util.log_once import WarnOnce

_EXPIRED_AT_ONCE = 1000
_EXPIRED_PER_CHANGE = 2
"""With less than one, a task that sets more values in a poll than `_EXPIRED_AT_ONCE` would never catch up."""

_NEVER = 1 << 62

LATEST_MS = 7_258_118_400_000
"""The year 2200, in milliseconds since 1970: the latest stream time. One record with a later timestamp would expire all
values, and end functions of stream time for good. Microseconds are later from March 1970 on."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with the records of a task.

    Args:
        process: Called with each record.
        stores: Named stores.
        punctuate: Functions that are called at intervals.
    """

    process: Process
    stores: Mapping[str, AnyStore] = field(default_factory=dict)
    punctuate: tuple[Punctuate, ...] = ()

    def check_arguments(self, *, output: bool) -> None:
        """Refuse functions that cannot be called with what they are called with.

        Args:
            output: Whether they get an `Output`.

        Raises:
            ConfigError: One takes another number of arguments.
        """
        check_arguments(self.process, "process", "record", output=output)
        for each in self.punctuate:
            check_arguments(each.call, f"{each.name} of punctuate", "time", output=output)


class Processed(NamedTuple):
    """What was done.

    Args:
        records: Number of processed records.
        failure: The error of `process` at the record behind them, or of a function that was due; None if there is
            none.
    """

    records: int
    failure: Exception | None


class TaskRun:
    """A task whose state is restored.

    Args:
        store: Its local file.
        work: What is done with its records.
        once: Logs a warning once.
        output: What the functions of the user write to, as their third argument; None without transactions.

    Raises:
        StoreError: The local file cannot be read.
    """

    def __init__(self, store: StateFile, work: Work, once: WarnOnce, output: Output | None = None) -> None:
        self._store = store
        self._work = work
        self._once = once
        self._output = output
        self._extra = () if output is None else (output,)
        progress = read_progress(store, store.file.name)
        self._next = dict(progress.next)
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
        """The state, with all changes."""
        return self._state

    def next_offset(self, topic: str) -> int:
        """Return the offset of the next record of an input topic; 0 if none was processed."""
        return self._next.get(topic, 0)

    def offsets(self) -> dict[str, int]:
        """Return the offset of the next record of each input topic of which a record was processed."""
        return dict(self._next)

    def process(self, records: Iterable[Any], present: Callable[[], bool]) -> Processed | StoreError:
        """Process records up to the first that fails.

        Args:
            records: Records of kafka-python, in order.
            present: Returns whether this member may process a record now.

        Returns:
            The failure of the local file, if it has failed: whatever `process` has read may be wrong, also if it has
            caught the error.
        """
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
        return self._store.failure or Processed(count, failure)

    def call_due(self) -> StoreError | Processed:
        """Call the functions of wall-clock time that are due, and those of stream time that have failed."""
        failure = self._stream_functions() or self._functions("wall", _now_ms())
        return self._store.failure or Processed(0, failure)

    def take_commit(self) -> dict[bytes, bytes | None]:
        """Return the changes since the last commit, with the progress as the last one."""
        self.changed = False
        progress = Progress(self._next, self._time_ms, self._punctuated).encode()
        return {**self._store.take_commit(), PROGRESS: progress}

    def take_output(self) -> list[ProducerRecord]:
        """Return what was written to the output since the last commit."""
        return [] if self._output is None else self._output.take()

    @property
    def transaction_bytes(self) -> int:
        """Bytes of the records since the last commit, those of the output included, at most."""
        changes = self._store.uncommitted_bytes + OVERHEAD * self._store.uncommitted_keys
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
    """Return the state in a file of a task that is not processed here.

    Raises:
        StoreError: The local file cannot be read.
    """
    time_ms = read_progress(store, store.file.name).time_ms
    return State(store, stores, lambda: time_ms)
