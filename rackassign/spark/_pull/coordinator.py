"""The split coordinator: a small server on the driver from which executors request the next splits to read.

Each request is a connection of its own: a line of JSON, with a line of JSON as the response (`protocol`). A request
must begin with the token of the query, and its length and time are limited (`server`). The token prevents other
programs from taking splits. It is not encrypted: an attacker who can read the traffic between driver and executors can
do more harm with it.

A stream starts its batches in the process in which the coordinator runs. A batch query is planned in a process that
ends before the tasks run, and is submitted to a coordinator that exists longer (`SplitCoordinator`). The splits are
sent in several lines, because the length of a line is limited. Another line then starts the batch.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeVar

from rackassign.errors import ConfigError, RackassignError
from rackassign.spark._pull.protocol import (
    CoordinatorEndpoint,
    ErrorResponse,
    Response,
    SplitRequest,
    SplitResponse,
    StartBatchRequest,
    StartBatchResponse,
    SubmitSplitsRequest,
    SubmitSplitsResponse,
    encode,
    parse_request,
    unknown_batch,
)
from rackassign.spark._pull.scheduler import SchedulingStats, SplitScheduler
from rackassign.spark._pull.server import listen
from rackassign.spark._splits import MOST_SPLITS, Split
from rackassign.strategies import load
from rackassign.text import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self


_RETAINED = 2
"""Batches of a stream: the current one and the one before, whose stages Spark may rerun until the next one starts."""

_RETAINED_SUBMITTED = 256
"""Batches that were submitted: several may run at the same time, and a DataFrame may be read again."""

_Value = TypeVar("_Value")


class Coordinator:
    """A server that assigns the splits of batches to the tasks that request them. It listens until it is closed."""

    def __init__(self, host: str, port: int = 0, *, steal_after_s: float = 0.0, accept_batches: bool = False) -> None:
        # `accept_batches`: whether other processes with the token may submit batches.
        self._steal_after_s = steal_after_s
        self._retained = _RETAINED_SUBMITTED if accept_batches else _RETAINED
        self._accept_batches = accept_batches
        self._pending = _PendingBatches(_RETAINED_SUBMITTED)
        self._token = secrets.token_urlsafe(24)
        self._schedulers: dict[int, SplitScheduler] = {}
        self._keys: dict[int, Hashable] = {}
        self._next = 0
        self._lock = threading.Lock()
        # Not in a request: on a busy machine the import takes longer than a task waits for a response.
        load("sticky")
        self._listener = listen(host, port, self._token, self._answer)

    def begin(
        self,
        splits: Sequence[Split],
        tasks: int,
        *,
        max_splits_per_task: int = 0,
        steal_after_s: float | None = None,
        key: Hashable = None,
    ) -> CoordinatorEndpoint:
        """Start a batch and remove batches that are too old."""
        # Batches with the same key are removed together: a query that reads a DataFrame more than once has one batch
        # for each read. With None for `steal_after_s`, tasks of this batch wait as long as those of others.
        wait_s = self._steal_after_s if steal_after_s is None else steal_after_s
        with self._lock:
            slots = self._schedulers[self._next - 1].slots() if self._schedulers else {}
        # Not under the lock: it plans, and requests of other batches would wait.
        scheduler = SplitScheduler(
            splits, tasks, max_splits_per_task=max_splits_per_task, slots=slots, steal_after_s=wait_s
        )
        with self._lock:
            batch, self._next = self._next, self._next + 1
            self._schedulers[batch] = scheduler
            self._keys[batch] = batch if key is None else key
            retained = set(list(dict.fromkeys(self._keys.values()))[-self._retained :])
            for old in [number for number, each in self._keys.items() if each not in retained]:
                del self._schedulers[old], self._keys[old]
        return self.endpoint(batch)

    def endpoint(self, batch: int = 0) -> CoordinatorEndpoint:
        """Return the endpoint of a batch, which need not have started."""
        return CoordinatorEndpoint(*self._listener.address, self._token, batch)

    def stats(self) -> SchedulingStats:
        with self._lock:
            scheduler = self._schedulers.get(self._next - 1)
        return SchedulingStats() if scheduler is None else scheduler.stats()

    def close(self) -> None:
        """Stop listening. Repeated calls have no effect."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, line: bytes) -> bytes:
        """Return the line that responds to a line, which may be malformed."""
        try:
            return encode(self._respond(line))
        except RackassignError as error:
            return encode(ErrorResponse(str(error)))

    def _respond(self, line: bytes) -> Response:
        request = parse_request(line, self._token, accept_batches=self._accept_batches)
        if isinstance(request, SplitRequest):
            return SplitResponse(self._scheduler(request.batch).next_splits(request.task, request.number, request.rack))
        if isinstance(request, SubmitSplitsRequest):
            return self._pending.add(request)
        return self._pending.start(request, self.begin)

    def _scheduler(self, batch: int) -> SplitScheduler:
        with self._lock:
            scheduler = self._schedulers.get(batch)
        if scheduler is None:
            raise unknown_batch(batch)
        return scheduler


class SplitCoordinator:
    """A coordinator for all batch queries that are read with its options, until it is closed.

    The process that plans a batch query ends before its tasks do, so the user creates the coordinator:
    `with Coordinator(spark) as c: spark.read.format("rackassign").options(**c.options)...`. All actions that read must
    run before the block ends. A stream has a coordinator of its own.

    Args:
        spark: The session, whose configuration contains the address by which executors reach this process.
        host: The address, if it is another one. Required with Spark Connect, where the driver is another process.
        port: The port to listen on; 0 for any free port.

    Raises:
        ConfigError: The address is not available or not known.
    """

    def __init__(self, spark: SparkSession, host: str = "", port: int = 0) -> None:
        address = host or spark.conf.get("spark.driver.host", "")
        if not address:
            raise ConfigError("host: expected the address by which executors reach this process")
        self._coordinator = Coordinator(address, port, accept_batches=True)

    @property
    def options(self) -> dict[str, str]:
        """Options for `format("rackassign")`. They contain the token, which is redacted when they are printed."""
        endpoint = self._coordinator.endpoint()
        return Settings({
            "rackBinding": "pull",
            "coordinatorHost": endpoint.host,
            "coordinatorPort": str(endpoint.port),
            "coordinatorToken": endpoint.token,
        })  # fmt: skip

    def stats(self) -> SchedulingStats:
        """Return how much of the last batch was assigned to tasks, and how much of it is cross-rack."""
        return self._coordinator.stats()

    def close(self) -> None:
        """Stop listening. Repeated calls have no effect."""
        self._coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _StartBatch(Protocol):
    """The method `Coordinator.begin`."""

    def __call__(
        self, splits: Sequence[Split], tasks: int, *, max_splits_per_task: int, steal_after_s: float | None
    ) -> CoordinatorEndpoint: ...


class _PendingBatches:
    """Batches that are being submitted, line by line; a line may be sent again. Beyond a limit the oldest one goes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._splits: dict[str, list[Split]] = {}
        self._started: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, request: SubmitSplitsRequest) -> SubmitSplitsResponse:
        first, added = request.first, request.splits
        with self._lock:
            if request.submission not in self._started:
                splits = self._splits.setdefault(request.submission, [])
                if not 0 <= first <= len(splits) or first + len(added) > MOST_SPLITS:
                    raise ConfigError(
                        f"at: expected at most {len(splits)}, and at most {MOST_SPLITS} splits, "
                        f"got {first} and {len(added)} more splits"
                    )
                # What is there already came with the same line before, which may arrive again after later ones.
                splits += added[len(splits) - first :]
                self._remove_oldest(self._splits)
            return SubmitSplitsResponse(first + len(added))

    def start(self, request: StartBatchRequest, begin: _StartBatch) -> StartBatchResponse:
        """Start a batch with the splits that were added to it, unless it has started already."""
        name = request.submission
        with self._lock:
            if name not in self._started:
                if name not in self._splits:
                    raise ConfigError("the splits of this batch were removed or never submitted; submit them again")
                splits = self._splits[name]
                if len(splits) != request.splits:
                    raise ConfigError(
                        f"count: expected the number of submitted splits, {len(splits)}, got {request.splits}"
                    )
                endpoint = begin(
                    splits,
                    request.tasks,
                    max_splits_per_task=request.max_splits_per_task,
                    steal_after_s=request.steal_after_s,
                )
                del self._splits[name]
                self._started[name] = endpoint.batch
                self._remove_oldest(self._started)
            return StartBatchResponse(self._started[name])

    def _remove_oldest(self, batches: dict[str, _Value]) -> None:
        while len(batches) > self._limit:
            del batches[next(iter(batches))]
