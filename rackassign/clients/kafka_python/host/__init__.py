"""Everything of kafka-python that is private, and the remedies for its defects.

Rules of this room:

* No module outside touches a private name of kafka-python. Each use here says what for; all were seen in 3.0.12.
* Nothing is patched globally. A remedy shadows methods on the one instance it is given.
* If the host does not have what is needed (any more), the piece that needs it stays off and a warning says so, once;
  the consumer works as it would without.
"""

from rackassign.clients.kafka_python.host.answers import answers
from rackassign.clients.kafka_python.host.cluster import (
    Cluster,
    assignors,
    brokers,
    cluster_of,
    near_replica_elsewhere,
    on_refresh,
    topology,
)
from rackassign.clients.kafka_python.host.fetches import observe_fetches
from rackassign.clients.kafka_python.host.membership import Membership, membership_behind, membership_of
from rackassign.clients.kafka_python.host.metrics import LocalityMetrics
from rackassign.clients.kafka_python.host.remedies import READING, REMEDIES
from rackassign.clients.kafka_python.host.remedy import Remedy, install
from rackassign.clients.kafka_python.host.seat import Committed, Given, GiveUpFirst, Seat
from rackassign.clients.kafka_python.host.signs import watch_joins

__all__ = [
    "READING",
    "REMEDIES",
    "Cluster",
    "Committed",
    "GiveUpFirst",
    "Given",
    "LocalityMetrics",
    "Membership",
    "Remedy",
    "Seat",
    "answers",
    "assignors",
    "brokers",
    "cluster_of",
    "install",
    "membership_behind",
    "membership_of",
    "near_replica_elsewhere",
    "observe_fetches",
    "on_refresh",
    "topology",
    "watch_joins",
]
