"""Everything that is private to kafka-python and is used here, except for the patches of its defects.

Rules of this package:

* No module outside `internals` and `patches` touches a private name of kafka-python. Each use says what for; all were
  seen in 3.0.12.
* If kafka-python does not have what is needed (any more), the piece that needs it stays off and a warning says so,
  once. The consumer works as it would without.
"""

from rackassign.clients.kafka_python.internals.assignment_encoding import answers
from rackassign.clients.kafka_python.internals.fetch_observer import observe_fetches
from rackassign.clients.kafka_python.internals.group_member import Committed, Given, GiveUpFirst, Seat
from rackassign.clients.kafka_python.internals.join_diagnostics import watch_joins
from rackassign.clients.kafka_python.internals.membership import Membership, membership_behind, membership_of
from rackassign.clients.kafka_python.internals.metadata import (
    Cluster,
    assignors,
    brokers,
    cluster_of,
    near_replica_elsewhere,
    on_refresh,
    topology,
)
from rackassign.clients.kafka_python.internals.metrics import LocalityMetrics

__all__ = [
    "Cluster",
    "Committed",
    "GiveUpFirst",
    "Given",
    "LocalityMetrics",
    "Membership",
    "Seat",
    "answers",
    "assignors",
    "brokers",
    "cluster_of",
    "membership_behind",
    "membership_of",
    "near_replica_elsewhere",
    "observe_fetches",
    "on_refresh",
    "topology",
    "watch_joins",
]
