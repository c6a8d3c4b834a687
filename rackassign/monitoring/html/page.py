"""A survey as one page for people: no network, no script, and whatever a name contains, it stays a name.

What names of topics, groups, clients and racks contain is up to others. They reach the page through the template alone,
which escapes all it is given; and the page forbids itself scripts and any contact with the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rackassign.model import Reason
from rackassign.monitoring.analysis import Inspection
from rackassign.monitoring.collector import Survey
from rackassign.monitoring.format import at_least, money, percent, size
from rackassign.monitoring.html.sankey import HEIGHT, WIDTH, Picture, picture
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.serialize import said, troubles
from rackassign.monitoring.traffic import Flows, Read
from rackassign.util.text import strip_control_chars

_MOST_CELLS = 2000
"""Partitions that are drawn of one group."""

_REASONS: Mapping[Reason, str] = {
    "no-member-in-replica-racks": "no member that subscribes to it stands in a rack with a counting replica",
    "members-full": "the members in its racks have their share, or would have to give away something as near",
    "unknown-rack": "its reader's rack, or that of its replicas, is not known",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A member in a grid: who it is, and what it reads."""

    client_id: str
    member: str
    rack: str | None
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """A group now, or as it could be."""

    title: str
    picture: Picture
    rows: tuple[Row, ...]
    undrawn: int
    partitions: Mapping[str, int]
    flows: Flows


def page(survey: Survey, price: Price, at: datetime | None = None) -> str:
    """Return the page, as HTML.

    Args:
        survey: What to show.
        price: Of what crosses racks.
        at: When it was made; now if left out.
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
            amount=(lambda n: f"{size(n)}/s") if measured else (lambda n: f"{n:.0f} partitions"),
            said=said,
            sides={i.snapshot.live.name: _sides(i, measured=measured) for i in survey.inspections},
            reasons={i.snapshot.live.name: _reasons(i) for i in survey.inspections},
            problems=troubles(survey),
        )
    )


def environment(package: str, price: Price) -> Environment:
    """Return what renders a page: it escapes all that is not said to be safe, and nothing is; and shows no controls.

    Args:
        package: That has the template; those here can be had beside it.
        price: Of what crosses racks.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name, ".") for name in dict.fromkeys((package, __package__))]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": size, "money": money, "monthly": price.monthly}
    made.globals |= {"width": WIDTH, "height": HEIGHT, "percent": percent, "at_least": at_least}
    return made


def _plain(value: object) -> object:
    """Return what is put into the page without anything that would turn what stands around it, as U+202E does."""
    return strip_control_chars(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _sides(inspected: Inspection, *, measured: bool) -> list[Side]:
    now = _side("now", inspected, inspected.now, inspected.flows, measured=measured)
    if not inspected.reaches:
        return [now]
    reach = inspected.reach("cooperative-sticky")
    return [now, _side("with rackassign", inspected, reach.reads, reach.flows, measured=measured)]


def _side(title: str, inspected: Inspection, reads: tuple[Read, ...], flows: Flows, *, measured: bool) -> Side:
    pairs: dict[tuple[str | None, str | None], float] = {}
    partitions = {"local": 0, "cross": 0, "unknown": 0}
    for read in reads:
        pairs[read.source, read.home] = pairs.get((read.source, read.home), 0.0) + 1.0
        partitions[read.kind] += 1
    drawn = reads[:_MOST_CELLS]
    return Side(
        title,
        picture(flows.pairs if measured and flows.total else pairs),
        tuple(_rows(inspected, drawn)),
        len(reads) - len(drawn),
        partitions,
        flows,
    )


def _rows(inspected: Inspection, reads: Iterable[Read]) -> Iterable[Row]:
    of_member: dict[str, list[Read]] = {}
    for read in reads:
        of_member.setdefault(read.member, []).append(read)
    racks = {member.id: member.rack for member in inspected.snapshot.group.members}
    for member in sorted(inspected.snapshot.live.members, key=lambda m: (racks[m.id] or "~", m.client_id, m.id)):
        yield Row(member.client_id, member.id, racks[member.id], tuple(of_member.get(member.id, ())))


def _reasons(inspected: Inspection) -> list[tuple[int, str]]:
    if not inspected.reaches:
        return []
    counts = inspected.reach("cooperative-sticky").reasons
    return [(counts[reason], words) for reason, words in _REASONS.items() if counts.get(reason)]
