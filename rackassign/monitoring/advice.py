"""Advice for all groups of a report together: each change once, with the groups that gain from it.

A replica serves all groups that read in its rack, and each byte that is written is copied to it once, from the rack of
the leader. So one more replica gains only where at least two groups read a partition from other racks, unless
replication is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackassign import broker_plugin
from rackassign.model import Partitions, TopicPartition
from rackassign.monitoring.analysis import GroupAnalysis, RecommendedChange
from rackassign.monitoring.collector import ClusterReport
from rackassign.text import counted, join_first, strip_control_chars

_NAMED = 3
"""Number of members, topics and groups listed in a sentence; others are counted."""

_MOST_HOSTS = 20
"""A rack map of more hosts is of their networks instead."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change, and the groups that gain from it.

    Args:
        change: The change; its gain is that of all groups together, for `replicas` without what they copy.
        groups: The groups, those that gain most first.
        first: Gain of the groups for which it is the first of their changes, in bytes per second and partitions.
    """

    change: RecommendedChange
    groups: tuple[GroupAnalysis, ...]
    first: tuple[float, int] = (0.0, 0)

    @property
    def who(self) -> str:
        """Return the names of the groups."""
        return _listed([group.snapshot.live.name for group in self.groups], ordered=True)

    @property
    def what(self) -> str:
        """Return the text of the change."""
        return describe_change(self.change, self.groups)


def cluster_advice(report: ClusterReport, *, free_replication: bool = False) -> tuple[Advice, ...]:
    """Return the changes that gain most over all groups, best first.

    Args:
        report: The groups.
        free_replication: Whether replication between racks costs nothing, as with managed Kafka of some clouds.
    """
    alike: dict[tuple[object, ...], list[tuple[RecommendedChange, GroupAnalysis]]] = {}
    for group in report.inspections:
        for change in group.actions:
            # A selector serves all groups, whatever they are; the text of the others may depend on the group.
            live = group.snapshot.live
            own = (live.kind, live.strategy, live.is_stable) if change.switches or change.kind == "strategy" else ()
            key = (change.kind, change.rack, change.topics, *own)
            alike.setdefault(key, []).append((change, group))
    rows = [_merged(changes) for changes in alike.values()]
    rows += _replicas(report, free=free_replication)
    # What is second to a cheaper change of a group is no first row of all groups.
    return tuple(
        sorted(
            rows,
            key=lambda row: (-row.first[0], -row.first[1], *_rank(row.change), row.change.kind, row.change.rack or ""),
        )
    )


def _rank(change: RecommendedChange) -> tuple[float, int]:
    return -change.gain_bytes_s_at_most, -change.gain_at_most


def _merged(changes: Sequence[tuple[RecommendedChange, GroupAnalysis]]) -> Advice:
    first = changes[0][0]
    merged = replace(
        first,
        gain=sum(change.gain for change, _ in changes),
        gain_bytes_s=sum(change.gain_bytes_s for change, _ in changes),
        gain_at_most=sum(change.gain_at_most for change, _ in changes),
        gain_bytes_s_at_most=sum(change.gain_bytes_s_at_most for change, _ in changes),
        members=tuple(member for change, _ in changes for member in change.members),
    )
    ranked = sorted(changes, key=lambda each: (*_rank(each[0]), each[1].snapshot.live.name))
    led = [change for change, group in changes if group.actions[0] is change]
    gained = sum(change.gain_bytes_s_at_most for change in led), sum(change.gain_at_most for change in led)
    return Advice(merged, tuple(group for _, group in ranked), gained)


def _replicas(report: ClusterReport, *, free: bool) -> Iterator[Advice]:
    """Yield one more replica in each rack with more readers of partitions than one copy of them costs."""
    if report.cluster.mode == "leader":  # also if brokers do not report what they have
        # Readers are sent to leaders, wherever replicas are.
        return
    racks = report.cluster.topology.broker_racks()
    topics = report.cluster.topology.topics
    readers: dict[str, dict[TopicPartition, list[GroupAnalysis]]] = {}
    for group in report.inspections:
        # What another assignment makes local needs no replica, and costs less.
        local = {read.tp for read in group.best.reads if read.kind == "local"} if group.reaches else set()
        for read in group.now:
            if read.kind == "cross" and read.home is not None and read.tp not in local:
                replicas = topics[read.tp.topic][read.tp.partition].replicas
                if read.home not in {racks.get(broker) for broker in replicas}:
                    readers.setdefault(read.home, {}).setdefault(read.tp, []).append(group)
    written = report.measured.bytes_s
    for rack, of_rack in sorted(readers.items()):
        paying = {tp: groups for tp, groups in of_rack.items() if len(groups) > (not free)}
        size = {tp: sum(_steady(group, tp, written) for group in groups) for tp, groups in paying.items()}
        copied = {tp: 0.0 if free else written.get(tp, 0.0) for tp in paying}
        if report.measured.seconds:
            paying = {tp: groups for tp, groups in paying.items() if size[tp] > copied[tp]}
        if not paying:
            continue
        gain, net = sum(map(len, paying.values())), sum(size[tp] - copied[tp] for tp in paying)
        partitions: dict[str, list[int]] = {}
        for topic, partition in sorted(paying):
            partitions.setdefault(topic, []).append(partition)
        change = RecommendedChange(
            "replicas",
            gain,
            net,
            gain,
            net,
            rack=rack,
            partitions={topic: tuple(ids) for topic, ids in partitions.items()},
            copied_bytes_s=sum(copied[tp] for tp in paying),
        )
        groups = {group.snapshot.live.name: group for of_tp in paying.values() for group in of_tp}
        yield Advice(change, tuple(groups[name] for name in sorted(groups)))


def _steady(group: GroupAnalysis, tp: TopicPartition, written: Mapping[TopicPartition, float]) -> float:
    # A group that catches up reads more than is written, and only for a while.
    return min(group.rates.bytes_s.get(tp, 0.0), written.get(tp, 0.0))


def describe_change(change: RecommendedChange, groups: Sequence[GroupAnalysis]) -> str:
    """Return the text of a change of one or several groups."""
    if change.kind == "selector":
        text = "set replica.selector.class to the rack-aware one on all brokers, so that near replicas are read"
        text = f"{text}, and client.rack on {_clients(change, groups)}" if change.members else text
        return f"{text}, and {_strategy(groups)}" if change.switches else text
    if change.kind == "rack":
        return _client_racks(change, groups)
    if change.kind == "rack-map":
        who = _clients(change, groups)
        return f"state the racks of {who} in a rack map (--rack-map FILE): what they could read locally is unknown"
    if change.kind == "replicas":
        text = f"add a replica of {_partitions(change.partitions)} in rack {change.rack}"
        return f"{text}; the gain is without what is replicated to it" if change.copied_bytes_s else text
    switch = f"{_strategy(groups)}, and " if change.switches else ""
    if change.kind == "member":
        return f"{switch}add a member in rack {change.rack}, subscribed to {_listed(change.topics)}"
    if change.kind == "max-skew":
        return f"{switch}let members differ by two partitions: max_skew=1"
    text = _strategy(groups)
    return (
        f"{text}, with the rack of each member, which {_clients(change, groups)} do not send"
        if change.members
        else text
    )


def _client_racks(change: RecommendedChange, groups: Sequence[GroupAnalysis]) -> str:
    """Return the advice for members that report no rack, or one that no broker has."""
    foreign = {member: rack for group in groups for member, rack in group.snapshot.foreign_racks.items()}
    parts = []
    if wrong := {member: rack for member, rack in foreign.items() if member in change.members}:
        racks = {rack for group in groups for rack in group.snapshot.group.topology.broker_racks().values()}
        who = _names(groups, wrong)
        parts.append(
            f"use the brokers' names of racks ({', '.join(sorted(racks))}) for {_listed(who)}, which"
            f" {'has' if len(who) == 1 else 'have'} {_listed(map(repr, wrong.values()))}"
        )
    if others := _names(groups, set(change.members) - foreign.keys()):
        alone = "client.rack alone makes this local, whatever is assigned"
        if change.gain_at_most > change.gain:
            parts.append(f"{alone}: check that each consumer of {_listed(others)} sets it")
        else:
            parts.append(f"set client.rack on {_listed(others)}, whose racks are only in the rack map")
    return "; ".join(parts)


def _clients(change: RecommendedChange, groups: Sequence[GroupAnalysis]) -> str:
    return _listed(_names(groups, change.members))


def _names(groups: Iterable[GroupAnalysis], members: Collection[str]) -> set[str]:
    """Return the client IDs of members."""
    return {member.client_id for group in groups for member in group.snapshot.live.members if member.id in members}


def _strategy(groups: Sequence[GroupAnalysis]) -> str:
    live = groups[0].snapshot.live
    to = "switch to cooperative-sticky of rackassign"
    if live.kind == "consumer" and live.strategy == broker_plugin.NAME:
        if not live.is_stable:
            return "wait until members have what the broker planned"
        # Its plan may be the best with rackassign.balance=topic, which brokers do not show.
        return "let the broker plan again, if `rackassign doctor` finds its plan outdated"
    if live.kind == "consumer":
        moved = sum(reach.moved for group in groups for reach in group.reaches if reach.strategy == broker_plugin.NAME)
        first = f"the first change afterwards moves {counted(moved, 'partition')}, so restart a member at a quiet hour"
        by_brokers = f"let brokers assign with rackassign's assignor (`rackassign doctor` shows how; {first})"
        return f"{by_brokers}, or {to} with group.protocol=classic"
    if live.strategy == "cooperative-sticky":
        lead = "let a member with rackassign's cooperative-sticky lead"
        # It may be the leader already: brokers give a static member that returns its old partitions, and ask no leader.
        static = any(member.instance_id is not None for member in live.members)
        return f"{lead}, or plan again if `rackassign doctor` finds its plan outdated" if static else lead
    return f"{to} from {live.strategy}" if live.strategy else to


def _listed(names: Iterable[str], *, ordered: bool = False) -> str:
    listed = list(names) if ordered else sorted(set(names))
    return join_first([strip_control_chars(name) for name in listed], _NAMED)


def _partitions(partitions: Partitions) -> str:
    count = sum(map(len, partitions.values()))
    noun = "partition" if count == 1 else "partitions"
    return f"{count} {noun} of {_listed(partitions)}"


def rack_map_to_fill(advice: Iterable[Advice]) -> dict[str, Any] | None:
    """Return a rack map (`--rack-map`) with the addresses of members whose racks should be stated; None without any.

    Each rack in it is empty, and has to be filled in. Of many addresses it has the networks, of 256 addresses each.
    """
    hosts = {
        member.host
        for row in advice
        if row.change.kind == "rack-map"
        for group in row.groups
        for member in group.snapshot.live.members
        if member.id in row.change.members
    }
    if not hosts:
        return None
    if len(hosts) <= _MOST_HOSTS:
        return {"hosts": dict.fromkeys(sorted(hosts), "")}
    networks = {f"{host.rpartition('.')[0]}.0/24" for host in hosts if host.count(".") == 3}  # noqa: PLR2004 - IPv4
    others = sorted(host for host in hosts if host.count(".") != 3)  # noqa: PLR2004
    return {"subnets": dict.fromkeys(sorted(networks), "")} | ({"hosts": dict.fromkeys(others, "")} if others else {})
