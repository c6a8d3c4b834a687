"""The bill as one HTML page: no network, no script, and every name that it shows is escaped.

The size of the page is bounded for a cluster of any size: items that are left out are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from rackassign import __version__
from rackassign.bill import LINES, Line
from rackassign.bill.report import (
    SOURCES,
    Bill,
    causes,
    commands,
    describe_invoice,
    further,
    headline,
    owners,
    summary,
    usd_range,
    what,
)
from rackassign.bill.usage import Items, Span
from rackassign.monitoring.html_page import environment
from rackassign.monitoring.report import format_bytes, format_range
from rackassign.text import join_first

_MOST_ITEMS = 200
_MOST_PAIRS = 100
_MOST_HISTORY = 60


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """What crossed racks at the time of a snapshot: bytes per second of each line."""

    taken: datetime
    across: dict[Line, Span]


def page(bill: Bill, history: Sequence[HistoryPoint] = (), at: datetime | None = None) -> str:
    """Return the page, as HTML.

    Args:
        bill: The bill.
        history: What crossed racks before, in order of time.
        at: Time of the bill; by default now.
    """
    evaluation = bill.evaluation
    levers = evaluation.gaining
    rows = causes(evaluation)
    pairs = sorted(
        (
            (line, source, home, rate)
            for line in LINES
            for (source, home), rate in bill.matrix(line).pairs.items()
            if source != home or source is None
        ),
        key=lambda row: (LINES.index(row[0]), -row[3], row[1] or "", row[2] or ""),
    )

    def amount(line: Line, span: Span) -> str:
        return usd_range(bill.usd(line, span.least), bill.usd(line, span.most))

    def of_line(line: Line, items: Items | None = None) -> str:
        return amount(line, bill.across(line, items))

    return (
        environment("rackassign.bill", "templates", bill.price)
        .get_template("bill.html")
        .render(
            bill=bill,
            version=__version__,
            at=(at or datetime.now(timezone.utc)).strftime("%Y-%m-%d %H:%M UTC"),
            headline=headline(bill),
            levers=levers,
            lines=[line for line in LINES if bill.across(line).most],
            of_line=of_line,
            size=lambda line: format_range(*bill.across(line), format_bytes),
            least=lambda line: bill.usd(line, bill.least(line)),
            summary=lambda lever: summary(lever, bill),
            invoice=() if bill.invoice is None else describe_invoice(bill.invoice),
            total=lambda items: usd_range(*bill.money(items)),
            what=lambda lever: what(lever, bill),
            owners=owners,
            commands=lambda lever: commands(lever, bill),
            further=further(bill),
            sources=SOURCES,
            items=rows[:_MOST_ITEMS],
            unlisted=max(0, len(rows) - _MOST_ITEMS),
            amount=amount,
            join_first=join_first,
            pairs=pairs[:_MOST_PAIRS],
            unlisted_pairs=max(0, len(pairs) - _MOST_PAIRS),
            usd=bill.usd,
            history=history[-_MOST_HISTORY:] if len(history) > 1 else (),
            moment=lambda taken: taken.strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
