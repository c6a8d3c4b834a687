"""Totals of a fleet as text: in money if bytes were measured, else in partitions."""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.fleet.aggregate import Totals, TrafficByKind
from rackassign.monitoring import Price
from rackassign.monitoring.format import format_bytes, format_usd, mark_lower_bound


@dataclass(frozen=True, slots=True)
class Figures:
    """Formatter of totals.

    Args:
        price: Price of cross-rack traffic.
        measured: Whether the rate of any partition is known.
    """

    price: Price
    measured: bool

    @property
    def unit(self) -> str:
        """The unit of the figures."""
        return "USD a month" if self.measured else "partitions"

    def kinds(self, of: Totals) -> TrafficByKind:
        """Return the bytes per second if bytes were measured, else the partitions."""
        return of.bytes_s if self.measured else of.partitions

    def crossing(self, of: Totals) -> str:
        """Format the cross-rack amount; as a range if a part is unknown."""
        return self._marked("{} to {}", of)

    def at_most(self, of: Totals) -> str:
        """Format the cross-rack amount in fewer characters: only the upper end of a range."""
        return self._marked("≤{1}", of)

    def _marked(self, range_format: str, of: Totals) -> str:
        if self.measured and 0 < of.partitions.total <= of.unmeasured:
            return "not measured"
        kinds = self.kinds(of)
        least, most = self._figure(kinds.cross), self._figure(kinds.cross_or_unknown)
        shown = least if least == most else range_format.format(least, most)
        return mark_lower_bound(shown, of.unmeasured if self.measured else 0)

    def less(self, before: Totals, after: Totals) -> str:
        """Format the reduction of reads not known to be local; marked as an upper bound if a part is unknown."""
        old, new = self.kinds(before), self.kinds(after)
        shown = self._figure(old.cross_or_unknown - new.cross_or_unknown)
        is_upper_bound = old.unknown > 0 or new.unknown > 0
        return f"≤{shown}" if is_upper_bound and shown != self._figure(0) else shown

    def flow(self, amount: float) -> str:
        """Format an amount of traffic."""
        return f"{format_bytes(amount)}/s" if self.measured else f"{amount:,.0f} partitions"

    def _figure(self, amount: float) -> str:
        return format_usd(self.price.monthly(amount)) if self.measured else f"{amount:,.0f}"
