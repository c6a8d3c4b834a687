"""The bill for people and programs: its first line, its levers as sentences with their commands, and JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rackassign import __version__
from rackassign.admin.describe import RACK_AWARE
from rackassign.bill import LINES, Line
from rackassign.bill.levers import LEVERS, Evaluation, Lever
from rackassign.bill.usage import Item, ItemKey, Items, Span, Usage, total
from rackassign.monitoring import (
    ClusterReport,
    GroupAnalysis,
    Price,
    RecommendedChange,
    cluster_advice,
    describe_change,
)
from rackassign.monitoring.report import format_bytes, format_range, format_usd
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.text import counted, join_first, strip_control_chars

if TYPE_CHECKING:
    from rackassign.bill.invoice import Explanation, Invoice

KAFKA: tuple[Line, ...] = ("replicating", "producing", "consuming")
"""Lines that are Kafka's."""

BILL_FORMAT = "rackassign-bill/1"

Source = Literal["protocol", "producers", "brokers", "network"]
"""Where a figure is from: Kafka's protocol, metrics of producers or of brokers, or the network."""

SOURCES: Mapping[Source, str] = {
    "protocol": "growth of logs and offsets; of logs that are deleted or compacted meanwhile it is estimated",
    "producers": "counters of producers; what others write is between nothing and all of it",
    "brokers": "counters of the brokers, exact by broker; bytes of record batches, without headers",
    "network": "flows between addresses, with headers of packets",
}

TITLES = {
    "fetching": "fetch from followers",
    "leaders": "lead partitions where they are written",
    "producers": "let producers choose local leaders",
    "members": "assign partitions to members in their rack",
    "replicas": "move replicas to where they are read and written",
}

_NAMED = 3
_USER = re.compile(r"(?<=://)[^/?#]*@")
_CENT = 0.005
_SHARE = 0.01
"""A gain below that share of the bill is none."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What crosses racks, what levers save, and the price.

    Args:
        usage: What is written and read.
        report: The analyses of the groups.
        evaluation: Its lines now, after each lever, and at the least.
        price: Price of traffic between racks.
        measured: Lines that are measured by a better source than the protocol.
        sources: Where producers' metrics were read, for the commands.
        connection: Options with which commands connect to the cluster.
        max_skew: That of the evaluation, for the commands.
        notes: What is not seen, or not exact.
        invoice: What Kafka explains of an invoice; None without one.
    """

    usage: Usage
    report: ClusterReport
    evaluation: Evaluation
    price: Price
    measured: Mapping[Line, tuple[Source, TrafficMatrix]] = field(default_factory=dict)
    sources: Sequence[str] = ()
    connection: str = "--bootstrap-server BOOTSTRAP"
    max_skew: int = 0
    notes: tuple[str, ...] = ()
    invoice: Explanation | None = None

    def explain(self, invoice: Invoice, mtu: int) -> Explanation:
        """Return what Kafka explains of an invoice, if all of it was like the interval."""
        from rackassign.bill.invoice import explain  # noqa: PLC0415 - imports pyarrow

        free = {"replicating"} if self.price.free_replication else set()
        packets = "network" in {self.source(line) for line in KAFKA}
        rates: dict[str, Span] = {line: self.across(line) for line in KAFKA if line not in free}
        return explain(invoice, rates, mtu=None if packets else mtu)

    def source(self, line: Line) -> Source:
        """Return where the figure of a line is from."""
        if line in self.measured:
            return self.measured[line][0]
        return "producers" if line == "producing" and self.sources else "protocol"

    def matrix(self, line: Line) -> TrafficMatrix:
        """Return the traffic of a line by pair of racks."""
        if line in self.measured:
            return self.measured[line][1]
        pairs: dict[tuple[str | None, str | None], float] = {}
        for key, item in self.evaluation.now.items():
            for pair, rate in item.traffic.pairs.items() if key.line == line else ():
                pairs[pair] = pairs.get(pair, 0.0) + rate
        return TrafficMatrix(pairs)

    def across(self, line: Line, items: Items | None = None) -> Span:
        """Return bytes per second of a line across racks, now or of other items."""
        # `items`: of a lever; what it leaves of a line is measured in the shares of what it leaves of the computed one.
        now = total(item.across for key, item in self.evaluation.now.items() if key.line == line)
        after = now if items is None else total(item.across for key, item in items.items() if key.line == line)
        if line not in self.measured:
            return after
        matrix = self.measured[line][1]
        seen = Span(matrix.cross, matrix.cross_at_most)
        # What the protocol does not show does not change either.
        return seen if after == now or not now.most else after.times(seen.most / now.most)

    def usd(self, line: Line, bytes_s: float) -> float:
        """Return USD a month of a line."""
        return 0.0 if line == "replicating" and self.price.free_replication else self.price.monthly(bytes_s)

    def money(self, items: Items | None = None) -> tuple[float, float]:
        """Return USD a month of Kafka's lines, now or of the items of a lever: at least, and at most."""
        spans = [(line, self.across(line, items)) for line in KAFKA]
        least, most = (sum(self.usd(line, span[i]) for line, span in spans) for i in (0, 1))
        return least, most

    def least(self, line: Line) -> float:
        """Return bytes per second of a line that no lever goes below."""
        return self.as_measured(line, sum(rate for key, rate in self.evaluation.floor.items() if key.line == line))

    def as_measured(self, line: Line, rate: float) -> float:
        """Return a computed part of a line in proportion to what is measured of it."""
        now = total(item.across for key, item in self.evaluation.now.items() if key.line == line).most
        return rate * self.across(line).most / now if now else 0.0

    @property
    def floor(self) -> float:
        """USD a month that no lever goes below, of all lines together."""
        if not self.measured:
            return self.price.monthly(self.evaluation.least)
        return sum(self.usd(line, self.least(line)) for line in KAFKA)

    def beyond(self, lever: Lever) -> tuple[float, float]:
        """Return USD a month that a lever saves after those before it: at least, and at most."""
        place = LEVERS.index(lever.kind)
        before = self.evaluation.levers[place - 1].items if place else self.evaluation.now
        return self._saved(lever, lever.beyond, before, lever.items)

    def alone(self, lever: Lever) -> tuple[float, float]:
        """Return USD a month that a lever saves from the cluster as it is: at least, and at most."""
        return self._saved(lever, lever.alone, self.evaluation.now, lever.single)

    def _saved(self, lever: Lever, computed: Span, before: Items, after: Items) -> tuple[float, float]:
        least, most = self.price.monthly(computed.least), self.price.monthly(computed.most)
        if not self.measured:
            return least, most
        if lever.kind == "producers":
            return least, min(most, self.price.monthly(self.across("producing", before).most))
        least, most = sorted(then - now for then, now in zip(self.money(before), self.money(after), strict=True))
        return least, most

    @property
    def saving(self) -> tuple[float, float]:
        """USD a month that all levers save together: at least, and at most."""
        saved = [self.beyond(lever) for lever in self.evaluation.levers]
        # Of what unknown racks may cost, several levers may save the same bytes.
        all_ = max(0.0, self.money()[1] - self.floor)
        least, most = (min(all_, sum(of[i] for of in saved)) for i in (0, 1))
        return least, most


def usd_range(least: float, most: float) -> str:
    """Format an amount of money that is between two."""
    return format_range(least, most if most - least >= _CENT else least, format_usd)


def headline(bill: Bill) -> str:
    """Return the bill in one line."""
    if not bill.report.cluster.topology.broker_racks():
        return "No broker has a rack (broker.rack), so what crosses zones is not known."
    amount = usd_range(*bill.money())
    if not bill.price.usd_per_gb:
        return f"Traffic between racks costs nothing ({bill.price.source}): there is nothing to save."
    if not bill.report.measured.seconds:
        return "Bytes were not measured, so there is no bill."
    parts = ", ".join(
        f"{line} {usd_range(*(bill.usd(line, amount) for amount in bill.across(line)))}"
        for line in KAFKA
        if bill.across(line).most
    )
    costs = f"Kafka's traffic between racks costs {amount} USD a month ({parts or 'nothing crosses'})"
    if late := [strip_control_chars(g.snapshot.live.name) for g in bill.report.inspections if g.rates.catches_up]:
        costs += (
            f", while {join_first(late, _NAMED)} {'catches' if len(late) == 1 else 'catch'} up, which does not last"
        )
    least, most = bill.saving
    least_possible = f"{format_usd(bill.floor)} is the least that is possible"
    if most < _CENT:
        now = bill.money()
        if now[1] - now[0] >= _CENT:
            return f"{costs}. No lever lowers that for certain, since racks are not known; {least_possible}."
        if now[0] - bill.floor >= max(_CENT, _SHARE * now[0]):
            return f"{costs}. No lever that was tried lowers that; {least_possible}."
        return f"Nothing is to be gained: {costs}, and no lever lowers that."
    gaining = bill.evaluation.gaining
    first = next((lever for lever in gaining if lever.beyond.least > 0), gaining[0])
    which = "the first lever" if first is gaining[0] else f"lever {gaining.index(first) + 1}"
    saved = usd_range(*bill.beyond(first))
    return (
        f"{costs}. {usd_range(least, most)} of it can be saved, {saved} with {which}: {TITLES[first.kind]}."
        f" {least_possible}."
    )


def summary(lever: Lever, bill: Bill) -> str:
    """Return what a lever saves and costs, in one line."""
    saved, alone = usd_range(*bill.beyond(lever)), usd_range(*bill.alone(lever))
    line = f"{TITLES[lever.kind]}: saves {saved} USD a month (alone {alone}); {once(lever, bill)}"
    return line if lever.alone.least >= 0 else f"{line}. Only after those before it: alone it may cost more"


def once(lever: Lever, bill: Bill) -> str:
    """Return what a lever costs once: bytes that are copied, and in how many days that is paid back."""
    if lever.change.joined:
        return f"nothing is copied; {counted(len(lever.change.joined), 'member')} more run for good"
    if not lever.change.copied:
        return "nothing is copied"
    sizes = bill.report.measured.sizes
    copied = sum(sizes.get(tp, 0) for tp in lever.change.copied)
    price = replace(bill.price, usd_per_gb=0.0) if bill.price.free_replication else bill.price
    usd = price.of(sum(sizes.get(tp, 0) * count for tp, count in lever.change.copied.items()))
    least, most = (saved * 12 / 365 for saved in bill.beyond(lever))
    days = f"{usd / (least or most):.1f} days" if usd and most else ""
    back = f", paid back in {days}{'' if least else ' at the earliest'}" if days else ""
    kept = ", and stay on disks" if lever.change.added else ""
    return f"{format_bytes(copied)} are copied once{kept}, {format_usd(usd)} USD across racks{back}"


def what(lever: Lever, bill: Bill) -> str:
    """Return what is to be done for a lever."""
    if lever.kind == "fetching":
        return _fetching(bill)
    if lever.kind == "leaders":
        more = "".join(
            f"; --max-skew {skew} saves {format_usd(bill.price.monthly(saved))} more"
            for skew, saved in lever.change.skews.items()
        )
        return f"elect leaders where the fewest bytes cross racks, as even as they are{more}"
    if lever.kind == "producers":
        return (
            "RackAwareProducer or its partitioner in producers of records without keys (Java: the partitioner of"
            " KIP-1123); how many of these bytes have keys is not known, so this is at most"
        )
    if lever.kind == "members":
        parts = [_fetching(bill)] if lever.change.fetches else []
        return "; ".join((*parts, *_assigned(lever.change.groups), *_joined(lever, bill)))
    settings = f"{_fetching(bill)}; " if lever.change.fetches else ""
    if lever.change.added:
        topics = join_first(sorted({strip_control_chars(tp.topic) for tp in lever.change.copied}), _NAMED)
        partitions = counted(len(lever.change.copied), "partition")
        return f"{settings}one more replica of {partitions} of {topics} in rack {lever.change.added}"
    if lever.change.groups:
        return (
            f"{settings}move replicas to the racks of {strip_control_chars(lever.change.groups[0].snapshot.live.name)}"
        )
    return f"{settings}move replicas and leaders to where producers are"


def commands(lever: Lever, bill: Bill) -> list[str]:
    """Return the commands that do it, which run as they are; empty if it is a setting or a change of clients."""
    # Pages are passed on: a password in an address is not.
    sources = (_USER.sub("USER:PASSWORD@", source) for source in bill.sources)
    near = "".join(f" --near-producers {quote(source)}" for source in sources)
    near += f" --max-skew {bill.max_skew}" if bill.max_skew else ""
    near += " --cloud msk" if bill.price.free_replication and bill.sources else ""
    if lever.kind == "leaders":
        return [f"rackassign balance-leaders {bill.connection}{near}"]
    if lever.kind != "replicas" or lever.change.added:
        return []
    if lever.change.groups:
        near = f" --near-group {quote(lever.change.groups[0].snapshot.live.name)}"
    apply = f"rackassign reassign apply {bill.connection}"
    return [f"rackassign reassign plan {bill.connection}{near}", apply]


def _fetching(bill: Bill) -> str:
    groups = bill.report.inspections
    # Whether members of unknown rack have `client.rack` is not known. Those that gain nothing by it are not named.
    members: dict[bool, set[str]] = {False: set(), True: set()}
    for change in (change for group in groups for change in group.actions if change.kind in {"selector", "rack"}):
        members[change.uncertain].update(change.members)
    if bill.report.cluster.serving_all():
        every = RecommendedChange("selector", members=tuple(sorted(members[False] | members[True])))
        return f"{describe_change(every, groups)} (replica.selector.class={RACK_AWARE})"
    if not any(members.values()):
        members[True] = {member.id for group in groups for member in group.snapshot.unknown}
        members[False] = {member for group in groups for member in group.snapshot.leaders_only} - members[True]
    return "; ".join(
        describe_change(RecommendedChange("rack", gain_at_most=int(unsure), members=tuple(sorted(of))), groups)
        for unsure, of in members.items()
        if of
    )


def owners(lever: Lever) -> str:
    """Return one sentence for the owners of the clients that a lever is about."""
    if lever.kind == "fetching":
        return (
            "To the owners of consumers: set client.rack to the zone that each consumer runs in, written as the brokers"
            " write it; assignment, offsets and records stay as they are."
        )
    if lever.kind == "producers":
        return (
            "To the owners of producers: records without a key may go to any partition, so let them go to one that is"
            " led in your zone; records with keys stay where they are."
        )
    if lever.kind == "members":
        names = join_first([strip_control_chars(group.snapshot.live.name) for group in lever.change.groups], _NAMED)
        return f"To the owners of {names}: one rolling restart with another assignor; what is processed stays."
    if lever.kind == "leaders":
        return "To the owners of clients: nothing changes for you but who leads, for which clients look themselves."
    return "To the owners of topics: replicas are copied while you read and write, with a throttle if you give one."


def _assigned(groups: Sequence[GroupAnalysis]) -> Iterator[str]:
    """Yield how rackassign is to assign, once for groups alike."""
    alike: dict[tuple[str, str, bool], list[GroupAnalysis]] = {}
    for group in groups:
        live = group.snapshot.live
        alike.setdefault((live.kind, live.strategy, live.is_stable), []).append(group)
    for same in alike.values():
        mapped = tuple(member for group in same for member in sorted(group.snapshot.rack_map_members))
        names = join_first([strip_control_chars(group.snapshot.live.name) for group in same], _NAMED)
        yield f"{names}: {describe_change(RecommendedChange('strategy', members=mapped), same)}"


def _joined(lever: Lever, bill: Bill) -> Iterator[str]:
    for name, (member, saved) in lever.change.joined.items():
        topics = join_first(list(map(strip_control_chars, member.topics)), _NAMED)
        usd = format_usd(bill.price.monthly(bill.as_measured("consuming", saved)))
        yield (
            f"{strip_control_chars(name)}: one more member in rack {member.rack}, subscribed to {topics}, for {usd} USD"
            " of it"
        )


def describe_invoice(found: Explanation) -> list[str]:
    """Return what Kafka explains of an invoice, as sentences."""
    records = [("Kafka's records", found.payload), ("headers", found.headers)]
    parts = (*(records if found.headers.most else [("Kafka", found.payload)]), ("others", found.rest))
    shares = []
    for name, span in parts if found.billed > 0 else ():
        share = span.times(1 / found.billed)
        text = format_range(share.least, share.most, "{:.0%}".format)
        if found.cost:
            text += f", {usd_range(*share.times(found.cost))} {found.currency}"
        shares.append(f"{name} {format_range(*span, format_bytes)} ({text})")
    cost = f" for {format_usd(found.cost)} {found.currency}" if found.cost else ""
    billed = [
        f"The invoice has {format_bytes(found.billed)} between zones, both ends counted{cost}: {', '.join(shares)}."
    ]
    return [*(billed if found.billed > 0 else ()), *(f"{text[0].upper()}{text[1:]}." for text in found.sentences)]


def further(bill: Bill) -> list[str]:
    """Return what levers leave: unknown racks, what even leaders cost, and groups that read across racks."""
    rows = cluster_advice(bill.report, free_replication=bill.price.free_replication)
    lines = [f"{row.who}: {row.what}." for row in rows if row.change.kind == "rack-map"]
    silent = [strip_control_chars(g.snapshot.live.name) for g in bill.report.inspections if g.snapshot.unknown]
    if silent and not lines:
        lines = [f"The racks of members of {join_first(silent, _NAMED)} are not known: state them in --rack-map FILE."]
    leaders = next(lever for lever in bill.evaluation.levers if lever.kind == "leaders")
    if leaders.change.skews and leaders.beyond.most <= 0:
        skew, saved = next(iter(leaders.change.skews.items()))
        usd = format_usd(bill.price.monthly(saved))
        lines.append(
            f"Leaders are near producers as far as even leaders can be: --max-skew {skew} saves {usd} USD a month."
        )
    across: dict[str, float] = {}
    for key, item in bill.evaluation.levers[-1].items.items():
        if key.line == "consuming" and key.group and item.across.least:
            across[key.group] = across.get(key.group, 0.0) + item.across.least
    names = [strip_control_chars(name) for name in sorted(across, key=lambda name: (-across[name], name))]
    if names:
        usd = format_usd(bill.price.monthly(sum(across.values())))
        lines.append(
            f"{join_first(names, _NAMED)} still read {usd} USD a month across racks then:"
            f" `rackassign scale {bill.connection} --group {quote(names[0])}` shows which numbers of members do not."
        )
    return lines


def ranked(items: Items) -> list[tuple[ItemKey, Item]]:
    """Return items that cross racks, the largest first."""
    across = ((key, item) for key, item in items.items() if item.across.most > 0)
    return sorted(across, key=lambda row: (-row[1].across.most, row[0]))


class Cause(NamedTuple):
    """A topic that is written, or a group with all that it reads: what crosses racks now, after all levers, at least.

    `topics` are those that it reads, the one of most bytes first.
    """

    line: Line
    topics: list[str]
    group: str
    now: Span
    after: Span
    least: float


def causes(evaluation: Evaluation) -> list[Cause]:
    """Return who causes most, the largest first."""
    # A group that reads a hundred topics would be a hundred small items, behind all topics that are written.
    found: dict[tuple[Line, str, str], list[ItemKey]] = {}
    for key, _ in ranked(evaluation.now):
        found.setdefault((key.line, key.group, "" if key.group else key.topic), []).append(key)
    last = evaluation.levers[-1].items
    rows = [
        Cause(
            line,
            [key.topic for key in keys],
            group,
            total(evaluation.now[key].across for key in keys),
            total(last[key].across for key in keys if key in last),
            sum(evaluation.floor.get(key, 0.0) for key in keys),
        )
        for (line, group, _), keys in found.items()
    ]
    return sorted(rows, key=lambda row: -row.now.most)


def as_json(bill: Bill, at: datetime | None = None) -> dict[str, Any]:
    """Return the bill as JSON; `at` is its time, by default now."""
    evaluation, report = bill.evaluation, bill.report
    stages = [evaluation.now, *(lever.items for lever in evaluation.levers)]
    return {
        "format": BILL_FORMAT,
        "version": __version__,
        "time": (at or datetime.now(timezone.utc)).isoformat(timespec="seconds"),
        "cluster": report.cluster.id or None,
        "measured_seconds": round(report.measured.seconds, 3),
        "price": {
            "usd_per_gb": bill.price.usd_per_gb,
            "source": bill.price.source,
            "free_replication": bill.price.free_replication,
        },
        "headline": headline(bill),
        "usd_per_month": _usd(*bill.money()),
        "saving_usd_per_month": _usd(*bill.saving),
        "floor_usd_per_month": round(bill.floor, 2),
        "lines": [
            {
                "line": line,
                "source": bill.source(line),
                **_amount(bill, line, bill.across(line)),
                "after": [
                    {"lever": lever.kind, **_amount(bill, line, bill.across(line, lever.items))}
                    for lever in evaluation.levers
                ],
                "floor_bytes_per_second": round(bill.least(line), 1),
                "flows": [
                    {"from": source, "to": home, "bytes_per_second": round(rate, 1)}
                    for (source, home), rate in sorted(
                        bill.matrix(line).pairs.items(),
                        key=lambda row: tuple((rack is None, rack or "") for rack in row[0]),
                    )
                ],
            }
            for line in LINES
        ],
        "items": [
            {
                "line": key.line,
                "topic": key.topic or None,
                "group": key.group or None,
                **_amount(bill, key.line, item.across),
                "after": [
                    {"lever": lever.kind, **_amount(bill, key.line, stage[key].across if key in stage else Span())}
                    for lever, stage in zip(evaluation.levers, stages[1:], strict=True)
                ],
                "floor_bytes_per_second": round(evaluation.floor.get(key, 0.0), 1),
            }
            for key, item in ranked(evaluation.now)
        ],
        "levers": [
            {
                "lever": lever.kind,
                "alone": _usd(*bill.alone(lever)),
                "beyond": _usd(*bill.beyond(lever)),
                "commands": commands(lever, bill) if lever.beyond.most > 0 else [],
                "what": what(lever, bill) if lever.beyond.most > 0 else None,
                "once": once(lever, bill),
                "owners": owners(lever) if lever.beyond.most > 0 else None,
            }
            for lever in evaluation.levers
        ],
        "invoice": None
        if bill.invoice is None
        else {
            "billed_bytes": round(bill.invoice.billed),
            "cost": round(bill.invoice.cost, 2),
            "currency": bill.invoice.currency,
            "payload_bytes": _bytes(bill.invoice.payload),
            "header_bytes": _bytes(bill.invoice.headers),
            "other_bytes": _bytes(bill.invoice.rest),
            "sentences": describe_invoice(bill.invoice),
        },
        "notes": list(bill.notes),
    }


def _bytes(span: Span) -> dict[str, int]:
    return {"at_least": round(span.least), "at_most": round(span.most)}


def _usd(least: float, most: float) -> dict[str, float]:
    return {"at_least": round(least, 2), "at_most": round(most, 2)}


def _amount(bill: Bill, line: Line, span: Span) -> dict[str, Any]:
    return {
        "bytes_per_second": {"at_least": round(span.least, 1), "at_most": round(span.most, 1)},
        "usd_per_month": _usd(bill.usd(line, span.least), bill.usd(line, span.most)),
    }
