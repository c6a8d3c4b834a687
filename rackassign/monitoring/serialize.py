"""Analyses as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from rackassign import __version__
from rackassign.monitoring.analysis import GroupAnalysis, RecommendedChange
from rackassign.monitoring.collector import ClusterReport, SkippedGroup
from rackassign.monitoring.describe import describe_action, verdict
from rackassign.monitoring.groups import MemberDescription
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.traffic import PartitionRead, TrafficMatrix, count_locality

INSPECTION_FORMAT = "rackassign-inspection/1"


def as_json(survey: ClusterReport, price: Price, at: datetime | None = None) -> dict[str, Any]:
    """Return a report as JSON; money and bytes are null where they were not measured.

    Args:
        survey: The report.
        price: Price of cross-rack traffic.
        at: Time of the report; by default now.
    """
    return {
        "format": INSPECTION_FORMAT,
        "version": __version__,
        "time": (at or datetime.now(timezone.utc)).isoformat(timespec="seconds"),
        "cluster": survey.cluster.id or None,
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
    racks = {member.id: member.rack for member in inspected.snapshot.group.members}
    reads: dict[str, list[PartitionRead]] = {}
    for read in inspected.now:
        reads.setdefault(read.member, []).append(read)
    return {
        "group": live.name,
        "type": live.kind,
        "state": live.state,
        "strategy": live.strategy or None,
        "members": [_member(m, inspected, racks[m.id], reads.get(m.id, ())) for m in live.members],
        "partitions": asdict(inspected.partitions),
        "local_share": inspected.local_share,
        "if_read_from": {mode: asdict(counts) for mode, counts in inspected.by_mode.items()},
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
        "actions": [_action(action, inspected, price, measured=measured) for action in inspected.actions],
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
