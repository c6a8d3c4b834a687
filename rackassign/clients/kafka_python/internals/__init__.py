"""All uses of private attributes of kafka-python, except for the patches of its defects.

Rules of this package:

* No module outside `internals` and `patches` uses a private name of kafka-python. Docstrings name the attributes; all
  exist in 3.0.12.
* If kafka-python does not have what is needed (any more), the feature that needs it stays off and a warning is logged
  once. The consumer works as it would without the feature.
* What only the consumer on librdkafka needs is imported from its module (`group_member`).
"""

from rackassign.clients.kafka_python.internals.assignment_encoding import encode_member_assignments
from rackassign.clients.kafka_python.internals.construction import consumer_under_construction, is_open, options_of
from rackassign.clients.kafka_python.internals.fetch_observer import observe_fetches
from rackassign.clients.kafka_python.internals.join_diagnostics import warn_on_join_response
from rackassign.clients.kafka_python.internals.leader_loading import load_before_leading
from rackassign.clients.kafka_python.internals.membership import Membership, find_membership, membership_of
from rackassign.clients.kafka_python.internals.metadata import (
    Cluster,
    assignors,
    brokers,
    cluster_of,
    is_closed,
    missed_local_replica,
    on_refresh,
    partitions_with_leader,
    read_brokers,
    request_update,
    topology,
)
from rackassign.clients.kafka_python.internals.metrics import LocalityMetrics, MetricGroup

__all__ = [
    "Cluster",
    "LocalityMetrics",
    "Membership",
    "MetricGroup",
    "assignors",
    "brokers",
    "cluster_of",
    "consumer_under_construction",
    "encode_member_assignments",
    "find_membership",
    "is_closed",
    "is_open",
    "load_before_leading",
    "membership_of",
    "missed_local_replica",
    "observe_fetches",
    "on_refresh",
    "options_of",
    "partitions_with_leader",
    "read_brokers",
    "request_update",
    "topology",
    "warn_on_join_response",
]
