"""Sentences about analyses: the verdict, recommended changes, and warnings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rackassign.model import Partitions
from rackassign.monitoring.analysis import GroupAnalysis, RecommendedChange
from rackassign.monitoring.cluster import ObservedCluster
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.format import format_bytes, format_range, format_usd, mark_lower_bound
from rackassign.monitoring.pricing import Price
from rackassign.monitoring.snapshot import Snapshot
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.util.text import counted, join_first, strip_control_chars

_NAMED = 3
"""Number of members and topics listed in a sentence; others are counted."""


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
    gain = ""
    if measured and first.gain_bytes_s and not first.uncertain:
        gain = f", which saves {format_usd(price.monthly(first.gain_bytes_s))} USD a month"
    elif first.gain and not first.uncertain:
        gain = f", which makes {counted(first.gain, 'partition')} local"
    return f"{crosses}. First {describe_action(first, inspected)}{gain}."


def describe_cross(flows: TrafficMatrix, price: Price) -> tuple[str, str]:
    """Return the bytes per second across racks, and their USD a month: ranges where racks are unknown."""
    least, most = flows.cross, flows.cross_at_most
    size = format_range(least, most, format_bytes)
    usd = format_range(price.monthly(least), price.monthly(most), format_usd)
    return mark_lower_bound(size, flows.unmeasured), mark_lower_bound(usd, flows.unmeasured)


def describe_savings(bounds: tuple[float, float], price: Price, unmeasured: int = 0) -> str:
    """Return what could be saved in USD a month.

    Args:
        bounds: Bytes per second that are saved at least, and at most.
        price: Price of cross-rack traffic.
        unmeasured: Partitions of unknown rate.
    """
    least, most = map(price.monthly, bounds)
    return mark_lower_bound(format_range(least, most, format_usd), unmeasured)


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
    if action.uncertain:
        foreign = inspected.snapshot.foreign_racks
        without = {names[member] for member in action.members if member not in foreign}
        advice = [_same_names(inspected, names, foreign)] if foreign else []
        return " and ".join([*advice, *([_state_racks(without)] if without else [])])
    who = {names[member] for member in action.members}
    # Java's and librdkafka's assignors send it; those of the Python clients never do.
    return (
        f"give {_listed(who)} {'its' if len(who) == 1 else 'their'} rack (client.rack), which is only in the rack map,"
        " and an assignor that sends it"
    )


def _same_names(inspected: GroupAnalysis, names: Mapping[str, str], foreign: Mapping[str, str]) -> str:
    """Return the advice for members with a rack that no broker has."""
    racks = ", ".join(sorted(set(inspected.snapshot.group.topology.broker_racks().values())))
    who = {names[member] for member in foreign}
    return (
        f"use the brokers' names of racks ({racks}) for {_listed(who)}, which {'has' if len(who) == 1 else 'have'}"
        f" {_listed(map(repr, foreign.values()))}"
    )


def _state_racks(who: Collection[str]) -> str:
    return (
        f"state the {'rack' if len(who) == 1 else 'racks'} of {_listed(who)} in a rack map (--rack-map FILE), or set"
        " client.rack with an assignor that sends it"
    )


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


def _strategy(inspected: GroupAnalysis) -> str:
    live = inspected.snapshot.live
    to = "switch to cooperative-sticky of rackassign"
    if live.kind == "consumer":
        return f"{to}, with group.protocol=classic: now the broker assigns"
    if live.strategy == "cooperative-sticky":
        return "let a member with rackassign's cooperative-sticky lead"
    return f"{to} from {live.strategy}" if live.strategy else to


def _listed(names: Iterable[str]) -> str:
    return join_first([strip_control_chars(name) for name in sorted(set(names))], _NAMED)


def _partitions(partitions: Partitions) -> str:
    count = sum(map(len, partitions.values()))
    noun = "partition" if count == 1 else "partitions"
    return f"{count} {noun} of {_listed(partitions)}"
