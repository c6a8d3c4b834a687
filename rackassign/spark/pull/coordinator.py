"""The split coordinator: a small server on the driver from which executors request the next split to read.

Each request is a connection of its own: a line of JSON, with a line of JSON as the response. A request must begin with
the token of the query, and its length and time are limited (`server`). The token prevents other programs from taking
splits. It is not encrypted: an attacker who can read the traffic between driver and executors can do more harm with it.

A stream starts its batches in the process in which the coordinator runs. A batch query is planned in a process that
ends before the tasks run, and is submitted to a coordinator that exists longer (`SplitCoordinator`). The splits are
sent in several lines, because the length of a line is limited. Another line then starts the batch.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rackassign.errors import ConfigError, RackassignError
from rackassign.spark.pull.protocol import CoordinatorEndpoint, decode_split, encode_split
from rackassign.spark.pull.scheduler import SchedulingStats, SplitScheduler
from rackassign.spark.pull.server import listening
from rackassign.spark.splits import Split
from rackassign.util.redaction import Settings
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

_KEPT = 2
"""Batches of a stream: the current one and the one before, whose stages Spark may rerun until the next one starts."""

_KEPT_OFFERED = 256
"""Batches that were submitted: several may run at the same time, and a DataFrame may be read again."""

_MOST_SPLITS = 1_000_000
"""The highest number of splits in a batch that is submitted."""


class Coordinator:
    """A server that assigns the splits of batches to the tasks that request them. It listens until it is closed.

    Args:
        host: The address to listen on, which executors must be able to reach.
        port: The port to listen on; 0 for any free port.
        steal_after_s: Seconds that a task waits before it steals a split that is local to others.
        offers: Whether other processes with the token may submit batches.

    Raises:
        ConfigError: The address is not available, or executors cannot reach it.
    """

    def __init__(self, host: str, port: int = 0, *, steal_after_s: float = 0.0, offers: bool = False) -> None:
        self._steal_after_s = steal_after_s
        self._kept = _KEPT_OFFERED if offers else _KEPT
        self._drafts = _PendingBatches(self._kept) if offers else None
        self._token = secrets.token_urlsafe(24)
        self._deals: dict[int, SplitScheduler] = {}
        self._of: dict[int, Hashable] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._listener = listening(host, port, self._token, self._answer)

    def begin(
        self,
        splits: Sequence[Split],
        tasks: int,
        *,
        each: int = 0,
        steal_after_s: float | None = None,
        of: Hashable = None,
    ) -> CoordinatorEndpoint:
        """Start a batch and remove batches that are too old.

        Args:
            splits: The splits of the batch.
            tasks: The number of tasks that will request splits.
            each: The highest number of splits per task; 0 for no limit.
            steal_after_s: Seconds before a task of this batch steals; None for the value of the coordinator.
            of: A key of batches that are removed together. A query that reads a DataFrame more than once has one batch
                for each read. None for a batch that belongs to no others.
        """
        wait_s = self._steal_after_s if steal_after_s is None else steal_after_s
        with self._lock:
            slots = self._deals[self._next - 1].slots() if self._deals else {}
            deal = SplitScheduler(splits, tasks, each=each, slots=slots, steal_after_s=wait_s)
            batch, self._next = self._next, self._next + 1
            self._deals[batch] = deal
            self._of[batch] = batch if of is None else of
            living = set(list(dict.fromkeys(self._of.values()))[-self._kept :])
            for old in [number for number, whose in self._of.items() if whose not in living]:
                del self._deals[old], self._of[old]
        return self.endpoint(batch)

    def endpoint(self, batch: int = 0) -> CoordinatorEndpoint:
        """Return the endpoint of a batch, which need not have started."""
        return CoordinatorEndpoint(*self._listener.address, self._token, batch)

    def dealt(self) -> SchedulingStats:
        """Return how much of the last batch was assigned to tasks."""
        with self._lock:
            deal = self._deals.get(self._next - 1)
        return SchedulingStats() if deal is None else deal.dealt()

    def close(self) -> None:
        """Stop listening. Repeated calls have no effect."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        """Return the response to a request, which may be malformed."""
        try:
            asked = json.loads(line)
            token = asked["token"].encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {"error": "no question"}
        if not hmac.compare_digest(token, self._token.encode()):
            return {"error": "wrong token"}
        try:
            if self._drafts is not None and "offer" in asked:
                return self._drafts.heed(asked, self.begin)
            return self._deal(asked)
        except RackassignError as error:
            return {"error": str(error)}
        except (KeyError, TypeError, ValueError):
            return {"error": "no question"}

    def _deal(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        batch, task, number, rack = (asked[name] for name in ("batch", "task", "number", "rack"))
        with self._lock:
            deal = self._deals.get(batch) if type(batch) is int else None
        if deal is None:
            return {"error": f"batch {short_repr(batch)} is over"}
        if type(task) is not int or type(number) is not int or not (rack is None or isinstance(rack, str)):
            return {"error": "no question"}
        split = deal.answer(task, number, rack)
        return {"split": encode_split(split) if isinstance(split, Split) else split}


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
        self._dealing = Coordinator(address, port, offers=True)

    @property
    def options(self) -> dict[str, str]:
        """Options for `format("rackassign")`. They contain the token, which is redacted when they are printed."""
        desk = self._dealing.endpoint()
        return Settings({
            "rackBinding": "pull",
            "coordinatorHost": desk.host,
            "coordinatorPort": str(desk.port),
            "coordinatorToken": desk.token,
        })  # fmt: skip

    def dealt(self) -> SchedulingStats:
        """Return how much of the last batch was assigned to tasks, and how much of it is cross-rack."""
        return self._dealing.dealt()

    def close(self) -> None:
        """Stop listening. Repeated calls have no effect."""
        self._dealing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _PendingBatches:
    """Batches that are being submitted, line by line; a line may be sent again.

    Args:
        most: The highest number of batches to keep; the oldest one is removed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._splits: dict[str, list[Split]] = {}
        self._begun: dict[str, int] = {}
        self._lock = threading.Lock()

    def heed(self, asked: Mapping[str, Any], begin: Callable[..., CoordinatorEndpoint]) -> dict[str, Any]:
        """Add the splits of a line, or start the batch that consists of them.

        Args:
            asked: The request: `offer`, the name of the batch, with `splits` and `at`, the number of the first of them;
                or `offer` with `tasks`, `each` and `steal_after_s`.
            begin: The method `Coordinator.begin`.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has another type.
            ValueError: A field has an invalid value.
            RackassignError: The request cannot be fulfilled.
        """
        name = str(asked["offer"])
        with self._lock:
            if "splits" in asked:
                return self._take(name, int(asked["at"]), [decode_split(each) for each in asked["splits"]])
            if name not in self._begun:
                tasks, each, wait_s = int(asked["tasks"]), int(asked["each"]), float(asked["steal_after_s"])
                if name not in self._splits:
                    raise ConfigError("the offer was forgotten")
                desk = begin(self._splits[name], tasks, each=each, steal_after_s=wait_s)
                del self._splits[name]
                self._begun[name] = desk.batch
                self._forget(self._begun)
            return {"batch": self._begun[name]}

    def _take(self, name: str, at: int, more: list[Split]) -> dict[str, Any]:
        if name in self._begun:
            return {"have": 0}
        had = self._splits.setdefault(name, [])
        if not 0 <= at <= len(had) or at + len(more) > _MOST_SPLITS:
            raise ConfigError(f"at: expected {len(had)} of at most {_MOST_SPLITS}, got {at} and {len(more)} more")
        had[at:] = more
        self._forget(self._splits)
        return {"have": len(had)}

    def _forget(self, named: dict[str, Any]) -> None:
        while len(named) > self._most:
            del named[next(iter(named))]
