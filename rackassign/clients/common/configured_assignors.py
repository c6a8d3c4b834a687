"""The assignors that a consumer is configured with, and whether their rack is that of its fetches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rackassign.clients.common.assignor import Assignor
from rackassign.errors import ConfigError
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import short_repr


def check_assignors(assignors: object, option: str = "partition_assignment_strategy") -> list[Any]:
    """Return the assignors that a consumer is configured with.

    Args:
        assignors: The configured value.
        option: Name of the option, for the error message.

    Raises:
        ConfigError: They are no list, or have names in place of assignors.
    """
    if not isinstance(assignors, Iterable) or isinstance(assignors, str | bytes):
        raise ConfigError(f"{option}: expected a list of assignors, got {short_repr(assignors)}: write [..] around it")
    found = list(assignors)
    for each in found:
        # aiokafka would fail with its first join, on a task of its own.
        if not callable(each) and not callable(getattr(each, "assign", None)):
            raise ConfigError(f"{option}: expected assignors, as classes or instances, got {short_repr(each)} in it")
    return found


def warn_on_rack_mismatch(assignors: Iterable[object], client_rack: str | None, once: WarnOnce) -> bool:
    """Warn if the assignor's rack is not the rack that the consumer sends with its fetches.

    Assignors that find their consumer themselves are compared then, and not again when the consumer is attached.

    Returns:
        Whether the consumer is configured for follower fetching.
    """
    ours = [a for a in assignors if isinstance(a, Assignor)]
    own = [a for a in ours if a.locality == "any-replica"]
    for rack in sorted({assignor.rack or "" for assignor in own if not assignor.rack_compared}):
        _compare(rack, client_rack or "", once)
    for assignor in own:
        assignor.rack_compared = True
    # Without an assignor of this package a consumer follows its client_rack as well.
    return bool(client_rack) and (bool(own) or not ours)


def _compare(rack: str, client_rack: str, once: WarnOnce) -> None:
    """Warn if an assignor and its consumer have different racks, "" for none."""
    if rack and not client_rack:
        once.warn(
            "client_rack",
            "the assignor's rack is %r but client_rack is not set, so everything is read from the leaders: set"
            " client_rack=%r, or locality='leader'",
            *(rack, rack),
        )
    elif client_rack and not rack:
        once.warn(
            "client_rack",
            "client_rack is %r but the assignor has no rack, so partitions are assigned without regard to it: pass"
            " rack=%r to the assignor as well",
            *(client_rack, client_rack),
        )
    elif rack != client_rack:
        once.warn(
            "client_rack",
            "the assignor's rack is %r but client_rack is %r: partitions are assigned by the first and read by the"
            " second",
            *(rack, client_rack),
        )
