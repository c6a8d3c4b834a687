"""Where a consumer stands: the rack it is told, or finds."""

from __future__ import annotations

from rackassign.clients.assignor import check_rack
from rackassign.errors import ConfigError
from rackassign.racks import RACK_VARIABLE, detect_rack

AUTO = "auto"


def told_or_found(wanted: str | None, option: str = "client_rack") -> str | None:
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
