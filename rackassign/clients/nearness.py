"""Whether what an assignor takes for near is what its consumer reads from."""

from __future__ import annotations

from collections.abc import Iterable

from rackassign.clients.assignor import Assignor
from rackassign.util.log_once import Once


def warn_of_racks(assignors: Iterable[object], client_rack: str | None, once: Once) -> bool:
    """Warn if what the assignor takes for near is not what the consumer fetches from.

    Returns:
        Whether reading from followers is what the consumer is set up for.
    """
    racks = {a.rack for a in assignors if isinstance(a, Assignor) and a.locality == "any-replica"} - {None}
    for rack in sorted(filter(None, racks)):
        if not client_rack:
            once.warn(
                "client_rack",
                "the assignor's rack is %r but client_rack is not set, so everything is read from the leaders: set"
                " client_rack=%r, or locality='leader'",
                *(rack, rack),
            )
        elif rack != client_rack:
            once.warn(
                "client_rack",
                "the assignor's rack is %r but client_rack is %r: partitions are near the one and read near the other",
                *(rack, client_rack),
            )
    return bool(racks and client_rack)
