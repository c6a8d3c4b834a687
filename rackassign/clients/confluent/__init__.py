"""confluent-kafka: a consumer that joins with kafka-python and reads with librdkafka, a producer, and a meter.

Rules of this package:

* librdkafka has no interface for assignors. So a consumer of kafka-python is the member of the group and never reads,
  and a consumer of librdkafka is in no group and reads the partitions assigned to it. Users see a single consumer.
* Both are served by the thread that calls `poll()`, and by no other: partitions are revoked before the member rejoins,
  and a consumer that is no longer polled leaves the group.
* The member commits, because it has the generation.
* Only documented names of confluent-kafka are used. Private attributes of kafka-python are used in its package.
"""

from __future__ import annotations

from rackassign.errors import MissingExtraError

try:
    from rackassign.clients.confluent._consumer import RackAwareConsumer
    from rackassign.clients.confluent._producer import RackAwareProducer
    from rackassign.clients.confluent._stats_meter import StatsMeter, broker_racks
except ModuleNotFoundError as error:
    if error.name not in {"confluent_kafka", "msgspec"}:
        raise
    raise MissingExtraError(error.name.replace("_", "-"), "confluent") from None

__all__ = ["RackAwareConsumer", "RackAwareProducer", "StatsMeter", "broker_racks"]
