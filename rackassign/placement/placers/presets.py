"""Rules of other systems that keep copies apart, named after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rackassign.placement.constraints import PlacementConstraints
from rackassign.placement.placer import UsableBroker
from rackassign.placement.placers.optimal import OptimalPlacer


class ElasticsearchPlacer(OptimalPlacer):
    """Allocation awareness: a rack gets an equal share of the copies, rounded up; excess ones become placeholders.

    With `forced_racks` (forced awareness) the share of an offline rack stays free as well. A broker without a rack gets
    nothing if another broker has one, like a node without the attribute.
    """

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return even racks, counted over forced and existing racks, and at most that many replicas in each."""
        rules = super().rules_for(num_replicas, brokers)
        known = {broker.rack for broker in brokers if broker.rack is not None and broker.id not in rules.exclude}
        without = frozenset(broker.id for broker in brokers if broker.rack is None) if known else frozenset()
        most = -(-num_replicas // max(1, len(known | rules.forced_racks)))
        return replace(rules, max_per_rack=most, exclude=rules.exclude | without, on_shortage="placeholder")


class HadoopPlacer(OptimalPlacer):
    """Two racks for three replicas, like HDFS: writes are cheaper, and the loss of one rack loses no data.

    No rack has more than (replicas - 1) / racks + 2 replicas of a partition, rounded down, nor all of them if there are
    two racks. Three or more replicas have two in one rack, unless racks are too small for that. With one rack there is
    no limit.
    """

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return the limits for a replication factor, as HDFS computes them from the racks."""
        rules = super().rules_for(num_replicas, brokers)
        usable = [broker for broker in brokers if broker.id not in rules.exclude]
        awake = [broker for broker in usable if not broker.fenced]
        in_rack = Counter(broker.rack for broker in (awake if len(awake) >= num_replicas else usable))
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


class RedisPlacer(OptimalPlacer):
    """Rack-zone awareness: no two replicas of a partition in one rack, otherwise an error."""

    def rules_for(self, num_replicas: int, brokers: Sequence[UsableBroker]) -> PlacementConstraints:
        """Return strictly one replica per rack."""
        rules = super().rules_for(num_replicas, brokers)
        return replace(rules, max_per_rack=1, min_racks=None, on_shortage="error")
