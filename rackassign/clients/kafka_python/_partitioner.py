"""kafka-python: a partitioner that writes to leaders in the producer's rack (KIP-1123), and a producer that has it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kafka import KafkaProducer
from kafka.partitioner import DefaultPartitioner, Partitioner

from rackassign.assignor.member import resolve_rack
from rackassign.clients import resolve_client_rack
from rackassign.clients.fetch_metrics import RackTraffic
from rackassign.clients.kafka_python.internals.traffic import count_writes, queue_lengths, racks_of
from rackassign.clients.local_leaders import RECORD_BYTES, LocalLeaders, Metadata
from rackassign.clients.write_metrics import WriteMeter, meter_of, set_meter
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)


class RackAwarePartitioner(Partitioner):  # type: ignore[misc] # kafka-python is untyped
    """Sends records without a key to partitions whose leader is in the producer's rack (KIP-1123).

    `KafkaProducer(partitioner=RackAwarePartitioner("use1-az1"))`. `LocalLeaders` chooses: one partition for the bytes
    of a batch, then another one at random. Records with a key go where `DefaultPartitioner` sends them.

    It may be used by several producers and threads.

    Args:
        rack: Rack of the producer, as in `broker.rack`; by default that of `RACKASSIGN_RACK`. "auto" detects it.
            Without a rack all partitions are used, and a warning is logged once.
        batch_size: That of the producer, in bytes.
        max_share: How many times its fair share of these records a partition may get; see `LocalLeaders`.

    Raises:
        ConfigError: The rack, the size or the share is not valid, or "auto" found no rack.
    """

    def __init__(self, rack: str | None = None, *, batch_size: int = 16_384, max_share: float | None = None) -> None:
        self._leaders = LocalLeaders(resolve_rack(rack, "rack"), batch_size=batch_size, max_share=max_share)
        self._keyed = DefaultPartitioner()
        self._again = threading.local()
        """Of each thread: the topic and the partition of a record that kafka-python will ask for once more."""

    @property
    def rack(self) -> str | None:
        """Rack of the producer; None if it has none."""
        return self._leaders.rack

    def watch_queues(self, queued: Callable[[TopicPartition], int] | None) -> None:
        """Prefer partitions with fewer batches to be sent: those that are not known are taken for equal."""
        self._leaders.queued = queued

    def partition(  # noqa: PLR0917 - kafka-python's interface
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Metadata,
    ) -> int:
        """Return the partition of a record; called by the producer.

        Raises:
            ValueError: The topic is not in the metadata.
        """
        chosen: int | None
        if serialized_key is not None:
            chosen = self._keyed.partition(topic, key, serialized_key, value, serialized_value, cluster)
            return chosen
        again = vars(self._again).pop("chosen", None)
        if again is not None and again[0] == topic:
            return int(again[1])
        chosen = self._leaders.choose(topic, len(serialized_value or b"") + RECORD_BYTES, cluster)
        if chosen is None:
            raise ValueError(f"Topic {topic} not found in ClusterMetadata")
        return chosen

    def on_new_batch(self, topic: str, cluster: Metadata, prev_partition: int) -> None:
        """Keep the partition of the record that begins a batch; called by the producer.

        The producer asks for that record's partition twice. Counted twice, records of fast leaders, which begin a batch
        each, would be worth half, and a large record would be followed by a change that no record is written to.
        """
        del cluster
        self._again.chosen = topic, prev_partition


class RackAwareProducer(KafkaProducer):  # type: ignore[misc] # kafka-python is untyped
    """A `KafkaProducer` that writes to leaders in its rack.

    Takes all arguments of `KafkaProducer`, except for `partitioner`: it has a `RackAwarePartitioner` with the
    producer's `batch_size`. To change how keys are partitioned, pass `partition=` to `send()`.

    Args:
        client_rack: The rack of this producer, as the brokers write theirs in `broker.rack`. If omitted,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are tried (see
            `detect_rack`); it is an error if none has a rack.
        zone_hint: The vendor of a service that reads the zone from the client ID; see `client_id_with_zone`.
        max_share: How many times its fair share of the records without a key a partition may get; see `LocalLeaders`.
        **configs: As for `KafkaProducer`.

    Raises:
        ConfigError: There is a `partitioner`, `max_share` is not valid, "auto" finds no rack, or `zone_hint` cannot be
            followed.
    """

    def __init__(
        self,
        *,
        client_rack: str | None = None,
        zone_hint: Any = None,  # noqa: ANN401 - `**configs` may have values of any type
        max_share: float | None = None,
        **configs: Any,  # noqa: ANN401 - as kafka-python's
    ) -> None:
        # kafka-python's `__del__` shows it, also of a producer that is refused here.
        self.config: dict[str, Any] = {}
        if "partitioner" in configs:
            raise ConfigError("partitioner: RackAwareProducer has its own; for another one use KafkaProducer")
        rack = resolve_client_rack(configs, client_rack, zone_hint, "kafka-python-producer")
        size = configs.get("batch_size", KafkaProducer.DEFAULT_CONFIG["batch_size"])
        # The rack is resolved: without one, the partitioner must not look for it again.
        partitioner = RackAwarePartitioner(rack or "", batch_size=size, max_share=max_share)
        super().__init__(partitioner=partitioner, **configs)
        meter = WriteMeter(rack, *racks_of(self))
        set_meter(self, meter)
        once = WarnOnce(log)
        count_writes(self, meter, once)
        partitioner.watch_queues(queue_lengths(self, once))

    def locality(self) -> RackTraffic:
        """Return the traffic written so far, by topic and by rack of the leader."""
        return meter_of(self).locality()
