"""A fleet as one page for people: no network, no script, and whatever a name contains, it stays a name.

It is bounded, whatever the size of the fleet: what is left out is counted and added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rackassign.fleet.aggregate import Fleet, GroupSums, HistoryPoint, Pair, Totals, aggregate, breakdown, total
from rackassign.fleet.audit import NOW
from rackassign.fleet.format import Figures
from rackassign.fleet.storage import read_results
from rackassign.fleet.what_if import MEANINGS
from rackassign.monitoring import Price
from rackassign.monitoring.html.page import environment
from rackassign.monitoring.html.sankey import SankeyLayout, sankey_layout

_MOST_GROUPS = 200
_MOST_DETAILED = 10
_MOST_TOPICS = 15
_MOST_FLOWS = 100
_MOST_MOMENTS = 30


@dataclass(frozen=True, slots=True)
class Side:
    """The fleet as it is, or as it could be: what goes from which rack to which.

    Args:
        title: What it shows.
        sum: All of it.
        picture: Of the largest flows.
        undrawn: How many are smaller than those.
    """

    title: str
    sum: Totals
    picture: SankeyLayout
    undrawn: int


@dataclass(frozen=True, slots=True)
class Change:
    """The fleet with a change, by the best strategy of each group, or by none.

    Args:
        name: Of the change.
        meaning: The same in words.
        sum: What would be read.
        groups: How many groups are best with it.
    """

    name: str
    meaning: str
    sum: Totals
    groups: int | None


@dataclass(frozen=True, slots=True)
class Topics:
    """A group by topic.

    Args:
        group: Which.
        shown: Topics, those that read most from afar first: now, and with the best strategy.
        others: How many are not shown.
        rest: What those add up to.
    """

    group: GroupSums
    shown: tuple[tuple[str, Totals, Totals], ...]
    others: int
    rest: tuple[Totals, Totals]


def page(found: Path, price: Price, at: datetime | None = None) -> str:
    """Return the page, as HTML.

    Args:
        found: Folder of what the audit has found, as `storage.write_results` or Spark wrote it.
        price: Of what crosses racks.
        at: When it was made; now if left out.

    Raises:
        ConfigError: The folder has something else in it.
    """
    fleet = aggregate(read_results(found))
    costly = [group for group in fleet.costly[:_MOST_DETAILED] if any(group.now.rank)]
    detail = breakdown(read_results(found), fleet, [group.name for group in costly])
    figures = Figures(price, fleet.measured)
    sides = [_side("now", total(fleet.groups, _now), detail.now, figures)]
    sides.append(_side("best strategy", total(fleet.groups, GroupSums.at_best), detail.best, figures))
    if len(fleet.what_ifs) > 1:
        sides.append(_side("best change", total(fleet.groups, _at_best_change), detail.changed, figures))
    return (
        environment("rackassign.fleet", price)
        .get_template("fleet.html")
        .render(
            at=(at or datetime.now(timezone.utc)).strftime(_MOMENT),
            fleet=fleet,
            figures=figures,
            price=price,
            amount=figures.flow,
            moment=lambda taken: taken.strftime(_MOMENT),
            NOW=NOW,
            sides=sides,
            changes=_changes(fleet),
            history=_thinned(fleet.history),
            shown=fleet.groups[:_MOST_GROUPS],
            rest=_Rest.of(fleet.groups[_MOST_GROUPS:]),
            stale=_Rest.of(fleet.stale),
            details=[_topics(group, detail.topics[group.name]) for group in costly],
            anchors={group.name: number for number, group in enumerate(costly, 1)},
            takes=any(group.required_changes is not None for group in fleet.groups),
        )
    )


_MOMENT = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True, slots=True)
class _Rest:
    """Groups that are not shown one by one."""

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
    rows = [Change(NOW, "as it is read now", total(fleet.groups, _now), None)]
    for name in fleet.what_ifs:
        count = sum(group.change == name for group in fleet.groups)
        rows.append(Change(name, MEANINGS[name], total(fleet.groups, _with(name)), count))
    return rows


def _side(title: str, of: Totals, pairs: Mapping[Pair, Totals], figures: Figures) -> Side:
    amounts = {pair: figures.kinds(part).total for pair, part in pairs.items()}
    largest = sorted(amounts.items(), key=lambda item: (-item[1], *((rack is None, rack or "") for rack in item[0])))
    drawn = dict(largest[:_MOST_FLOWS])
    return Side(title, of, sankey_layout(drawn), len(amounts) - len(drawn))


def _thinned(history: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    """Return so many moments at most, evenly chosen, the first and the last among them."""
    last, most = len(history) - 1, _MOST_MOMENTS - 1
    if last <= most:
        return list(history)
    return [history[round(number * last / most)] for number in range(most + 1)]


def _topics(group: GroupSums, by_topic: Mapping[str, tuple[Totals, Totals]]) -> Topics:
    ranked = [(topic, *sums) for topic, sums in by_topic.items()]
    ranked.sort(key=lambda row: (*(-part for part in row[1].rank), row[0]))
    others = ranked[_MOST_TOPICS:]
    rest = sum((now for _, now, _ in others), Totals()), sum((best for *_, best in others), Totals())
    return Topics(group, tuple(ranked[:_MOST_TOPICS]), len(others), rest)
