"""Spark: a pipeline reads each partition in its own rack.

Rules of this room:

* What can be decided without Spark is decided without it: `list_offsets`, `options`, `properties`, `ranges` and
  `fetching` know neither Spark nor Kafka's clients, `cluster`, `sampling` and `reading` know confluent-kafka and no
  Spark. Only `source`, `stream`, `barrier` and `doctor` know Spark.
* Modules are light to import, and what is heavy (confluent_kafka, pyarrow, numpy) is imported where it is used: a
  streaming query's Python process has ten seconds to connect back.
* Names, meanings and the JSON of offsets are those of the JVM source, so that a query and its checkpoint can move
  between both. An option that cannot be kept is refused by name, never ignored.
* Bytes that are received and thrown away are what racks are meant to save: how much is fetched follows from the range
  (`fetching`), and nothing is fetched beyond its last fetch.
* One thing lives as long as a worker process: its consumers (`pool`). Nothing else is kept in modules.
"""

from __future__ import annotations

from rackassign.spark.barrier import read_barrier
from rackassign.spark.diagnosis import Diagnosis, doctor
from rackassign.spark.jvm_options import kafka_options
from rackassign.spark.pull.coordinator import SplitCoordinator as Coordinator

__all__ = ["Coordinator", "Diagnosis", "doctor", "kafka_options", "read_barrier"]
