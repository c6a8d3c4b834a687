"""What may be read of a consumer on any thread, the same for all client libraries: for its exported metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rackassign.clients.common.fetch_metrics import FetchLocality
from rackassign.locality import Locality, read_locality

_ATTRIBUTE = "_rackassign_view"


class ConsumerView(NamedTuple):
    """How a consumer is read; it does not keep the consumer itself.

    Args:
        group: Its group; None if it has none.
        locality: Returns what it has fetched so far; also after it was closed or garbage-collected.
        assigned_locality: Counts its partitions by the rack of the broker that it fetches each from, which is what a
            measurement from outside counts: a local replica that no broker points to is not read.
        is_closed: Returns whether it was closed.
    """

    group: str | None
    locality: Callable[[], FetchLocality]
    assigned_locality: Callable[[Any], Locality]
    is_closed: Callable[[Any], bool]


def count_reads(home: str | None, brokers: Iterable[int | None], rack_of: Callable[[int], str | None]) -> Locality:
    """Count the partitions of a consumer by the racks they are read from.

    Args:
        home: Rack of the consumer.
        brokers: For each partition the broker it is fetched from; None if there is none.
        rack_of: Returns the last known rack of a broker.
    """
    sources = (None if broker is None else rack_of(broker) for broker in brokers)
    return Locality.of_reads(read_locality(source, home) for source in sources)


def set_view(consumer: object, view: ConsumerView) -> None:
    """Store how a consumer is read, in an attribute of the consumer."""
    vars(consumer)[_ATTRIBUTE] = view


def view_of(consumer: object) -> ConsumerView | None:
    """Return how a consumer is read; None if it was not attached."""
    view: ConsumerView | None = getattr(consumer, _ATTRIBUTE, None)
    return view
