"""A data source for Spark in which each executor reads from replicas in its own rack, and writes to leaders in it.

Invariants of this package:

* Modules use Spark only where it is necessary. `_offsets`, `_options`, `_client_config`, `_java_regex`, `_splits`,
  `_fetch_size`, `_pull.protocol` and `_pull.scheduler` use neither Spark nor a Kafka client. `_kafka_clients`,
  `_metadata`, `_record_sampling`, `_range_reader` and `_task_metrics` use confluent-kafka and not Spark. `_datasource`,
  `_stream`, `_tasks`, `_writer` and `_diagnosis` use Spark.
* Importing a module is fast. Large packages (confluent_kafka, pyarrow, numpy) are imported in the functions that use
  them, because the Python process of a streaming query has ten seconds to connect to the JVM.
* Options and the JSON of offsets have the names and meanings of the JVM source, so that a query and its checkpoint can
  move between the two sources. An option that cannot be supported is rejected by name and never ignored.
* Little is fetched that no query uses, because traffic is what racks are meant to save. The size of a fetch follows
  from the range (`_fetch_size`), and nothing is fetched after the fetch that contains the end of the range.
* A worker process keeps its consumers and producers (`_kafka_clients`) and, with `metricsPath`, the statistics of their
  traffic (`_task_metrics`). Modules keep no other state.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackassign.spark._diagnosis import Diagnosis, doctor
    from rackassign.spark._metadata import UnknownPartitionError
    from rackassign.spark._options import kafka_options
    from rackassign.spark._pull.coordinator import SplitCoordinator as Coordinator
    from rackassign.spark._range_reader import DataLossError
    from rackassign.spark._task_metrics import BatchTraffic, batch_traffic

__all__ = [
    "BatchTraffic",
    "Coordinator",
    "DataLossError",
    "Diagnosis",
    "UnknownPartitionError",
    "batch_traffic",
    "doctor",
    "kafka_options",
]

_PLACES = {
    "BatchTraffic": "_task_metrics:BatchTraffic",
    "Coordinator": "_pull.coordinator:SplitCoordinator",
    "DataLossError": "_range_reader:DataLossError",
    "Diagnosis": "_diagnosis:Diagnosis",
    "UnknownPartitionError": "_metadata:UnknownPartitionError",
    "batch_traffic": "_task_metrics:batch_traffic",
    "doctor": "_diagnosis:doctor",
    "kafka_options": "_options:kafka_options",
}


def __getattr__(name: str) -> object:
    # Imported on access: Spark starts a process that imports the data source with each query, and two with each batch
    # of a stream that writes.
    if name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        return getattr(import_module(f"rackassign.spark.{module}"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
