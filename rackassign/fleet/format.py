"""Sums of a fleet as people read them: in money where bytes were measured, in partitions where they were not."""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.fleet.aggregate import Totals, TrafficByKind
from rackassign.monitoring import Price
from rackassign.monitoring.format import format_bytes, format_usd, mark_lower_bound


@dataclass(frozen=True, slots=True)
class Figures:
    """How sums are shown.

    Args:
        price: Of what crosses racks.
        measured: Whether bytes are known.
    """

    price: Price
    measured: bool

    @property
    def unit(self) -> str:
        """What the figures count."""
        return "USD a month" if self.measured else "partitions"

    def kinds(self, of: Totals) -> TrafficByKind:
        """Return the amount that counts."""
        return of.bytes_s if self.measured else of.partitions

    def crossing(self, of: Totals) -> str:
        """Show what crosses racks; a range where nobody knows how much it is."""
        return self._marked("{} to {}", of)

    def at_most(self, of: Totals) -> str:
        """Show the same in fewer characters: the upper end of a range."""
        return self._marked("≤{1}", of)

    def _marked(self, doubtful: str, of: Totals) -> str:
        if self.measured and 0 < of.partitions.total <= of.unmeasured:
            return "not measured"
        kinds = self.kinds(of)
        least, most = self._figure(kinds.cross), self._figure(kinds.afar)
        shown = least if least == most else doubtful.format(least, most)
        return mark_lower_bound(shown, of.unmeasured if self.measured else 0)

    def less(self, before: Totals, after: Totals) -> str:
        """Show how much less is read from afar; marked where it may be less than that."""
        was, then = self.kinds(before), self.kinds(after)
        shown = self._figure(was.afar - then.afar)
        doubtful = was.unknown > 0 or then.unknown > 0
        return f"≤{shown}" if doubtful and shown != self._figure(0) else shown

    def flow(self, amount: float) -> str:
        """Show how much flows."""
        return f"{format_bytes(amount)}/s" if self.measured else f"{amount:,.0f} partitions"

    def _figure(self, amount: float) -> str:
        return format_usd(self.price.monthly(amount)) if self.measured else f"{amount:,.0f}"
