"""Everything of kafka-python that is private, and the remedies for its defects.

Rules of this room:

* No module outside touches a private name of kafka-python. Each use here says what for; all were seen in 3.0.12.
* Nothing is patched globally. A remedy shadows methods on the one instance it is given.
* If the host does not have what is needed (any more), the piece that needs it stays off and a warning says so, once;
  the consumer works as it would without.
"""

from rackassign.clients.kafka_python.host.answers import NEWEST, answers
from rackassign.clients.kafka_python.host.cluster import (
    Cluster,
    assignors,
    broker_racks,
    near_replica_elsewhere,
    topology,
)
from rackassign.clients.kafka_python.host.fetches import Fetched, Observer, observe_fetches
from rackassign.clients.kafka_python.host.membership import Membership, membership_behind, membership_of
from rackassign.clients.kafka_python.host.remedies import REMEDIES, Remedy, install, make_readable, read_join

__all__ = [
    "NEWEST",
    "REMEDIES",
    "Cluster",
    "Fetched",
    "Membership",
    "Observer",
    "Remedy",
    "answers",
    "assignors",
    "broker_racks",
    "install",
    "make_readable",
    "membership_behind",
    "membership_of",
    "near_replica_elsewhere",
    "observe_fetches",
    "read_join",
    "topology",
]
