"""Prices of cross-rack traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

CLOUDS: Mapping[str, tuple[float, str]] = {
    "aws": (0.02, "AWS between availability zones: 0.01 USD/GB on each side"),
    "google": (0.01, "Google Cloud between zones of a region: 0.01 USD/GB, paid by the sender"),
    "azure": (0.0, "Azure between availability zones of a region: free"),
}
"""List prices of November 2026 in USD/GB for both ends together, with their source; contracts may differ."""

USD_PER_GB, SOURCE = CLOUDS["aws"]

_MONTH_S = 730 * 3600
"""Seconds of a month as cloud providers bill it."""

_GB = 1e9

_MOST_USD = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Price of traffic between racks.

    Args:
        usd_per_gb: Price of a GB (1e9 bytes) from one rack to another, for both ends together.
        source: Source of the price.

    Raises:
        ConfigError: The price is negative, above a million, or no number.
    """

    usd_per_gb: float = USD_PER_GB
    source: str = SOURCE

    def __post_init__(self) -> None:
        if not 0 <= self.usd_per_gb <= _MOST_USD:
            raise ConfigError(f"price must be from 0 to {_MOST_USD} USD/GB, got {self.usd_per_gb!r}")

    @classmethod
    def from_options(cls, usd_per_gb: float | None, cloud: str | None = None) -> Price:
        """Return the price given by a user, or that of a cloud, or the default.

        Raises:
            ConfigError: Both are given, there is no list price of this cloud, or the price is invalid.
        """
        if cloud is None:
            return cls() if usd_per_gb is None else cls(usd_per_gb, "as given")
        if usd_per_gb is not None:
            raise ConfigError("give either the price (--price-per-gb) or a cloud (--cloud)")
        if cloud not in CLOUDS:
            raise ConfigError(f"cloud must be one of {', '.join(CLOUDS)}, got {short_repr(cloud)}")
        return cls(*CLOUDS[cloud])

    def monthly(self, bytes_s: float) -> float:
        """Return USD per month of 730 hours."""
        return bytes_s * _MONTH_S / _GB * self.usd_per_gb
