"""Everything that is private to kafka-python and is used here, except for the patches of its defects.

Rules of this package:

* No module outside `internals` and `patches` touches a private name of kafka-python. Each use says what for; all were
  seen in 3.0.12.
* If kafka-python does not have what is needed (any more), the piece that needs it stays off and a warning says so,
  once. The consumer works as it would without.
"""

from rackassign.clients.kafka_python.internals.assignment_encoding import encode_member_assignments
from rackassign.clients.kafka_python.internals.fetch_observer import observe_fetches
from rackassign.clients.kafka_python.internals.group_member import (
    CommittedOffset,
    GroupOnlyMember,
    MemberAssignment,
    RevocationRequired,
)
from rackassign.clients.kafka_python.internals.join_diagnostics import warn_on_join_response
from rackassign.clients.kafka_python.internals.membership import Membership, find_membership, membership_of
from rackassign.clients.kafka_python.internals.metadata import (
    Cluster,
    assignors,
    brokers,
    cluster_of,
    missed_local_replica,
    on_refresh,
    topology,
)
from rackassign.clients.kafka_python.internals.metrics import LocalityMetrics

__all__ = [
    "Cluster",
    "CommittedOffset",
    "GroupOnlyMember",
    "LocalityMetrics",
    "MemberAssignment",
    "Membership",
    "RevocationRequired",
    "assignors",
    "brokers",
    "cluster_of",
    "encode_member_assignments",
    "find_membership",
    "membership_of",
    "missed_local_replica",
    "observe_fetches",
    "on_refresh",
    "topology",
    "warn_on_join_response",
]
