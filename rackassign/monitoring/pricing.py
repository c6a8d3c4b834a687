"""What crosses racks, in money."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackassign.errors import ConfigError

USD_PER_GB = 0.02
SOURCE = "AWS between availability zones: 0.01 USD/GB on each side"

_MONTH_S = 730 * 3600
"""Seconds of a month, by which cloud providers bill hours."""

_GB = 1e9


@dataclass(frozen=True, slots=True)
class Price:
    """Of traffic between racks.

    Args:
        usd_per_gb: For a GB (1e9 bytes) that goes from one rack to another, both ends together.
        source: Who says so.

    Raises:
        ConfigError: If it is negative, or no number.
    """

    usd_per_gb: float = USD_PER_GB
    source: str = SOURCE

    def __post_init__(self) -> None:
        if not math.isfinite(self.usd_per_gb) or self.usd_per_gb < 0:
            raise ConfigError(f"price must be 0 or more, in USD/GB, got {self.usd_per_gb!r}")

    @classmethod
    def from_option(cls, usd_per_gb: float | None) -> Price:
        """Return the price a user has given; the usual one if none was."""
        return cls() if usd_per_gb is None else cls(usd_per_gb, "as given")

    def monthly(self, bytes_s: float) -> float:
        """Return USD in a month of 730 hours."""
        return bytes_s * _MONTH_S / _GB * self.usd_per_gb
