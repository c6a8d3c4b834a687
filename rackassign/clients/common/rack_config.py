"""The rack of a consumer: configured, read from the environment or detected, and equal to its assignor's rack."""

from __future__ import annotations

from collections.abc import Iterable

from rackassign.clients.common.assignor import Assignor, check_rack
from rackassign.errors import ConfigError
from rackassign.racks import RACK_VARIABLE, detect_rack
from rackassign.util.log_once import WarnOnce

AUTO = "auto"


def resolve_rack(wanted: str | None, option: str = "client_rack") -> str | None:
    """Return the rack a consumer is told; None: that of the environment, "auto": of any source there is.

    Args:
        wanted: What it is told.
        option: Where, for the message.

    Raises:
        ConfigError: "auto" finds none, or it could not be sent.
    """
    rack = check_rack(detect_rack(network=wanted == AUTO) if wanted in {None, AUTO} else wanted)
    if rack is None and wanted == AUTO:
        raise ConfigError(f'{option}="auto" found no rack: set {RACK_VARIABLE}, or see what `rackassign rack` says')
    return rack


def warn_on_rack_mismatch(assignors: Iterable[object], client_rack: str | None, once: WarnOnce) -> bool:
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
