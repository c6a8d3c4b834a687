"""Prices of cross-rack traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackassign.errors import ConfigError

USD_PER_GB = 0.02
SOURCE = "AWS between availability zones: 0.01 USD/GB on each side"

_MONTH_S = 730 * 3600
"""Seconds of a month as cloud providers bill it."""

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Price:
    """Price of traffic between racks.

    Args:
        usd_per_gb: Price of a GB (1e9 bytes) from one rack to another, for both ends together.
        source: Source of the price.

    Raises:
        ConfigError: The price is negative or no number.
    """

    usd_per_gb: float = USD_PER_GB
    source: str = SOURCE

    def __post_init__(self) -> None:
        if not math.isfinite(self.usd_per_gb) or self.usd_per_gb < 0:
            raise ConfigError(f"price must be 0 or more, in USD/GB, got {self.usd_per_gb!r}")

    @classmethod
    def from_option(cls, usd_per_gb: float | None) -> Price:
        """Return the price given by a user, or the default."""
        return cls() if usd_per_gb is None else cls(usd_per_gb, "as given")

    def monthly(self, bytes_s: float) -> float:
        """Return USD per month of 730 hours."""
        return bytes_s * _MONTH_S / _GB * self.usd_per_gb
