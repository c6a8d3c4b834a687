"""Names and weights in scenarios that stand for nothing, which is valid and often a slip: one warning for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackassign.locality import unknown_cost_racks
from rackassign.model import Group, weight_misfits
from rackassign.util.text import join_first

_NAMED = 5


class ScenarioWarnings:
    """Brokers and topics that scenarios name and do not list, and weights that do not fit the partitions."""

    def __init__(self) -> None:
        self._brokers: dict[int, None] = {}
        self._subscribed: dict[str, None] = {}
        self._owned: dict[str, None] = {}
        self._weighted: dict[str, None] = {}
        self._misfits: dict[str, None] = {}
        self._racks: dict[str, None] = {}

    def add(self, group: Group) -> None:
        """Collect the names of one scenario."""
        brokers, topics = {broker.id for broker in group.topology.brokers}, group.topology.topics
        replicas = {broker for rows in topics.values() for partition in rows for broker in partition.replicas}
        self._brokers |= dict.fromkeys(sorted(replicas - brokers))
        if group.weights:
            self._weighted |= dict.fromkeys(sorted(group.weights.keys() - topics.keys()))
            self._misfits |= dict.fromkeys(weight_misfits(group.weights, topics))
        self._racks |= dict.fromkeys(unknown_cost_racks(group))
        for member in group.members:
            self._subscribed |= dict.fromkeys(sorted(member.topics - topics.keys()))
            self._owned |= dict.fromkeys(topic for topic in member.owned if topic not in topics)

    def lines(self) -> Iterator[str]:
        """Yield a line for each kind of name."""
        kinds: tuple[tuple[Iterable[object], str], ...] = (
            (self._brokers, "replicas are on brokers that are not in brokers, so their racks are unknown"),
            (self._subscribed, "members subscribe to topics that are not in topics, which are left out"),
            (self._owned, "members own partitions of topics that are not in topics, which are ignored"),
            (self._weighted, "weights are of topics that are not in topics, which are ignored"),
            (self._racks, "costs are of racks that no broker and no member has, which have no effect"),
            (self._misfits, "a partition without a weight counts as 1, and other weights are ignored"),
        )
        for names, meaning in kinds:
            if names:
                yield f"{meaning}: {join_first(list(map(str, names)), _NAMED)}"
