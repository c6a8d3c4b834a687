"""Analyses for people and programs: sentences, figures, prices of cross-rack traffic, and JSON.

Sentences are the verdict and warnings; those of recommended changes are in `advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rackassign import __version__
from rackassign.errors import ConfigError
from rackassign.monitoring.advice import cluster_advice, describe_change, rack_map_to_fill
from rackassign.monitoring.analysis import GroupAnalysis, RecommendedChange
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.live_groups import MemberDescription, Snapshot
from rackassign.monitoring.traffic import ObservedCluster, PartitionRead, TrafficMatrix, count_locality
from rackassign.text import counted, short_repr

if TYPE_CHECKING:
    from rackassign.monitoring.written_bytes import WrittenTraffic

_AWS, _GOOGLE = 0.02, (0.01, "Google Cloud between zones of a region: 0.01 USD/GB, paid by the sender", False)

CLOUDS: Mapping[str, tuple[float, str, bool]] = {
    "aws": (_AWS, "AWS between availability zones: 0.01 USD/GB on each side", False),
    "msk": (_AWS, "AWS between availability zones: 0.01 USD/GB on each side; MSK does not bill replication", True),
    "gcp": _GOOGLE,
    "google": _GOOGLE,
    "azure": (0.0, "Azure between availability zones of a region: free", False),
    "none": (0.0, "no price", False),
}
"""List prices of November 2026 in USD/GB for both ends together, with their source, and whether brokers replicate free
of charge; contracts may differ."""

USD_PER_GB, SOURCE = CLOUDS["aws"][:2]

_MONTH_S = 730 * 3600
"""Seconds of a month as cloud providers bill it."""

_GB = 1e9

_MOST_USD = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Price of traffic between racks.

    Args:
        usd_per_gb: Price of a GB (1e9 bytes) from one rack to another, for both ends together.
        source: Source of the price.
        free_replication: Whether it is not the price of replication, which costs nothing.

    Raises:
        ConfigError: The price is negative, above a million, or no number.
    """

    usd_per_gb: float = USD_PER_GB
    source: str = SOURCE
    free_replication: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.usd_per_gb <= _MOST_USD:
            raise ConfigError(f"price must be from 0 to {_MOST_USD} USD/GB, got {self.usd_per_gb!r}")

    @classmethod
    def from_options(cls, usd_per_gb: float | None, cloud: str | None = None) -> Price:
        """Return the price given by a user, or that of a cloud, or the default.

        Raises:
            ConfigError: Both are given, there is no list price of this cloud, or the price is invalid.
        """
        if cloud is None:
            return cls() if usd_per_gb is None else cls(usd_per_gb, "as given")
        if usd_per_gb is not None:
            raise ConfigError("give either the price (--price-per-gb) or a cloud (--cloud)")
        if cloud not in CLOUDS:
            raise ConfigError(f"cloud must be one of {', '.join(CLOUDS)}, got {short_repr(cloud)}")
        return cls(*CLOUDS[cloud])

    def monthly(self, bytes_s: float) -> float:
        """Return USD per month of 730 hours."""
        return self.of(bytes_s * _MONTH_S)

    def of(self, bytes_: float) -> float:
        """Return USD for a number of bytes."""
        return bytes_ / _GB * self.usd_per_gb


UNKNOWN = "?"

_NEXT_UNIT = 999.5
_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSANDS = ("", "k", "M", "G")
_LEAST, _MOST = 0.1, 99.9
_WHOLE_FROM_USD = 100


def format_percent(part: float, total: float) -> str:
    """Format a share, never rounded up to 100 % nor down to 0 %; a dash if the total is 0."""
    if not total:
        return "-"
    share = 100 * part / total
    if 0 < share < _LEAST:
        return f"<{_LEAST} %"
    return f">{_MOST} %" if _MOST < share < 100 else f"{share:.1f} %"  # noqa: PLR2004 - a hundred per cent


def format_known(part: int, unknown: int, total: int) -> str:
    """Format a share, marked as a lower bound if `unknown` can be part of it; ? if all of the total is unknown."""
    if total and unknown == total:
        return UNKNOWN
    return mark_lower_bound(format_percent(part, total), unknown)


def format_range(least: float, most: float, form: Callable[[float], str], unmeasured: int = 0) -> str:
    """Format an amount that is between two, each formatted by `form`; without a limit if a part is not measured."""
    if unmeasured:
        return f"≥{form(least)}" if least > 0 else UNKNOWN
    if most <= least:
        return form(least)
    return f"{form(least)} to {form(most)}" if least > 0 else f"≤{form(most)}"


def format_bytes(bytes_: float) -> str:
    """Format a number of bytes, in units of a thousand."""
    value, unit = abs(bytes_), 0
    while value >= _NEXT_UNIT and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{'-' if bytes_ < 0 else ''}{value:.3g} {_UNITS[unit]}"


def format_count(count: int) -> str:
    """Format a number of records, in thousands and millions if it is large."""
    value, unit = float(count), 0
    while value >= _NEXT_UNIT and unit < len(_THOUSANDS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_THOUSANDS[unit]}".rstrip()


def mark_lower_bound(figure: str, unmeasured: int) -> str:
    """Mark a figure that excludes some partitions."""
    return f"≥{figure}" if unmeasured else figure


def format_usd(usd: float) -> str:
    """Format an amount of money, with cents if it is small."""
    return f"{usd:,.0f}" if abs(usd) >= _WHOLE_FROM_USD else f"{usd:.2f}"


_ABSENT = frozenset({"UnknownTopicOrPartitionError", "InvalidTopicError"})
"""Errors of topics that do not exist, which have no partitions to read."""


def hidden_topics(inspected: GroupAnalysis) -> tuple[str, ...]:
    """Return the topics of a group that exist and cannot be described: what is read of them is unknown."""
    return tuple(topic for topic, why in inspected.missing.items() if why not in _ABSENT)


def verdict(inspected: GroupAnalysis, price: Price, *, measured: bool) -> str:
    """Return what matters about a group in one sentence: what crosses racks, and what changes that most.

    Args:
        inspected: The group.
        price: Price of cross-rack traffic.
        measured: Whether bytes were measured; otherwise the sentence is about partitions.
    """
    counts, flows = inspected.partitions, inspected.flows
    topics = hidden_topics(inspected)
    hidden = f"{counted(len(topics), 'topic')} cannot be described" if topics else ""
    if not counts.total:
        return f"It is unknown what it reads: {hidden}." if hidden else "It reads nothing."
    if not counts.cross + counts.unknown:
        return f"Nothing crosses racks as far as it is known: {hidden}." if hidden else "Nothing crosses racks."
    # Bytes of partitions that were not measured may cross racks as well.
    by_bytes = measured and flows.total and (flows.cross_at_most or not flows.unmeasured)
    crosses = _bytes_across(inspected, price) if by_bytes else _partitions_across(inspected)
    first = next(iter(inspected.actions), None)
    if first is None:
        return f"{crosses}, and no change that was tried reduces that."
    return f"{crosses}. First {describe_change(first, [inspected])}{_gain(first, price, measured=measured)}."


def _gain(change: RecommendedChange, price: Price, *, measured: bool) -> str:
    """Return the gain of a change as the end of a sentence."""
    if measured and change.gain_bytes_s:
        return f", which saves {format_usd(price.monthly(change.gain_bytes_s))} USD a month"
    if measured and change.gain_bytes_s_at_most and change.kind != "rack-map":
        return f", which saves {format_usd(price.monthly(change.gain_bytes_s_at_most))} USD a month at most"
    return f", which makes {counted(change.gain, 'partition')} local" if change.gain else ""


def describe_cross(flows: TrafficMatrix, price: Price) -> tuple[str, str]:
    """Return the bytes per second across racks, and their USD a month: ranges where racks are unknown."""
    least, most = flows.cross, flows.cross_at_most
    size = format_range(least, most, format_bytes, flows.unmeasured)
    return size, format_range(price.monthly(least), price.monthly(most), format_usd, flows.unmeasured)


def describe_savings(bounds: tuple[float, float], price: Price, unmeasured: int = 0) -> str:
    """Return what could be saved in USD a month.

    Args:
        bounds: Bytes per second that are saved at least, and at most.
        price: Price of cross-rack traffic.
        unmeasured: Partitions of unknown rate.
    """
    least, most = map(price.monthly, bounds)
    return format_range(least, most, format_usd, unmeasured)


def describe_gain(change: RecommendedChange, price: Price) -> tuple[str, str, str]:
    """Return what a change gains in bytes per second, in USD a month, and in partitions."""
    size = change.gain_bytes_s, change.gain_bytes_s_at_most
    return (
        format_range(*size, format_bytes),
        format_range(price.monthly(size[0]), price.monthly(size[1]), format_usd),
        format_range(change.gain, change.gain_at_most, "{:.0f}".format),
    )


def _bytes_across(inspected: GroupAnalysis, price: Price) -> str:
    if not inspected.flows.cross_at_most:
        return "Nothing is read across racks now"
    size, usd = describe_cross(inspected.flows, price)
    return f"{size}/s cross racks, {usd} USD a month"


def _partitions_across(inspected: GroupAnalysis) -> str:
    counts = inspected.partitions
    if counts.unknown == counts.total:
        return f"It is unknown which of {counted(counts.total, 'partition')} are read across racks"
    cross = format_range(counts.cross, counts.cross + counts.unknown, "{:.0f}".format)
    return f"{cross} of {counted(counts.total, 'partition')} are read across racks"


def describe_unknown(shot: Snapshot) -> str:
    """Return the members of unknown rack with their addresses, and the rack that some have; empty without any."""
    return ", ".join(
        sorted(
            f"{member.client_id} on {member.host}"
            + (f" (no broker is in {shot.foreign_racks[member.id]!r})" if member.id in shot.foreign_racks else "")
            for member in shot.unknown
        )
    )


def collection_warnings(survey: ClusterReport) -> list[str]:
    """Return the texts of what was not collected, or not completely."""
    lines = [f"{odd.name}: {odd.problem}" if odd.name else odd.problem for odd in survey.skipped]
    lines += survey.measured.problems
    lines += selector_warnings(survey.cluster)
    lines += [_not_committed(inspected, survey) for inspected in survey.inspections if inspected.rates.not_committed]
    lines += [_catches_up(inspected) for inspected in survey.inspections if inspected.rates.catches_up]
    for inspected in survey.inspections:
        name = inspected.snapshot.live.name
        lines += [f"{name}: topic {topic} is not described: {why}" for topic, why in inspected.missing.items()]
        if survey.measured.seconds and inspected.flows.unmeasured:
            lines.append(f"{name}: {inspected.flows.unmeasured} partitions were not measured, so the sums are too low")
    return lines


def _not_committed(inspected: GroupAnalysis, survey: ClusterReport) -> str:
    return (
        f"{inspected.snapshot.live.name}: lags and committed nothing in {survey.measured.seconds:.0f} s, so it counts"
        " as reading nothing; if it commits less often, use a longer --interval"
    )


def _catches_up(inspected: GroupAnalysis) -> str:
    rates = inspected.rates
    return (
        f"{inspected.snapshot.live.name}: catches up: it reads {format_bytes(sum(rates.bytes_s.values()))}/s, and"
        f" {format_bytes(rates.written_s)}/s is written, so its cost is lower once it has"
    )


def describe_rates(inspected: GroupAnalysis) -> str:
    """Return which bytes were measured, if these are not simply those that are written; else an empty text."""
    rates = inspected.rates
    if not rates.by_commits:
        return ""
    which = (
        "it lags" if rates.measured_by == "committed" else f"{counted(len(rates.by_commits), 'partition')} of it lag"
    )
    return f"{which}: bytes are computed from committed offsets, and not from what is written"


def selector_warnings(cluster: ObservedCluster) -> list[str]:
    """Return a text about the brokers that do not report their replica selector."""
    silent = [broker for broker in cluster.brokers if broker.problem]
    if not silent:
        return []
    count = f"{len(silent)} of {len(cluster.brokers)} brokers"
    problem = f"do not report their replica.selector.class ({silent[0].problem})"
    return [f"{count} {problem}: they are assumed to be like the others, or to have none"]


def describe_uncounted(survey: ClusterReport, price: Price) -> str:
    """Return what crosses racks beside the reads of the report, in one sentence.

    Followers are in sync in the long run, so replication is what is written times the followers in other racks.
    """
    start = (
        "Only what consumers read is counted. Producers and replication cross racks, too, and often more (`rackassign"
        " bill` has all of it)"
    )
    topology = survey.cluster.topology
    # Topics of groups that have ended since are measured, and not described any more.
    written = {
        tp: size
        for tp, size in survey.measured.bytes_s.items()
        if tp.partition < len(topology.topics.get(tp.topic, ()))
    }
    if not survey.measured.seconds or not written:
        return f"{start}."
    racks = topology.broker_racks()
    replicated = 0.0
    for tp, size in written.items():
        partition = topology.topics[tp.topic][tp.partition]
        home = None if partition.leader is None else racks.get(partition.leader)
        if home is not None:
            replicated += size * sum(racks.get(broker, home) != home for broker in set(partition.replicas))
    cost = "not billed" if price.free_replication else f"{format_usd(price.monthly(replicated))} USD a month"
    return (
        f"{start}: {format_bytes(sum(written.values()))}/s are written to the topics of this report, which are"
        f" {format_bytes(replicated)}/s of replication across racks ({cost})."
    )


INSPECTION_FORMAT = "rackassign-inspection/1"


def as_json(
    survey: ClusterReport, price: Price, at: datetime | None = None, *, producers: WrittenTraffic | None = None
) -> dict[str, Any]:
    """Return a report as JSON; money and bytes are null where they were not measured.

    Args:
        survey: The report.
        price: Price of cross-rack traffic.
        at: Time of the report; by default now.
        producers: What producers write; None if their metrics were not read.
    """
    advice = cluster_advice(survey, free_replication=price.free_replication)
    return {
        "format": INSPECTION_FORMAT,
        "version": __version__,
        "time": (at or datetime.now(timezone.utc)).isoformat(timespec="seconds"),
        "cluster": survey.cluster.id or None,
        "price": {
            "usd_per_gb": price.usd_per_gb,
            "source": price.source,
            "free_replication": price.free_replication,
        },
        "measured_seconds": round(survey.measured.seconds, 3),
        "read_policy": survey.cluster.read_policy,
        "brokers": [
            {"id": b.id, "rack": b.rack, "fenced": b.fenced, "selector": b.selector, "problem": b.problem or None}
            for b in survey.cluster.brokers
        ],
        "groups": [_group(inspected, survey, price) for inspected in survey.inspections],
        "advice": [
            {
                "groups": [group.snapshot.live.name for group in row.groups],
                **_action(row.change, row.groups, price, measured=bool(survey.measured.seconds)),
            }
            for row in advice
        ],
        "rack_map": rack_map_to_fill(advice),
        "producers": None if producers is None else _producers(producers, price),
        "skipped": [{"group": odd.name or None, "problem": odd.problem} for odd in survey.skipped],
        "problems": list(survey.measured.problems),
    }


def _producers(producers: WrittenTraffic, price: Price) -> dict[str, Any]:
    return {
        "measured_seconds": round(producers.seconds, 3),
        "by_totals": producers.by_totals,
        "topics": [
            {
                "topic": each.topic,
                "log_bytes_per_second": None if each.log_bytes_s is None else round(each.log_bytes_s, 1),
                "explained": producers.explained(each),
                "written": _traffic(each.written, price, measured=True),
                "read": _traffic(each.read, price, measured=True),
            }
            for each in producers.topics
        ],
    }


def _group(inspected: GroupAnalysis, survey: ClusterReport, price: Price) -> dict[str, Any]:
    live = inspected.snapshot.live
    measured = bool(survey.measured.seconds)
    racks = {member.id: member.rack for member in inspected.snapshot.group.members}
    reads: dict[str, list[PartitionRead]] = {}
    for read in inspected.now:
        reads.setdefault(read.member, []).append(read)
    return {
        "group": live.name,
        "type": live.kind,
        "state": live.state,
        "strategy": live.strategy or None,
        "epoch": live.epoch if live.kind == "consumer" else None,
        "assignment_epoch": live.assignment_epoch if live.kind == "consumer" else None,
        "members": [_member(m, inspected, racks[m.id], reads.get(m.id, ())) for m in live.members],
        "partitions": asdict(inspected.partitions),
        "local_share": inspected.local_share,
        "if_read_from": {mode: asdict(counts) for mode, counts in inspected.by_mode.items()},
        "in_each_rack": inspected.in_each_rack,
        "out_of_sync": inspected.out_of_sync,
        "unassigned": inspected.unassigned,
        "verdict": verdict(inspected, price, measured=measured),
        "measured_by": inspected.rates.measured_by,
        "written_bytes_per_second": round(inspected.rates.written_s, 1) if measured else None,
        "lag": _lag(inspected),
        **_traffic(inspected.flows, price, measured=measured),
        "savings": _savings(inspected, price) if measured else None,
        "strategies": [
            {
                "strategy": reach.strategy,
                "partitions": asdict(reach.partitions),
                "moved": reach.moved,
                **_traffic(reach.flows, price, measured=measured),
            }
            for reach in inspected.reaches
        ],
        "actions": [_action(action, [inspected], price, measured=measured) for action in inspected.actions],
        "missing_topics": dict(inspected.missing),
    }


def _lag(inspected: GroupAnalysis) -> dict[str, Any] | None:
    """Return the lag in records; null where nothing is committed, or was not measured."""
    rates = inspected.rates
    if rates.total_lag is None:
        return None
    partitions: dict[str, dict[str, int]] = {}
    for tp, records in sorted(rates.lag.items()):
        partitions.setdefault(tp.topic, {})[str(tp.partition)] = records
    racks = [{"rack": rack, "records": records} for rack, records in inspected.lag_by_rack.items()]
    return {"records": rates.total_lag, "partitions": partitions, "racks": racks}


def _savings(inspected: GroupAnalysis, price: Price) -> dict[str, Any]:
    least, most = inspected.savings_bytes_s
    return {
        "bytes_per_second": {"at_least": round(least, 1), "at_most": round(most, 1)},
        "usd_per_month": {"at_least": round(price.monthly(least), 2), "at_most": round(price.monthly(most), 2)},
    }


def _member(
    member: MemberDescription, inspected: GroupAnalysis, rack: str | None, reads: Iterable[PartitionRead]
) -> dict[str, Any]:
    mapped = inspected.snapshot.rack_map_members
    return {
        "id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "rack": rack,
        "rack_source": None if rack is None else "map" if member.id in mapped else "member",
        "problem": member.problem or None,
        "protocol": {True: "classic", False: "consumer", None: None}[member.classic],
        "epoch": member.epoch if member.epoch >= 0 else None,
        "partitions": asdict(count_locality(reads)),
    }


def _traffic(flows: TrafficMatrix, price: Price, *, measured: bool) -> dict[str, Any]:
    if not measured:
        return {"bytes_per_second": None, "usd_per_month": None, "flows": None, "unmeasured": flows.unmeasured}
    return {
        "bytes_per_second": {
            "local": round(flows.local, 1),
            "cross": round(flows.cross, 1),
            "unknown": round(flows.unknown, 1),
        },
        "usd_per_month": {
            "cross": round(price.monthly(flows.cross), 2),
            "unknown_at_most": round(price.monthly(flows.unknown), 2),
        },
        "flows": [
            {"from": source, "to": home, "bytes_per_second": round(rate, 1)}
            for (source, home), rate in sorted(
                flows.pairs.items(), key=lambda item: tuple((rack is None, rack or "") for rack in item[0])
            )
        ],
        "unmeasured": flows.unmeasured,
    }


def _action(
    action: RecommendedChange, groups: Sequence[GroupAnalysis], price: Price, *, measured: bool
) -> dict[str, Any]:
    def gain(partitions: int, bytes_s: float) -> tuple[int, float | None, float | None]:
        return partitions, bytes_s if measured else None, round(price.monthly(bytes_s), 2) if measured else None

    # Of an uncertain change the gain is not known, only how much it is at most.
    sure = (None, None, None) if action.uncertain else gain(action.gain, action.gain_bytes_s)
    most = gain(action.gain_at_most, action.gain_bytes_s_at_most)
    amounts = "partitions", "bytes_per_second", "usd_per_month"
    return {
        "kind": action.kind,
        "what": describe_change(action, groups),
        **{f"gain_{amount}": value for amount, value in zip(amounts, sure, strict=True)},
        "uncertain": action.uncertain,
        "at_most": dict(zip(amounts, most, strict=True)) if action.uncertain else None,
        "rack": action.rack,
        "members": list(action.members),
        "topics": list(action.topics),
        "partitions": {topic: list(ids) for topic, ids in action.partitions.items()},
        "copied_bytes_per_second": round(action.copied_bytes_s, 1) if measured else None,
    }
