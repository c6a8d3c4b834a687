"""Analyses as JSON, and their recommendations as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rackassign.model import Partitions
from rackassign.monitoring.analysis import GroupAnalysis, RecommendedChange
from rackassign.monitoring.cluster import ObservedCluster
from rackassign.monitoring.collector import ClusterReport, SkippedGroup
from rackassign.monitoring.format import format_bytes
from rackassign.monitoring.groups import MemberDescription
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.read_rates import ReadRates
from rackassign.monitoring.traffic import TrafficMatrix, count_locality
from rackassign.util.text import counted, join_first

_NAMED = 3
"""Number of members and topics listed in a sentence; others are counted."""


def describe_action(action: RecommendedChange, inspected: GroupAnalysis) -> str:
    """Return the text of a recommendation.

    It begins with "then" if it is counted relative to the change of strategy.
    """
    if action.kind == "strategy":
        return _strategy(inspected)
    switched = not action.uncertain and any(other.kind == "strategy" for other in inspected.actions)
    return f"{'then ' if switched else ''}{_further(action, inspected)}"


def _further(action: RecommendedChange, inspected: GroupAnalysis) -> str:
    if action.kind == "selector":
        return "set replica.selector.class to the rack-aware one on all brokers, so that near replicas are read"
    if action.kind == "member":
        return f"add a member in rack {action.rack}, subscribed to {_listed(action.topics)}"
    if action.kind == "replicas" and inspected.read_policy in {"leader", "unknown"}:
        what = _partitions(action.partitions)
        return f"let a replica in rack {action.rack} lead {what}, and add one where there is none"
    if action.kind == "replicas":
        return f"add a replica of {_partitions(action.partitions)} in rack {action.rack}"
    if action.kind == "max-skew":
        return "let members differ by two partitions: max_skew=1"
    names = {member.id: member.client_id for member in inspected.snapshot.live.members}
    who = _listed([names[member] for member in action.members])
    one = len({names[member] for member in action.members}) == 1
    if action.uncertain:
        return f"state the {'rack' if one else 'racks'} of {who} in a rack map (--rack-map FILE), or set client.rack"
    given = f"give {who} {'its' if one else 'their'} rack (client.rack), which is only in the rack map"
    # Java's and librdkafka's assignors send it; those of the Python clients never do.
    return f"{given}, and an assignor that sends it"


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


def _strategy(inspected: GroupAnalysis) -> str:
    live = inspected.snapshot.live
    to = "switch to cooperative-sticky of rackassign"
    if live.kind == "consumer":
        return f"{to}, with group.protocol=classic: now the broker assigns"
    if live.strategy == "cooperative-sticky":
        return "let a member with rackassign's cooperative-sticky lead"
    return f"{to} from {live.strategy}" if live.strategy else to


def _listed(names: Iterable[str]) -> str:
    return join_first(sorted(set(names)), _NAMED)


def _partitions(partitions: Partitions) -> str:
    count = sum(map(len, partitions.values()))
    noun = "partition" if count == 1 else "partitions"
    return f"{count} {noun} of {_listed(partitions)}"


def as_json(survey: ClusterReport, price: Price) -> dict[str, Any]:
    """Return a report as JSON; money and bytes are null where they were not measured."""
    return {
        "format": "rackassign-inspection/1",
        "price": {"usd_per_gb": price.usd_per_gb, "source": price.source},
        "measured_seconds": round(survey.measured.seconds, 3),
        "read_policy": survey.cluster.read_policy,
        "brokers": [
            {"id": b.id, "rack": b.rack, "fenced": b.fenced, "selector": b.selector, "problem": b.problem or None}
            for b in survey.cluster.brokers
        ],
        "groups": [_group(inspected, survey, price) for inspected in survey.inspections],
        "skipped": [_odd(odd) for odd in survey.skipped],
        "problems": list(survey.measured.problems),
    }


def _odd(odd: SkippedGroup) -> dict[str, Any]:
    return {"group": odd.name or None, "problem": odd.problem}


def _group(inspected: GroupAnalysis, survey: ClusterReport, price: Price) -> dict[str, Any]:
    live = inspected.snapshot.live
    measured = bool(survey.measured.seconds)
    return {
        "group": live.name,
        "type": live.kind,
        "state": live.state,
        "strategy": live.strategy or None,
        "members": [_member(member, inspected) for member in live.members],
        "partitions": asdict(inspected.partitions),
        "local_share": inspected.local_share,
        "if_read_from": {mode: asdict(counts) for mode, counts in inspected.by_mode.items()},
        "out_of_sync": inspected.out_of_sync,
        "unassigned": inspected.unassigned,
        "measured_by": inspected.rates.measured_by,
        "written_bytes_per_second": round(inspected.rates.written_s, 1) if measured else None,
        "lag": _lag(inspected.rates),
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
        "actions": [_action(action, inspected, price, measured=measured) for action in inspected.actions],
        "missing_topics": dict(inspected.missing),
    }


def _lag(rates: ReadRates) -> dict[str, Any] | None:
    """Return the lag in records; null where nothing is committed, or was not measured."""
    if rates.total_lag is None:
        return None
    partitions: dict[str, dict[str, int]] = {}
    for tp, records in sorted(rates.lag.items()):
        partitions.setdefault(tp.topic, {})[str(tp.partition)] = records
    return {"records": rates.total_lag, "partitions": partitions}


def _savings(inspected: GroupAnalysis, price: Price) -> dict[str, Any]:
    least, most = inspected.savings_bytes_s
    return {
        "bytes_per_second": {"at_least": round(least, 1), "at_most": round(most, 1)},
        "usd_per_month": {"at_least": round(price.monthly(least), 2), "at_most": round(price.monthly(most), 2)},
    }


def _member(member: MemberDescription, inspected: GroupAnalysis) -> dict[str, Any]:
    shot = inspected.snapshot
    rack = next(m.rack for m in shot.group.members if m.id == member.id)
    return {
        "id": member.id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "rack": rack,
        "rack_source": None if rack is None else "map" if member.id in shot.rack_map_members else "member",
        "problem": member.problem or None,
        "partitions": asdict(count_locality(read for read in inspected.now if read.member == member.id)),
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
            for (source, home), rate in _sorted(flows.pairs)
        ],
        "unmeasured": flows.unmeasured,
    }


def _sorted(
    pairs: Mapping[tuple[str | None, str | None], float],
) -> list[tuple[tuple[str | None, str | None], float]]:
    return sorted(pairs.items(), key=lambda item: tuple((rack is None, rack or "") for rack in item[0]))


def _at_most(action: RecommendedChange, price: Price, *, measured: bool) -> dict[str, Any]:
    return {
        "partitions": action.gain_at_most,
        "bytes_per_second": action.gain_bytes_s_at_most if measured else None,
        "usd_per_month": round(price.monthly(action.gain_bytes_s_at_most), 2) if measured else None,
    }


def _action(action: RecommendedChange, inspected: GroupAnalysis, price: Price, *, measured: bool) -> dict[str, Any]:
    return {
        "kind": action.kind,
        "what": describe_action(action, inspected),
        # Of an uncertain change the gain is not known, only how much it is at most.
        "gain_partitions": None if action.uncertain else action.gain,
        "gain_bytes_per_second": action.gain_bytes_s if measured and not action.uncertain else None,
        "gain_usd_per_month": (
            round(price.monthly(action.gain_bytes_s), 2) if measured and not action.uncertain else None
        ),
        "uncertain": action.uncertain,
        "at_most": _at_most(action, price, measured=measured) if action.uncertain else None,
        "rack": action.rack,
        "members": list(action.members),
        "topics": list(action.topics),
        "partitions": {topic: list(ids) for topic, ids in action.partitions.items()},
    }
