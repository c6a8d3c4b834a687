"""confluent-kafka: a consumer that joins with kafka-python and reads with librdkafka, and a meter for any.

Rules of this room:

* librdkafka has no door for an assignor, so a consumer of kafka-python is the member of the group, and never reads; and
  one of librdkafka's is told what to read, and is in no group. Nobody else tells the two apart.
* Both are served by the thread that calls `poll()`, and by no other: what a partition is given up for has happened by
  the time the group is joined again, and a user who does not come back has left the group.
* Commits go by the member, for it knows the generation.
* confluent-kafka's names are used as they are documented; what is private of kafka-python is in its own room.
"""

from __future__ import annotations

from rackassign.clients.confluent.consumer import RackAwareConsumer
from rackassign.clients.confluent.statistics import StatsMeter, broker_racks

__all__ = ["RackAwareConsumer", "StatsMeter", "broker_racks"]
