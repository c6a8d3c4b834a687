"""Standbys: who runs what, and who keeps a warm copy of it (KIP-708, KIP-441).

Rules of this room, beyond those of strategies:

* Who runs a partition is the sticky optimum, in which a member with a warm copy stands in for an owner that is gone.
* What has to wait for a warm copy is said in `rounds`.
* Copies are placed best (`optimum.place_replicas`) or as Kafka Streams places them (`kafka`); the numbers of both are
  made here, members in order of their ids, partitions in order of topic and id.
"""

from __future__ import annotations

from rackassign.strategies.standby.assign import StandbyPlan, assign_standbys
from rackassign.strategies.standby.client_tags import validate_client_tags
from rackassign.strategies.standby.options import MODES, RULES, Mode, Rule, StandbyOptions
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
