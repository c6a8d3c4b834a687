"""The rack of a consumer or an assignor: configured, read from the environment, or detected."""

from __future__ import annotations

from typing import Final

from rackassign.errors import ConfigError, WireError
from rackassign.racks import RACK_VARIABLE, detect_rack
from rackassign.util.text import short_repr
from rackassign.wire import Subscription, encode_subscription

AUTO = "auto"


class EnvRackDefault:
    """The default of `rack`. In contrast, None means no rack."""

    def __repr__(self) -> str:
        return f"<{RACK_VARIABLE}>"


FROM_ENVIRONMENT: Final = EnvRackDefault()


def resolve_rack(wanted: str | None, option: str = "client_rack") -> str | None:
    """Return the configured rack of a consumer; None: that of the environment, "auto": that of any source.

    Args:
        wanted: The configured value.
        option: Name of the option, for the error message.

    Raises:
        ConfigError: "auto" found no rack, or the rack is not valid in the protocol.
    """
    rack = check_rack(detect_rack(network=wanted == AUTO) if wanted is None or wanted == AUTO else wanted, option)
    if rack is None and wanted == AUTO:
        raise ConfigError(f'{option}="auto" found no rack: set {RACK_VARIABLE}, or check `rackassign detect-rack`')
    return rack


def resolve_assignor_rack(wanted: str | EnvRackDefault | None) -> str | None:
    """Return the configured rack of an assignor; None for none, "auto": that of any source.

    Raises:
        ConfigError: "auto" found no rack, or the rack is not valid in the protocol.
    """
    if isinstance(wanted, EnvRackDefault):
        return resolve_rack(None, "rack")
    return None if wanted is None else resolve_rack(wanted, "rack")


def check_rack(rack: object, option: str = "rack") -> str | None:
    """Return the rack, None for ""; `ConfigError` names the option if it could not be sent."""
    if rack is None:
        return None
    if not isinstance(rack, str):
        raise ConfigError(f"{option} must be a string or None, got {short_repr(rack)}")
    # Of an enumeration of strings: in text it would be the name of the member, as in a client ID with a zone.
    plain = str.__str__(rack)
    try:
        encode_subscription(Subscription((), rack=plain))
    except WireError as error:
        raise ConfigError(f"{option} cannot be sent: {error.problem}") from None
    return plain or None
