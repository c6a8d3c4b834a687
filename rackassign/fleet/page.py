"""Report of a fleet as one HTML page without network access or scripts. Names are escaped.

The size of the page is bounded for a fleet of any size. Groups, topics and flows that are left out are counted, and the
reads of such groups and topics are summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rackassign.fleet.aggregate import (
    Figures,
    Fleet,
    GroupSums,
    HistoryPoint,
    Pair,
    Totals,
    aggregate,
    breakdown,
    total,
)
from rackassign.fleet.evaluation import MEANINGS, NOW
from rackassign.fleet.storage import read_results
from rackassign.monitoring import Price
from rackassign.monitoring.html_page import SankeyLayout, environment, sankey_layout

_MAX_GROUPS = 200
_MAX_DETAILED_GROUPS = 10
_MAX_TOPICS = 15
_MAX_FLOWS = 100
_MAX_HISTORY_POINTS = 30
_TIME_FORMAT = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True, slots=True)
class Side:
    """Traffic between racks of the whole fleet, now or with the best strategy or change."""

    title: str
    sum: Totals
    picture: SankeyLayout
    # Number of smaller flows, which are not drawn.
    undrawn: int


@dataclass(frozen=True, slots=True)
class Change:
    """Reads of the fleet with a change and the best strategy of each group, or with neither."""

    name: str
    meaning: str
    sum: Totals
    # Number of groups for which this change is the best; None for the current reads.
    groups: int | None


@dataclass(frozen=True, slots=True)
class Topics:
    """Reads of a group by topic."""

    group: GroupSums
    # Topics with their reads now and with the best strategy, in descending order of the current reads that are not
    # known to be local.
    shown: tuple[tuple[str, Totals, Totals], ...]
    # Number of topics that are not shown.
    others: int
    rest: tuple[Totals, Totals]


def page(found: Path, price: Price, at: datetime | None = None) -> str:
    """Return the report as HTML."""
    fleet = aggregate(read_results(found))
    costly = [group for group in fleet.costly[:_MAX_DETAILED_GROUPS] if any(group.now.rank)]
    detail = breakdown(read_results(found), fleet, [group.name for group in costly])
    figures = Figures(price, fleet.measured)
    sides = [_side("now", total(fleet.groups, _now), detail.now, figures)]
    sides.append(_side("best strategy", total(fleet.groups, GroupSums.at_best), detail.best, figures))
    if len(fleet.what_ifs) > 1:
        sides.append(_side("best change", total(fleet.groups, _at_best_change), detail.changed, figures))
    return (
        environment("rackassign.fleet", ".", price)
        .get_template("fleet.html")
        .render(
            at=(at or datetime.now(timezone.utc)).strftime(_TIME_FORMAT),
            fleet=fleet,
            figures=figures,
            price=price,
            amount=figures.flow,
            moment=lambda taken: taken.strftime(_TIME_FORMAT),
            NOW=NOW,
            sides=sides,
            changes=_changes(fleet),
            history=_thinned(fleet.history),
            shown=fleet.groups[:_MAX_GROUPS],
            rest=_Rest.of(fleet.groups[_MAX_GROUPS:]),
            stale=_Rest.of(fleet.stale),
            details=[_topics(group, detail.topics[group.name]) for group in costly],
            anchors={group.name: number for number, group in enumerate(costly, 1)},
            takes=any(group.required_changes is not None for group in fleet.groups),
        )
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """Sum of groups that are not shown individually."""

    count: int
    now: Totals
    best: Totals
    changed: Totals

    @classmethod
    def of(cls, groups: Sequence[GroupSums]) -> _Rest:
        return cls(len(groups), total(groups, _now), total(groups, GroupSums.at_best), total(groups, _at_best_change))


def _now(group: GroupSums) -> Totals:
    return group.now


def _at_best_change(group: GroupSums) -> Totals:
    return group.at_best(group.change)


def _with(what_if: str) -> Callable[[GroupSums], Totals]:
    return lambda group: group.at_best(what_if)


def _changes(fleet: Fleet) -> list[Change]:
    rows = [Change(NOW, "the current assignments", total(fleet.groups, _now), None)]
    for name in fleet.what_ifs:
        count = sum(group.change == name for group in fleet.groups)
        rows.append(Change(name, MEANINGS[name], total(fleet.groups, _with(name)), count))
    return rows


def _side(title: str, of: Totals, pairs: Mapping[Pair, Totals], figures: Figures) -> Side:
    amounts = {pair: figures.kinds(part).total for pair, part in pairs.items()}
    largest = sorted(amounts.items(), key=lambda item: (-item[1], *((rack is None, rack or "") for rack in item[0])))
    drawn = dict(largest[:_MAX_FLOWS])
    return Side(title, of, sankey_layout(drawn), len(amounts) - len(drawn))


def _thinned(history: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    """Return at most `_MAX_HISTORY_POINTS` points, evenly spaced and with the first and the last one."""
    last, most = len(history) - 1, _MAX_HISTORY_POINTS - 1
    if last <= most:
        return list(history)
    return [history[round(number * last / most)] for number in range(most + 1)]


def _topics(group: GroupSums, by_topic: Mapping[str, tuple[Totals, Totals]]) -> Topics:
    ranked = [(topic, *sums) for topic, sums in by_topic.items()]
    ranked.sort(key=lambda row: (*(-part for part in row[1].rank), row[0]))
    smaller = ranked[_MAX_TOPICS:]
    rest = sum((now for _, now, _ in smaller), Totals()), sum((best for *_, best in smaller), Totals())
    return Topics(group, tuple(ranked[:_MAX_TOPICS]), len(smaller), rest)
