"""Standbys: which member is active for a partition, and which keep a warm copy of it (KIP-708, KIP-441).

Rules of this package, in addition to those of `rackassign.strategies`:

* Active members are the sticky optimum, in which a member with a warm copy replaces an owner that is gone.
* Moves that have to wait for a warm copy are in `warmup`.
* Copies are placed optimally (`solver.standby`) or as Kafka Streams places them (`client_tag_aware`). The numbers for
  both are assigned here, members in order of their IDs, partitions in order of topic and ID.
"""

from __future__ import annotations

from rackassign.strategies.loading import assign_standbys
from rackassign.strategies.standby.client_tags import validate_client_tags
from rackassign.strategies.standby.options import MODES, RULES, Mode, Rule, StandbyOptions
from rackassign.strategies.standby.plan import StandbyPlan
from rackassign.strategies.standby.warmup import Copies

__all__ = [
    "MODES",
    "RULES",
    "Copies",
    "Mode",
    "Rule",
    "StandbyOptions",
    "StandbyPlan",
    "assign_standbys",
    "validate_client_tags",
]
