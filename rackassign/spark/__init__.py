"""A data source for Spark in which each executor reads from the replicas of its own rack.

Invariants of this package:

* Modules use Spark only where it is necessary. `offsets`, `options`, `option_values`, `client_config`, `java_regex`,
  `splits`, `row_bounds`, `fetch_size`, `expected_locality`, `pull/protocol` and `pull/scheduler` use neither Spark nor
  a Kafka client. `kafka_clients`, `metadata`, `record_sampling`, `range_reader`, `consumer_pool`, `task_metrics` and
  `batch_reports` use confluent-kafka and not Spark. `source`, `barrier` and `diagnosis` use Spark.
* Importing a module is fast. Large packages (confluent_kafka, pyarrow, numpy) are imported in the functions that use
  them, because the Python process of a streaming query has ten seconds to connect to the JVM.
* Options and the JSON of offsets have the names and meanings of the JVM source, so that a query and its checkpoint can
  move between the two sources. An option that cannot be supported is rejected by name and never ignored.
* Little is fetched that no query uses, because traffic is what racks are meant to save. The size of a fetch follows
  from the range (`fetch_size`), and nothing is fetched after the fetch that contains the end of the range.
* A worker process keeps its consumers (`consumer_pool`) and, with `metricsPath`, the statistics of their traffic
  (`task_metrics`). Modules keep no other state.
"""

from __future__ import annotations

from rackassign.spark.barrier import read_barrier
from rackassign.spark.diagnosis import Diagnosis, doctor
from rackassign.spark.options import kafka_options
from rackassign.spark.pull.coordinator import SplitCoordinator as Coordinator
from rackassign.spark.task_metrics import BatchTraffic, batch_traffic

__all__ = ["BatchTraffic", "Coordinator", "Diagnosis", "batch_traffic", "doctor", "kafka_options", "read_barrier"]
