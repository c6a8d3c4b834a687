"""Where executors ask which split to read: a small server on the driver, as old as its query.

Each question is a connection of its own: a line of JSON, answered by another. It must begin with the token of the
query, is short, and has little time (`listener`). The token keeps strangers from taking splits. It is not encrypted:
who can read the traffic between driver and executors can do worse.

The batches of a stream are begun where it listens. Those of batch queries are planned in a process that does not live
on, and are offered to one that does (`SplitCoordinator`): their splits in as many lines as it takes, for a line is
short, and then one that begins the batch.
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
"""Batches: the one that runs, and the one before, of which a stage may be run again until the next has begun."""

_KEPT_OFFERED = 256
"""Batches that were offered: several may run at once, and a frame may be read again."""

_MOST_SPLITS = 1_000_000
"""Of a batch that is offered."""


class Coordinator:
    """Deals out the splits of batches to tasks that ask; listens until it is closed.

    Args:
        host: The address to listen on, which executors can reach.
        port: The same; 0 for any.
        steal_after_s: So long a task waits before it takes what others can read at home.
        offers: Whether others who have the token may begin batches.

    Raises:
        ConfigError: It cannot listen there, or nobody could reach it.
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
        """Begin a batch; those that are too old are forgotten.

        Args:
            splits: What there is to read.
            tasks: How many will ask.
            each: At most so many splits to a task; 0 for no bound.
            steal_after_s: As of the coordinator, for this batch.
            of: Batches of the same are forgotten together: a query that reads a frame in several places has one for
                each. None: of nothing but itself.
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
        """Return where to ask for a batch, begun or to be."""
        return CoordinatorEndpoint(*self._listener.address, self._token, batch)

    def dealt(self) -> SchedulingStats:
        """Return how much of the last batch was dealt."""
        with self._lock:
            deal = self._deals.get(self._next - 1)
        return SchedulingStats() if deal is None else deal.dealt()

    def close(self) -> None:
        """Stop listening; may be called again."""
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        """Answer a question, whatever it is."""
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
    """Deals out the splits of all batch queries that are read with its options, until it is closed.

    What plans a batch query does not live as long as its tasks do, so the user holds what answers them:
    `with Coordinator(spark) as c: spark.read.format("rackassign").options(**c.options)...`; what reads must be run
    before the block ends. A stream has a coordinator of its own.

    Args:
        spark: Tells the address by which executors reach this process.
        host: The address, if it is another; has to be named with Spark Connect, where the driver is another process.
        port: The port to listen on; 0 for any.

    Raises:
        ConfigError: It cannot listen there, or nobody knows where.
    """

    def __init__(self, spark: SparkSession, host: str = "", port: int = 0) -> None:
        address = host or spark.conf.get("spark.driver.host", "")
        if not address:
            raise ConfigError("host: expected the address by which executors reach this process")
        self._dealing = Coordinator(address, port, offers=True)

    @property
    def options(self) -> dict[str, str]:
        """Options for `format("rackassign")`; they hold the token, which is not shown where they are printed."""
        desk = self._dealing.endpoint()
        return Settings({
            "rackBinding": "pull",
            "coordinatorHost": desk.host,
            "coordinatorPort": str(desk.port),
            "coordinatorToken": desk.token,
        })  # fmt: skip

    def dealt(self) -> SchedulingStats:
        """Return how much of the batch that was begun last was dealt, and how much of it across racks."""
        return self._dealing.dealt()

    def close(self) -> None:
        """Stop listening; may be called again."""
        self._dealing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _PendingBatches:
    """Batches that are being offered, line by line; the same line may come again.

    Args:
        most: How many are remembered; the oldest is forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._splits: dict[str, list[Split]] = {}
        self._begun: dict[str, int] = {}
        self._lock = threading.Lock()

    def heed(self, asked: Mapping[str, Any], begin: Callable[..., CoordinatorEndpoint]) -> dict[str, Any]:
        """Take the splits of a line, or begin the batch that they make.

        Args:
            asked: `offer`, its name, with `splits` and `at`, the number of the first of them; or with `tasks`, `each`
                and `steal_after_s`.
            begin: `Coordinator.begin`.

        Raises:
            KeyError: Something is missing; TypeError, ValueError: or is something else.
            RackassignError: It cannot be.
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
