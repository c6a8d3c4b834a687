"""All uses of private attributes of kafka-python, except for the patches of its defects.

Rules of this package:

* No module outside `internals` and `patches` uses a private name of kafka-python. Docstrings name the attributes; all
  exist in 3.0.12.
* If kafka-python does not have what is needed (any more), the feature that needs it stays off and a warning is logged
  once. The consumer works as it would without the feature.
* What an assignor needs is imported here. What consumers need (fetches, metrics) is imported from its module.
"""

from rackassign.clients.kafka_python.internals.adapter import (
    Cluster,
    Membership,
    assignors,
    brokers,
    cluster_of,
    find_membership,
    is_closed,
    membership_of,
    missed_local_replica,
    on_refresh,
    partitions_with_leader,
    read_brokers,
    request_update,
    topology,
)
from rackassign.clients.kafka_python.internals.attributes import (
    close_when_dropped,
    consumer_under_construction,
    is_open,
    options_of,
)
from rackassign.clients.kafka_python.internals.joins import encode_member_assignments

__all__ = [
    "Cluster",
    "Membership",
    "assignors",
    "brokers",
    "close_when_dropped",
    "cluster_of",
    "consumer_under_construction",
    "encode_member_assignments",
    "find_membership",
    "is_closed",
    "is_open",
    "membership_of",
    "missed_local_replica",
    "on_refresh",
    "options_of",
    "partitions_with_leader",
    "read_brokers",
    "request_update",
    "topology",
]
