"""A report as one HTML page: no network, no script, and every name that it shows is escaped.

In the diagram of reads between racks, those that are read from are on the left, and those that read on the right. A
ribbon is as thick as the traffic between its two racks. The positions of boxes and ribbons are computed here; the
page's template draws them.

Names of topics, groups, clients and racks are untrusted. They reach the page only through the template, which escapes
all its input, and the page forbids itself scripts and any network access. Whatever the page shows by color it shows by
a pattern or as text as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from rackassign import __version__
from rackassign.locality import Kind, Locality, read_locality
from rackassign.model import Reason
from rackassign.monitoring.advice import cluster_advice, describe_change, rack_map_to_fill
from rackassign.monitoring.analysis import GroupAnalysis
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.live_groups import MemberDescription
from rackassign.monitoring.report import (
    Price,
    collection_warnings,
    describe_cross,
    describe_gain,
    describe_rates,
    describe_savings,
    describe_uncounted,
    format_bytes,
    format_count,
    format_known,
    format_percent,
    format_usd,
    verdict,
)
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix, count_locality
from rackassign.monitoring.written_bytes import WrittenTraffic, written_warnings
from rackassign.text import clamp_middle, join_ranges, strip_control_chars

if TYPE_CHECKING:
    from jinja2 import Environment

WIDTH, HEIGHT = 360.0, 240.0

LABEL_HEIGHT = 13.0
"""Height of a ribbon's label; a thinner ribbon shows it only when it is pointed at or focused."""

_LABEL_AT = 0.14
"""Position of a label on its ribbon, from 0 to 1: near its source, where ribbons do not cross each other yet."""

_BOX = 12.0
_GAP = 14.0

Rack = str | None
"""Name of a rack; None if unknown."""


class SankeyNode(NamedTuple):
    """A rack on one side: its left edge, its upper edge, and its height."""

    rack: Rack
    x: float
    y: float
    height: float
    amount: float


class SankeyLink(NamedTuple):
    """Traffic from one rack to another: an SVG path, its value, and where its label is centered."""

    source: Rack
    home: Rack
    path: str
    kind: Kind
    amount: float
    label_x: float
    label_y: float
    thickness: float


@dataclass(frozen=True, slots=True)
class SankeyLayout:
    """Boxes on both sides, and the ribbons between them, in units of a `WIDTH` x `HEIGHT` canvas."""

    left: tuple[SankeyNode, ...]
    right: tuple[SankeyNode, ...]
    ribbons: tuple[SankeyLink, ...]


def sankey_layout(pairs: Mapping[tuple[Rack, Rack], float]) -> SankeyLayout:
    """Compute the layout of reads, by source rack and reader's rack."""
    flowing = {pair: amount for pair, amount in pairs.items() if amount > 0}
    total = sum(flowing.values())
    sides = [_sums(flowing, side) for side in (0, 1)]
    most = max(map(len, sides))
    # At least half of the height is used for traffic, however many racks there are.
    gap = min(_GAP, HEIGHT / (2 * max(most, 1)))
    scale = (HEIGHT - gap * max(most - 1, 0)) / total if total else 0.0
    left, right = _boxes(sides[0], 0.0, scale, gap), _boxes(sides[1], WIDTH - _BOX, scale, gap)
    starts = {box.rack: box.y for box in left}
    ends = {box.rack: box.y for box in right}
    ribbons: list[SankeyLink] = []
    for source, home in sorted(flowing, key=lambda pair: (_order(pair[0]), _order(pair[1]))):
        thick = flowing[source, home] * scale
        path = _ribbon(starts[source], ends[home], thick)
        label_x, label_y = _label(starts[source], ends[home], thick)
        starts[source] += thick
        ends[home] += thick
        kind = read_locality(source, home)
        ribbons.append(SankeyLink(source, home, path, kind, flowing[source, home], label_x, label_y, thick))
    return SankeyLayout(left, right, tuple(ribbons))


def _order(rack: Rack) -> tuple[bool, str]:
    return rack is None, rack or ""


def _sums(flowing: Mapping[tuple[Rack, Rack], float], side: int) -> dict[Rack, float]:
    sums: dict[Rack, float] = {}
    for pair in sorted(flowing, key=lambda pair: _order(pair[side])):
        sums[pair[side]] = sums.get(pair[side], 0.0) + flowing[pair]
    return sums


def _boxes(sums: Mapping[Rack, float], x: float, scale: float, gap: float) -> tuple[SankeyNode, ...]:
    boxes: list[SankeyNode] = []
    y = 0.0
    for rack, amount in sums.items():
        boxes.append(SankeyNode(rack, x, round(y, 2), round(amount * scale, 2), amount))
        y += amount * scale + gap
    return tuple(boxes)


def _ribbon(start: float, end: float, thick: float) -> str:
    """Return the outline of a band that is horizontal at both ends."""
    a, b, middle = _BOX, WIDTH - _BOX, WIDTH / 2
    upper = f"M{a} {start:.2f}C{middle} {start:.2f} {middle} {end:.2f} {b} {end:.2f}"
    lower = f"L{b} {end + thick:.2f}C{middle} {end + thick:.2f} {middle} {start + thick:.2f} {a} {start + thick:.2f}Z"
    return upper + lower


def _label(start: float, end: float, thick: float) -> tuple[float, float]:
    """Return a point in the middle of a band, on the curve of `_ribbon`."""
    t = _LABEL_AT
    a, b, middle = _BOX, WIDTH - _BOX, WIDTH / 2
    x = a * (1 - t) ** 3 + 3 * middle * t * (1 - t) + b * t**3
    y = start + (end - start) * (3 * t**2 - 2 * t**3) + thick / 2
    return round(x, 2), round(y, 2)


_MOST_MEMBERS = 100
"""Maximum number of members of one group that are listed."""

_MOST_PARTITIONS = 500
"""Maximum number of partitions of one member that are listed; all are in the JSON output."""

_INLINE = 12
"""Longer lists of partition numbers are folded."""

_OPEN = 3
"""Up to so many groups are shown with all details; of more groups these are folded."""

_REASONS: Mapping[Reason, str] = {
    "no-member-in-replica-racks": "no member that subscribes to it is in a rack with a counting replica",
    "members-full": "the members in its racks have their share, or would have to give up something equally local",
    "unknown-rack": "the rack of its reader, or of its replicas, is unknown",
}


@dataclass(frozen=True, slots=True)
class MemberReads:
    """Partitions of a topic that a member reads from one rack."""

    topic: str
    partitions: str
    count: int
    source: str | None
    kind: Kind


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member, where its rack is from, and its reads."""

    live: MemberDescription
    rack: str | None
    origin: str
    partitions: Locality
    reads: tuple[MemberReads, ...]
    unlisted: int


@dataclass(frozen=True, slots=True)
class Side:
    """A group now, or as it could be."""

    title: str
    picture: SankeyLayout
    partitions: Locality


def page(
    survey: ClusterReport, price: Price, at: datetime | None = None, *, producers: WrittenTraffic | None = None
) -> str:
    """Return the page, as HTML."""
    # `producers`: None if their metrics were not read.
    measured = bool(survey.measured.seconds)
    advice = cluster_advice(survey, free_replication=price.free_replication)
    empty = rack_map_to_fill(advice)
    return (
        environment("rackassign.monitoring", "templates", price)
        .get_template("page.html")
        .render(
            survey=survey,
            price=price,
            version=__version__,
            at=(at or datetime.now(timezone.utc)).strftime("%Y-%m-%d %H:%M UTC"),
            measured=measured,
            amount=(lambda n: f"{format_bytes(n)}/s") if measured else (lambda n: f"{n:.0f} partitions"),
            crossing=lambda flows: describe_cross(flows, price),
            saving=lambda bounds, unmeasured: describe_savings(bounds, price, unmeasured),
            verdict=lambda found: verdict(found, price, measured=measured),
            sides=lambda found: _sides(found, measured=measured),
            members=_members,
            most_members=_MOST_MEMBERS,
            reasons=_reasons,
            rates=describe_rates,
            racks=_racks(survey),
            origins=_origins(survey),
            inline=_INLINE,
            folded=len(survey.inspections) > _OPEN,
            describe_change=describe_change,
            advice=advice,
            gains=lambda change: describe_gain(change, price),
            rack_map=None if empty is None else json.dumps(empty),
            uncounted=describe_uncounted(survey, price),
            problems=[*collection_warnings(survey), *written_warnings(producers, survey)],
            producers=producers,
        )
    )


def environment(package: str, folder: str, price: Price) -> Environment:
    """Return the environment that renders a page: it escapes everything, and removes control characters."""
    # Most commands that can write a page write none.
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, folder), PackageLoader("rackassign.monitoring", "templates")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": format_bytes, "money": format_usd, "monthly": price.monthly, "count": format_count}
    made.filters["clamp"] = clamp_middle
    made.globals |= {"width": WIDTH, "height": HEIGHT, "label_height": LABEL_HEIGHT}
    made.globals |= {"percent": format_percent, "known": format_known}
    return made


def _plain(value: object) -> object:
    """Return a value without characters that would reorder the text around it, as U+202E does."""
    return strip_control_chars(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _members(found: GroupAnalysis) -> list[MemberRow]:
    racks = {member.id: member.rack for member in found.snapshot.group.members}
    members = sorted(found.snapshot.live.members, key=lambda m: (racks[m.id] or "~", m.client_id, m.id))
    of_member: dict[str, list[PartitionRead]] = {}
    for read in found.now:
        of_member.setdefault(read.member, []).append(read)
    return [_row(found, member, racks[member.id], of_member.get(member.id, [])) for member in members[:_MOST_MEMBERS]]


def _row(found: GroupAnalysis, member: MemberDescription, rack: str | None, reads: list[PartitionRead]) -> MemberRow:
    origin = "" if rack is None else "rack map" if member.id in found.snapshot.rack_map_members else "member"
    if member.id in found.snapshot.foreign_racks:
        origin += ", no broker's"
    listed = sorted(reads)[:_MOST_PARTITIONS]
    alike: dict[tuple[str, str | None, Kind], list[int]] = {}
    for read in listed:
        alike.setdefault((read.tp.topic, read.source, read.kind), []).append(read.tp.partition)
    rows = (
        MemberReads(topic, join_ranges(ids), len(ids), source, kind) for (topic, source, kind), ids in alike.items()
    )
    return MemberRow(member, rack, origin, count_locality(reads), tuple(rows), len(reads) - len(listed))


def _sides(found: GroupAnalysis, *, measured: bool) -> Iterator[Side]:
    """Yield the picture of now, and that of the group as it could be unless it is the same."""
    now = _side("Now", found.now, found.flows, measured=measured)
    if not found.reaches:
        yield now
        return
    reach = found.best
    then = _side("With rackassign", reach.reads, reach.flows, measured=measured)
    if then.partitions.unknown == then.partitions.total:
        # What it could be is unknown too, which is not the same as that it stays as it is.
        yield now
    elif then.picture == now.picture:
        yield Side("Now, and the same with rackassign", now.picture, now.partitions)
    else:
        yield from (now, then)


def _side(title: str, reads: tuple[PartitionRead, ...], flows: TrafficMatrix, *, measured: bool) -> Side:
    pairs: dict[tuple[str | None, str | None], float] = {}
    for read in reads:
        pairs[read.source, read.home] = pairs.get((read.source, read.home), 0.0) + 1.0
    return Side(title, sankey_layout(flows.pairs if measured and flows.total else pairs), count_locality(reads))


def _reasons(found: GroupAnalysis) -> tuple[tuple[int, str], ...]:
    if not found.reaches:
        return ()
    counts = found.best.reasons
    return tuple((counts[reason], words) for reason, words in _REASONS.items() if counts.get(reason))


def _racks(survey: ClusterReport) -> list[tuple[str | None, str]]:
    """Return the racks of the brokers with the brokers' IDs, as in "1-3, 7"."""
    racks: dict[str | None, list[int]] = {}
    for broker in survey.cluster.topology.brokers:
        racks.setdefault(broker.rack, []).append(broker.id)
    return [
        (rack, join_ranges(ids)) for rack, ids in sorted(racks.items(), key=lambda row: (row[0] is None, row[0] or ""))
    ]


def _origins(survey: ClusterReport) -> list[tuple[int, str]]:
    """Return the number of members by where their rack is from."""
    total = sum(len(found.snapshot.live.members) for found in survey.inspections)
    shots = [found.snapshot for found in survey.inspections]
    mapped = sum(len(shot.rack_map_members - shot.foreign_racks.keys()) for shot in shots)
    unknown = sum(len(shot.unknown) for shot in shots)
    rows = (
        (total - mapped - unknown, "report their rack"),
        (mapped, "have theirs from the rack map"),
        (unknown, "have none, or one that no broker has"),
    )
    return [(count, words) for count, words in rows if count]
