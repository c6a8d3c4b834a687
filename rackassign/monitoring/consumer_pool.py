"""The consumers of a process whose figures are exported, summed up by group; which library exports them is open.

Theory of operation
-------------------
A counter that sinks is taken for a reset, and a series that occurs twice for an error. So the consumers of a group are
one set of series, and their bytes are summed up. What a closed consumer has read stays part of the sum while another
consumer of its group is open. With the last one all series of the group go. Partitions are a gauge, and only open
consumers have any.

No client library reports that a consumer was closed, so that is checked whenever the figures are read, and when a
consumer is added. A pool does not keep a consumer alive. It keeps the meter of an attached consumer until the next
check, so that a consumer that was closed and released between two scrapes is counted completely.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rackassign.clients.fetch_metrics import FetchLocality, view_of
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.monitoring.metric_labels import RackPair
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)


class Metered(Protocol):
    """A consumer that meters its fetches."""

    def locality(self) -> FetchLocality:
        """Return the bytes fetched so far."""


@dataclass(frozen=True, slots=True)
class ConsumerTotals:
    """Figures of consumers, summed up by group.

    Args:
        read: Bytes read, by group and pair of racks.
        owned: Partitions by locality, by group.
    """

    read: Mapping[tuple[str, RackPair], float]
    owned: Mapping[str, Locality]


class ConsumerPool:
    """The consumers that are exported together, and the sums of those that were closed.

    It may be used from any thread.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open: list[OpenConsumer] = []
        self._finished: dict[str, dict[RackPair, int]] = {}
        """What closed consumers have read, by group; only of groups with an open consumer."""

    def add(self, consumer: Metered, group: str | None, owner: object) -> None:
        """Add a consumer until it is closed or garbage-collected; a second time has no effect.

        Args:
            consumer: The consumer.
            group: Its group; None for that of its configuration.
            owner: What exports it, to which the pool keeps a weak reference.

        Raises:
            ConfigError: It meters nothing, or its group is not known.
        """
        self._add(OpenConsumer(consumer, _group_of(consumer, group), owner))

    def take_over(self, other: ConsumerPool) -> None:
        """Add the consumers of another pool."""
        with self.lock:
            for each in other._open:
                if each.consumer() is not None:
                    self._add(each)

    def _add(self, added: OpenConsumer) -> None:
        with self.lock:
            self.remove_closed()
            if all(known.consumer() is not added.consumer() for known in self._open):
                self._open.append(added)

    def totals(self, owners: Collection[object]) -> ConsumerTotals:
        """Return the current figures of the consumers of some owners."""
        read: dict[tuple[str, RackPair], float] = {}
        owned: dict[str, Locality] = {}
        with self.lock:
            self.remove_closed()
            exported = [each for each in self._open if each.owner() in owners]
            readable = {each.group for each in exported if each.read()}
            for each in exported:
                # A consumer that cannot be read now keeps its last share: without it the sum of the others would sink.
                if each.group in readable:
                    _add(read, each.group, each.last)
            for group in readable:
                _add(read, group, self._finished.get(group, {}))
            for each in exported:
                counted = each.assigned_locality()
                if counted is not None:
                    owned[each.group] = owned.get(each.group, Locality(0, 0, 0)) + counted
        return ConsumerTotals(read, owned)

    def remove_closed(self) -> None:
        """Move what closed consumers have read to the finished sums, and forget groups without open consumers."""
        still: list[OpenConsumer] = []
        for each in self._open:
            if each.owner() is None:
                continue
            if not each.is_closed():
                still.append(each)
                continue
            each.read()
            sums = self._finished.setdefault(each.group, {})
            for pair, size in each.last.items():
                sums[pair] = sums.get(pair, 0) + size
        self._open = still
        groups = {each.group for each in still}
        self._finished = {group: sums for group, sums in self._finished.items() if group in groups}


def _group_of(consumer: Metered, group: str | None) -> str:
    if not callable(getattr(consumer, "locality", None)):
        raise ConfigError(f"{type(consumer).__name__} counts nothing: give a RackAwareConsumer, or attach() first")
    if group is not None:
        return group
    view = view_of(consumer)
    known = getattr(consumer, "config", {}).get("group_id") if view is None else view.group
    if not isinstance(known, str):
        raise ConfigError("group: not known of this consumer, so it must be given")
    return known


def _add(read: dict[tuple[str, RackPair], float], group: str, sizes: Mapping[RackPair, int]) -> None:
    for pair, size in sizes.items():
        read[group, pair] = read.get((group, pair), 0.0) + size


class OpenConsumer:
    """A consumer that is exported; used under the lock of its pool.

    Args:
        consumer: The consumer, to which it keeps a weak reference.
        group: Its group.
        owner: What exports it, likewise.

    Attributes:
        last: The bytes it had read when it could be read last.
    """

    def __init__(self, consumer: Metered, group: str, owner: object) -> None:
        self.group = group
        self.owner = weakref.ref(owner)
        self.consumer: Callable[[], Metered | None] = weakref.ref(consumer)
        self.last: dict[RackPair, int] = {}
        self._view = view_of(consumer)
        self._readable = True
        self._once = WarnOnce(log)

    def is_closed(self) -> bool:
        """Return whether the consumer was closed or garbage-collected."""
        consumer = self.consumer()
        return consumer is None or (self._view is not None and self._view.is_closed(consumer))

    def read(self) -> bool:
        """Read how much the consumer has fetched; return whether that was possible."""
        try:
            fetched = self._fetched()
            if fetched is not None:
                self.last = {(source, fetched.rack): size.bytes for source, size in fetched.by_rack().items()}
            self._readable = fetched is not None
        except Exception:  # noqa: BLE001 - one consumer must not prevent the scrape of the others
            self._readable = False
            self._warn()
        return self._readable

    def assigned_locality(self) -> Locality | None:
        """Count its partitions; None if they are not known, or the consumer could not be read."""
        consumer = self.consumer()
        if consumer is None or self._view is None or not self._readable:
            return None
        try:
            return self._view.assigned_locality(consumer)
        except Exception:  # noqa: BLE001 - as above
            self._warn()
            return None

    def _fetched(self) -> FetchLocality | None:
        if self._view is not None:
            return self._view.locality()
        consumer = self.consumer()
        return None if consumer is None else consumer.locality()

    def _warn(self) -> None:
        # A consumer that was closed meanwhile may raise anything.
        if not self.is_closed():
            self._once.warn(
                "unreadable",
                "a consumer of group %s cannot be read: its metrics are left out",
                self.group,
                exc_info=True,
            )
