"""A report as one HTML page: no network, no script, and names are escaped.

Names of topics, groups, clients and racks are untrusted. They reach the page only through the template, which escapes
all its input, and the page forbids itself scripts and any network access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rackassign.model import Reason
from rackassign.monitoring.analysis import GroupAnalysis
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.format import (
    format_bytes,
    format_known,
    format_percent,
    format_range,
    format_usd,
    mark_lower_bound,
)
from rackassign.monitoring.html.sankey import HEIGHT, WIDTH, SankeyLayout, sankey_layout
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.serialize import collection_warnings, describe_action
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix
from rackassign.util.text import strip_control_chars

_MOST_CELLS = 2000
"""Maximum number of partitions drawn for one group."""

_REASONS: Mapping[Reason, str] = {
    "no-member-in-replica-racks": "no member that subscribes to it is in a rack with a counting replica",
    "members-full": "the members in its racks have their share, or would have to give up something equally local",
    "unknown-rack": "the rack of its reader, or of its replicas, is unknown",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A member in a grid, and its reads."""

    client_id: str
    member: str
    rack: str | None
    reads: tuple[PartitionRead, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """A group now, or as it could be."""

    title: str
    picture: SankeyLayout
    rows: tuple[Row, ...]
    undrawn: int
    partitions: Mapping[str, int]
    flows: TrafficMatrix


def page(survey: ClusterReport, price: Price, at: datetime | None = None) -> str:
    """Return the page, as HTML.

    Args:
        survey: The report.
        price: Price of cross-rack traffic.
        at: Time of the report; by default now.
    """
    measured = bool(survey.measured.seconds)
    return (
        environment(__name__, price)
        .get_template("page.html")
        .render(
            survey=survey,
            price=price,
            at=(at or datetime.now(timezone.utc)).strftime("%Y-%m-%d %H:%M UTC"),
            measured=measured,
            amount=(lambda n: f"{format_bytes(n)}/s") if measured else (lambda n: f"{n:.0f} partitions"),
            describe_action=describe_action,
            sides={i.snapshot.live.name: _sides(i, measured=measured) for i in survey.inspections},
            reasons={i.snapshot.live.name: _reasons(i) for i in survey.inspections},
            problems=collection_warnings(survey),
        )
    )


def environment(package: str, price: Price) -> Environment:
    """Return the environment that renders a page: it escapes everything, and removes control characters.

    Args:
        package: Package with the template; those of this package are available too.
        price: Price of cross-rack traffic.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name, ".") for name in dict.fromkeys((package, __package__))]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": format_bytes, "money": format_usd, "monthly": price.monthly}
    made.globals |= {"width": WIDTH, "height": HEIGHT, "percent": format_percent, "at_least": mark_lower_bound}
    made.globals |= {"known": format_known, "between": format_range, "size": format_bytes, "money": format_usd}
    return made


def _plain(value: object) -> object:
    """Return a value without characters that would reorder the text around it, as U+202E does."""
    return strip_control_chars(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _sides(inspected: GroupAnalysis, *, measured: bool) -> list[Side]:
    now = _side("now", inspected, inspected.now, inspected.flows, measured=measured)
    if not inspected.reaches:
        return [now]
    reach = inspected.reach("cooperative-sticky")
    return [now, _side("with rackassign", inspected, reach.reads, reach.flows, measured=measured)]


def _side(
    title: str, inspected: GroupAnalysis, reads: tuple[PartitionRead, ...], flows: TrafficMatrix, *, measured: bool
) -> Side:
    pairs: dict[tuple[str | None, str | None], float] = {}
    partitions = {"local": 0, "cross": 0, "unknown": 0}
    for read in reads:
        pairs[read.source, read.home] = pairs.get((read.source, read.home), 0.0) + 1.0
        partitions[read.kind] += 1
    drawn = reads[:_MOST_CELLS]
    return Side(
        title,
        sankey_layout(flows.pairs if measured and flows.total else pairs),
        tuple(_rows(inspected, drawn)),
        len(reads) - len(drawn),
        partitions,
        flows,
    )


def _rows(inspected: GroupAnalysis, reads: Iterable[PartitionRead]) -> Iterable[Row]:
    of_member: dict[str, list[PartitionRead]] = {}
    for read in reads:
        of_member.setdefault(read.member, []).append(read)
    racks = {member.id: member.rack for member in inspected.snapshot.group.members}
    for member in sorted(inspected.snapshot.live.members, key=lambda m: (racks[m.id] or "~", m.client_id, m.id)):
        yield Row(member.client_id, member.id, racks[member.id], tuple(of_member.get(member.id, ())))


def _reasons(inspected: GroupAnalysis) -> list[tuple[int, str]]:
    if not inspected.reaches:
        return []
    counts = inspected.reach("cooperative-sticky").reasons
    return [(counts[reason], words) for reason, words in _REASONS.items() if counts.get(reason)]
