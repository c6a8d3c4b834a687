"""Rules of other systems that keep copies apart, by their names."""

from __future__ import annotations

from dataclasses import replace

from rackassign.placement.optimal import OptimalPlacer
from rackassign.placement.rules import Rules

_HADOOP_PER_RACK = 2


class ElasticsearchPlacer(OptimalPlacer):
    """Forced awareness: with `forced_racks`, the part of a rack that is down stays free, as placeholders."""

    def rules_for(self, num_replicas: int) -> Rules:
        """Return even racks, counted over those forced, and no crowding."""
        return replace(super().rules_for(num_replicas), max_per_rack="even", on_shortage="placeholder")


class HadoopPlacer(OptimalPlacer):
    """Two racks for three replicas, as HDFS does: cheaper to write, and safe against the loss of one rack.

    No rack has more than two replicas of a partition, and from three on there are fewer racks than replicas.
    """

    def rules_for(self, num_replicas: int) -> Rules:
        """Return the limits for so many replicas."""
        rules = super().rules_for(num_replicas)
        return replace(
            rules,
            max_per_rack=_HADOOP_PER_RACK,
            min_racks=min(2, num_replicas),
            max_racks=max(2, num_replicas - 1),
            on_shortage="error",
        )


class RedisPlacer(OptimalPlacer):
    """Rack-zone awareness: no two replicas of a partition in one rack, or none at all."""

    def rules_for(self, num_replicas: int) -> Rules:
        """Return one replica a rack, strictly."""
        return replace(super().rules_for(num_replicas), max_per_rack=1, min_racks=None, on_shortage="error")
