"""The rack (availability zone) in which this process runs.

The environment is read first and is sufficient. Other sources (`rackassign.racks.sources`) are queried only if the
caller requests it, and are imported only then: an HTTP client is more than most consumers need.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Literal, get_args

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from rackassign.racks.sources import RackDetection

ZoneForm = Literal["id", "name"]
"""How a zone of EC2 is named: by its ID (use1-az1) or by its name (us-east-1a)."""

RACK_VARIABLE = "RACKASSIGN_RACK"


def detect_rack(*, network: bool = False, zone: ZoneForm = "id") -> str | None:
    """Return the rack this process runs in; None if it cannot be detected.

    Args:
        network: Whether to try more sources if `RACKASSIGN_RACK` is not set: a Kubernetes downward-API file (the pod's
            labels in `/etc/podinfo/labels`, or the file in `RACKASSIGN_RACK_FILE`), then the metadata services of EC2,
            Google Cloud and Azure, for a few seconds at most.
        zone: On EC2, whether a zone is named by its ID or its name.

    Raises:
        ConfigError: `zone` is neither of the two.
    """
    if zone not in get_args(ZoneForm):
        raise ConfigError(f"zone must be one of {', '.join(get_args(ZoneForm))}, got {short_repr(zone)}")
    known = rack_from_environment()
    if known is not None or not network:
        # The environment comes first: outside of a cloud the metadata services keep a caller waiting for seconds.
        return known
    found: list[RackDetection] = import_module("rackassign.racks.sources").detect_all(zone=zone)
    return next((finding.rack for finding in found if finding.rack is not None), None)


def rack_from_environment(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rack set in `RACKASSIGN_RACK`, without surrounding blanks; None if unset or empty."""
    return environment.get(RACK_VARIABLE, "").strip() or None
