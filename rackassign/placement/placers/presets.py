"""Rules of other systems that keep copies apart, named after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rackassign.errors import ConfigError
from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.placer import UsableBroker
from rackassign.placement.placers.optimal import OptimalPlacer


class _Preset(OptimalPlacer):
    """The exact placer with rules of its own.

    Attributes:
        own_rules: Settings that follow from the rules of the system, and cannot be set.
    """

    own_rules: ClassVar[frozenset[str]]

    def configure(self, configs: dict[str, Any]) -> None:
        """Set the settings.

        Raises:
            ConfigError: A setting is unknown or invalid, or follows from the rules of the system.
        """
        taken = sorted(self.own_rules.intersection(configs))
        if taken:
            raise ConfigError(f"{', '.join(taken)} cannot be set: the rules of this placer determine it")
        OptimalPlacer.configure(self, configs)


def _used(brokers: Sequence[UsableBroker], rules: PlacementConstraints, num_replicas: int) -> list[UsableBroker]:
    """Return the brokers that the exact placer uses: offline ones only if there are too few others."""
    usable = [broker for broker in brokers if broker.id not in rules.exclude]
    awake = [broker for broker in usable if not broker.fenced]
    return awake if len(awake) >= num_replicas else usable


class ElasticsearchPlacer(_Preset):
    """Allocation awareness: a rack gets an equal share of the copies, rounded up; excess ones become placeholders.

    With `forced_racks` (forced awareness) the share of an offline rack stays free as well. A broker without a rack gets
    nothing if another broker has one, like a node without the attribute.
    """

    own_rules = frozenset({"max_per_rack", "on_shortage", "rackless"})

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return even racks, counted over forced and existing racks, and at most that many replicas in each."""
        rules = super().rules_for(num_replicas, brokers)
        if any(broker.rack is not None and broker.id not in rules.exclude for broker in brokers):
            rules = replace(rules, exclude=rules.exclude.union(b.id for b in brokers if b.rack is None))
        known = {broker.rack for broker in _used(brokers, rules, num_replicas) if broker.rack is not None}
        most = -(-num_replicas // max(1, len(known | rules.forced_racks)))
        return replace(rules, max_per_rack=most, on_shortage="placeholder")


class HadoopPlacer(_Preset):
    """Two racks for three replicas, like HDFS: writes are cheaper, and the loss of one rack loses no data.

    No rack has more than (replicas - 1) / racks + 2 replicas of a partition, rounded down, nor all of them if there are
    two racks. Three or more replicas have two in one rack, unless racks are too small for that. With one rack there is
    no limit.
    """

    own_rules = frozenset({"max_per_rack", "min_racks", "max_racks", "on_shortage"})

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return the limits for a replication factor, as HDFS computes them from the racks."""
        rules = super().rules_for(num_replicas, brokers)
        in_rack = Counter(broker.rack for broker in _used(brokers, rules, num_replicas))
        racks, most = max(1, len(in_rack)), num_replicas
        if racks > 1 and num_replicas > 1:
            most = min((num_replicas - 1) // racks + 2, num_replicas - 1)
        sizes = sorted((min(size, most) for size in in_rack.values()), reverse=True)
        few = max(2, num_replicas - 1)
        return replace(
            rules,
            max_per_rack=max(1, most),
            min_racks=min(2, num_replicas, racks),
            max_racks=few if sum(sizes[:few]) >= num_replicas else None,
            on_shortage="error",
        )


class RedisPlacer(_Preset):
    """Rack-zone awareness: no two replicas of a partition in one rack, otherwise an error."""

    own_rules = frozenset({"max_per_rack", "min_racks", "on_shortage"})

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return strictly one replica per rack."""
        rules = super().rules_for(num_replicas, brokers)
        return replace(rules, max_per_rack=1, min_racks=None, on_shortage="error")
