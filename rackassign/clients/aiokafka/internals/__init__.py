"""All uses of private attributes of aiokafka. Each docstring names them; all exist in 0.12.0, 0.13.0 and 0.14.0.

Rules of this package:

* No module outside of it uses a private name of aiokafka.
* Nothing is patched globally: methods are shadowed on one instance.
* If aiokafka does not have what is needed (any more), the feature that needs it stays off and a warning is logged
  once. The consumer works as it would without the feature.
"""

from rackassign.clients.aiokafka.internals.fetch_observer import observe_fetches
from rackassign.clients.aiokafka.internals.joins import Later, current_join, read_joins
from rackassign.clients.aiokafka.internals.membership import (
    Membership,
    fetch_rack,
    find_membership,
    membership_from_stack,
    membership_of,
    per_consumer_instance,
)
from rackassign.clients.aiokafka.internals.metadata import (
    FOLLOWS,
    assignors,
    brokers,
    client_rack,
    cluster_of,
    group_id,
    is_closed,
    near_replica_elsewhere,
    on_refresh,
    read_brokers,
    set_assignors,
    set_client_rack,
    topology,
)
from rackassign.clients.aiokafka.internals.unknown_followers import find_unknown_followers

__all__ = [
    "FOLLOWS",
    "Later",
    "Membership",
    "assignors",
    "brokers",
    "client_rack",
    "cluster_of",
    "current_join",
    "fetch_rack",
    "find_membership",
    "find_unknown_followers",
    "group_id",
    "is_closed",
    "membership_from_stack",
    "membership_of",
    "near_replica_elsewhere",
    "observe_fetches",
    "on_refresh",
    "per_consumer_instance",
    "read_brokers",
    "read_joins",
    "set_assignors",
    "set_client_rack",
    "topology",
]
