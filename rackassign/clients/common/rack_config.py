"""The rack of a consumer: configured, read from the environment or detected, and equal to its assignor's rack."""

from __future__ import annotations

from collections.abc import Iterable

from rackassign.clients.common.assignor import Assignor
from rackassign.clients.common.member_context import check_rack
from rackassign.errors import ConfigError
from rackassign.racks import RACK_VARIABLE, detect_rack
from rackassign.util.log_once import WarnOnce

AUTO = "auto"


def resolve_rack(wanted: str | None, option: str = "client_rack") -> str | None:
    """Return the configured rack of a consumer; None: that of the environment, "auto": that of any source.

    Args:
        wanted: The configured value.
        option: Name of the option, for the error message.

    Raises:
        ConfigError: "auto" found no rack, or the rack is not valid in the protocol.
    """
    rack = check_rack(detect_rack(network=wanted == AUTO) if wanted is None or wanted == AUTO else wanted)
    if rack is None and wanted == AUTO:
        raise ConfigError(f'{option}="auto" found no rack: set {RACK_VARIABLE}, or check `rackassign detect-rack`')
    return rack


def warn_on_rack_mismatch(assignors: Iterable[object], client_rack: str | None, once: WarnOnce) -> bool:
    """Warn if the assignor's rack is not the rack that the consumer sends with its fetches.

    Assignors that find their consumer themselves are compared then, and not again when the consumer is attached.

    Returns:
        Whether the consumer is configured for follower fetching.
    """
    own = [a for a in assignors if isinstance(a, Assignor) and a.locality == "any-replica" and a.rack is not None]
    for rack in sorted({a.rack for a in own if a.rack is not None and not a.rack_compared}):
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
                "the assignor's rack is %r but client_rack is %r: partitions are assigned by the first and read by the"
                " second",
                *(rack, client_rack),
            )
    for assignor in own:
        assignor.rack_compared = True
    return bool(own and client_rack)
