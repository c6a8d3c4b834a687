"""What people see: one page that needs no network and runs no script. Neither Kafka nor Spark is known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rackassign.monitoring import Price
from rackassign.monitoring.report import format_bytes, format_usd

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Predicted and measured</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem; }}
b.figure {{ display: block; font-size: 1.6rem; }}
.figures {{ display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin-top: 1rem; }}
th, td {{ text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #8888; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>What rackassign saves</h1>
<div class="figures">
<div><b class="figure">{before}</b>a month across racks, measured before</div>
<div><b class="figure">{after}</b>a month across racks, measured with rackassign</div>
</div>
<p>Saving in a month: <b>{predicted}</b> predicted by the audit, <b>{measured}</b> measured by the consumers.</p>
<div class="wide"><table>
<tr><th>group</th><th>best strategy</th><th>across racks, predicted</th><th>across racks, measured</th>
<th>read locally</th><th>cost, measured</th><th>saving, predicted</th><th>saving, measured</th></tr>
{rows}
</table></div>
<p>Each arrow leads from the figure before to the one with rackassign. Across racks: bytes a second that came from a
broker in another rack. Costs and savings are for a month of 730 hours at this rate; {price} USD/GB ({source}).
{dead}</p>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Sums:
    """A figure of a group.

    Args:
        before: As it was.
        after: With rackassign.
    """

    before: float
    after: float

    @property
    def less(self) -> float:
        """By how much it went down."""
        return self.before - self.after


@dataclass(frozen=True, slots=True)
class Saving:
    """What was predicted and what was measured of a group.

    Args:
        group: Its name.
        strategy: The best for it, as predicted.
        predicted: Bytes a second across racks.
        measured: The same.
        local_share: The share read locally, 0 to 1, as measured.
        price: Of what crosses racks.
    """

    group: str
    strategy: str
    predicted: Sums
    measured: Sums
    local_share: Sums
    price: Price

    @property
    def cost(self) -> Sums:
        """USD a month for what crosses racks, as measured."""
        return Sums(self.price.monthly(self.measured.before), self.price.monthly(self.measured.after))

    @property
    def predicted_usd(self) -> float:
        """USD a month."""
        return self.price.monthly(self.predicted.less)

    @property
    def measured_usd(self) -> float:
        """USD a month."""
        return self.price.monthly(self.measured.less)


def headline(savings: Sequence[Saving]) -> tuple[str, str]:
    """Return the two figures: what all groups save, predicted and measured."""
    predicted, measured = sum(s.predicted_usd for s in savings), sum(s.measured_usd for s in savings)
    return f"{format_usd(predicted)} USD", f"{format_usd(measured)} USD"


def costs(savings: Sequence[Saving]) -> tuple[str, str]:
    """Return the two figures: what all groups cost, before and after, as measured."""
    before, after = sum(s.cost.before for s in savings), sum(s.cost.after for s in savings)
    return f"{format_usd(before)} USD", f"{format_usd(after)} USD"


def page(savings: Sequence[Saving], dead: int) -> str:
    """Return the page, as HTML.

    Args:
        savings: Of each group; at least one.
        dead: How many messages could not be used.
    """
    predicted, measured = headline(savings)
    before, after = costs(savings)
    return _PAGE.format(
        before=before,
        after=after,
        predicted=predicted,
        measured=measured,
        rows="\n".join(map(_row, savings)),
        price=savings[0].price.usd_per_gb,
        source=escape(savings[0].price.source),
        dead=f"{dead} messages could not be used and lie among the dead letters." if dead else "",
    )


def _row(saving: Saving) -> str:
    cells = (
        saving.group,
        saving.strategy,
        *(f"{format_bytes(of.before)}/s → {format_bytes(of.after)}/s" for of in (saving.predicted, saving.measured)),
        f"{saving.local_share.before:.1%} → {saving.local_share.after:.1%}",
        f"{format_usd(saving.cost.before)} → {format_usd(saving.cost.after)} USD",
        f"{format_bytes(saving.predicted.less)}/s, {format_usd(saving.predicted_usd)} USD",
        f"{format_bytes(saving.measured.less)}/s, {format_usd(saving.measured_usd)} USD",
    )
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
