"""The reader of a stream: the offsets of its batches, in the form in which checkpoints contain them.

With `commitGroup` the ends of completed batches are committed to a consumer group, so that lag monitors see the stream.
A stream continues from its checkpoint and never reads these offsets. So they are sent on a thread, only the newest ones
if Kafka is slow, and a failure is a warning.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark._batch_planner import Planner
from rackassign.spark._offsets import Offsets, from_json, recorded_start, to_json, with_start
from rackassign.spark._options import Options
from rackassign.spark._tasks import make_planner, pull_partitions, read_partition, split_partitions
from rackassign.text import describe_error

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rackassign.spark._metadata import KafkaMetadata
    from rackassign.spark._pull.coordinator import Coordinator


log = logging.getLogger(__name__)

_RETRY_S = 10.0
"""Seconds after a failure during which the same offsets are not sent again: an idle stream has them many times."""


class OffsetPublisher:
    """Sends offsets on a thread of its own, which starts with the first ones; `send` may raise anything."""

    def __init__(self, group: str, send: Callable[[Offsets], None]) -> None:
        self._group = group
        self._send = send
        self._changed = threading.Condition()
        self._pending: Offsets | None = None
        self._newest: Offsets | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._problem = ""
        self._retry_at: float | None = None

    def publish(self, offsets: Offsets) -> None:
        """Send these offsets in place of those that wait, unless they are equal and not due again; return at once."""
        # Offsets that could not be sent are due again after a while. A stream without new records has no others, and
        # its group would be behind for as long.
        with self._changed:
            due = self._retry_at is not None and time.monotonic() >= self._retry_at
            if self._closed or (offsets == self._newest and not due):
                return
            self._retry_at = None
            self._newest = dict(offsets)
            self._pending = dict(offsets)
            self._changed.notify()
            if self._thread is None:
                # A daemon thread does not delay the end of the process.
                self._thread = threading.Thread(target=self._run, name="rackassign-offsets", daemon=True)
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End the thread after it has sent the last offsets, or after so many seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._closed)
                offsets, self._pending = self._pending, None
            if offsets is None:
                return
            self._try(offsets)

    def _try(self, offsets: Offsets) -> None:
        try:
            self._send(offsets)
        except Exception as error:  # noqa: BLE001 - whatever it is, the query goes on
            problem = describe_error(error)
            # Once for each problem in a row: a batch may end every second.
            if problem != self._problem:
                log.warning("commitGroup: offsets of group %s are not committed: %s", self._group, problem)
            self._problem = problem
            with self._changed:
                self._retry_at = time.monotonic() + _RETRY_S
        else:
            self._problem = ""


_LAST_COMMIT_S = 5.0
"""Seconds that the end of a query waits for offsets that are being published."""


def supports_read_limits() -> bool:
    """Return whether this version of Spark passes the start and the limit of a batch to a source: 4.2 and later."""
    return hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")


def check_limit(options: Options) -> None:
    if options.limit is not None and not supports_read_limits():
        raise ConfigError(
            "maxOffsetsPerTrigger: not supported: Spark passes limits to Python data sources since version 4.2"
        )


class StreamReader(DataSourceStreamReader):
    # Spark creates one reader that plans and exists as long as the query, and others in the workers, of which it only
    # calls `read`. The planner is therefore created on first use.

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self._options = options
        self._names = names
        self._made_planner: Planner | None = None
        self._pull_coordinator: Coordinator | None = None
        self._publisher: OffsetPublisher | None = None
        self._committer: KafkaMetadata | None = None
        self._captured: dict[TopicPartition, int] | None = None
        self._newest: dict[TopicPartition, int] = {}
        self._initial: dict[str, Any] | None = None
        self._reached: dict[str, Any] | None = None
        """The start of the next batch, as far as it is known without Spark passing it."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the offsets at which a query without a checkpoint starts."""
        # Spark calls this more than once, and before version 4.2 after `latestOffset`. So the answer does not change,
        # and is not later than the end of the first batch.
        self._reached = self._start_of_new_query()
        return self._reached

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401, N802 - as Spark calls it; 4.0 and 4.1 without arguments
        passed = self._reached if start is None else start
        if passed is None:
            return self._first_end()
        self._take_newest()
        begins = from_json(passed)
        if start is not None:
            # All batches before it are complete. Spark asks for this also while there are no new records.
            self._publish(begins)
        ends = self._planner().next(begins, self._newest, getattr(limit, "max_rows", None))
        if passed == self._initial:
            return with_start(ends, begins)
        # Spark compares the JSON: what differs is a new batch, though an empty one.
        return passed if ends == begins else to_json(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._reached = end
        # Until the first batch is committed, Spark gets its start from `initialOffset`, at each start of the query.
        first = start == self._initial
        recorded = recorded_start(end) if first else None
        splits = self._planner().stream(
            from_json(start) if recorded is None else recorded,
            from_json(end),
            guessed=first and recorded is None,
        )
        if self._options.rack_binding != "pull" or not splits:
            return split_partitions(self._options, splits)
        # Spark requests the partitions of a batch once for each part of the query that reads it.
        key = json.dumps([start, end], sort_keys=True)
        coordinator = self._coordinator()
        return pull_partitions(
            self._options,
            splits,
            lambda tasks, limit: coordinator.begin(splits, tasks, max_splits_per_task=limit, key=key),
        )

    def _first_end(self) -> dict[str, Any]:
        """Return the end of a batch of which only `partitions` gets the start, before Spark 4.2."""
        # The query is new or was restarted. If it is new, its start must be known before its first end.
        try:
            start = self._start_of_new_query()
        except ConfigError as error:
            # For example startingOffsets without a partition that is new. A new query fails at its next call.
            log.debug("the start of a new query is not known: %s", error)
            self._take_newest()
            return to_json(self._newest)
        self._take_newest()
        return with_start(self._newest, from_json(start))

    def _start_of_new_query(self) -> dict[str, Any]:
        """Return where the query starts if it is a new one, always the same."""
        if self._initial is None:
            self._initial = to_json(self._planner().initial())
        return self._initial

    def _take_newest(self) -> None:
        """Request the latest offsets, unless the end of the stream was captured."""
        self._newest = self._planner().latest() if self._captured is None else self._captured

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_partition(self._options, partition, self._names)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish the end of a completed batch. Spark calls this when it begins the next one."""
        self._publish(from_json(end))

    def _publish(self, offsets: Offsets) -> None:
        """Publish offsets up to which all records were processed, if the user has asked for it."""
        if self._options.commit_group:
            if self._publisher is None:
                self._publisher = OffsetPublisher(self._options.commit_group, self._send_offsets)
            self._publisher.publish(offsets)

    def _send_offsets(self, offsets: Offsets) -> None:
        """Commit offsets to the group of the user; runs on the thread of the publisher."""
        if self._committer is None:
            from rackassign.spark._metadata import KafkaMetadata  # noqa: PLC0415 - executors do not need it

            # A client of its own: that of the planner is used by another thread.
            self._committer = KafkaMetadata(self._options.client)
        self._committer.commit(self._options.commit_group, offsets)

    def stop(self) -> None:
        """Close the coordinator of the query, and wait a moment for offsets that are published."""
        if self._publisher is not None:
            self._publisher.close(_LAST_COMMIT_S)
            self._publisher = None
        if self._pull_coordinator is not None:
            self._pull_coordinator.close()
            self._pull_coordinator = None

    def capture(self) -> None:
        """Take the current latest offsets as the end of the stream."""
        self._captured = self._planner().latest()

    def limit(self) -> int | None:
        """Return the highest number of offsets in a batch; None for no limit."""
        return self._options.limit

    def newest(self) -> dict[str, Any] | None:
        """Return the latest offsets at the time when the last batch was planned; None before the first one."""
        return to_json(self._newest) or None

    def _planner(self) -> Planner:
        if self._made_planner is None:
            self._made_planner = make_planner(self._options)
        return self._made_planner

    def _coordinator(self) -> Coordinator:
        if self._pull_coordinator is None:
            from rackassign.spark._pull.coordinator import Coordinator  # noqa: PLC0415 - most queries do not need it
            from rackassign.spark._pull.server import local_address_for  # noqa: PLC0415 - most queries do not need it

            host = self._options.coordinator_host or local_address_for(self._options.client["bootstrap.servers"])
            self._pull_coordinator = Coordinator(
                host, self._options.coordinator_port, steal_after_s=self._options.steal_after_s
            )
        return self._pull_coordinator

    def __getstate__(self) -> dict[str, Any]:
        # Clients and servers cannot be pickled, and a worker does not need them.
        return {**self.__dict__, **dict.fromkeys(("_made_planner", "_pull_coordinator", "_publisher", "_committer"))}


class FailingStreamReader(DataSourceStreamReader):
    """The reader of a stream whose options are invalid. Each method raises the error, whichever Spark calls first."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Raise ConfigError. A new query calls this method first."""
        raise ConfigError(self._problem)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401, ARG002, N802 - as Spark calls it
        """Raise ConfigError. A restarted query calls this method first."""
        raise ConfigError(self._problem)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002 - as Spark calls it
        """Raise ConfigError. A query that is restarted with an uncommitted batch calls this method first."""
        raise ConfigError(self._problem)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:  # noqa: ARG002 - as Spark calls it
        raise ConfigError(self._problem)


# The names behind limits exist since Spark 4.2.
if supports_read_limits():
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
        """A stream reader with limits for batches and support for `availableNow`."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as Spark calls it
            limit = self.limit()
            return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - as Spark calls it
            """Return the latest offsets when the last batch was planned, from which query progress computes the lag."""
            return self.newest()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
            """Limit the stream to the current latest offsets."""
            self.capture()


def stream_reader(options: Options, names: Sequence[str]) -> StreamReader:
    if not supports_read_limits():
        return StreamReader(options, names)
    return LimitedStreamReader(options, names)
