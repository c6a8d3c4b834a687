"""An `AIOKafkaProducer` that writes to leaders in its rack (KIP-1123)."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer

from rackassign.clients import resolve_client_rack
from rackassign.clients.aiokafka import internals
from rackassign.clients.fetch_metrics import RackTraffic
from rackassign.clients.local_leaders import LocalLeaders
from rackassign.clients.write_metrics import WriteMeter, meter_of, set_meter
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

_BATCH_SIZE = 16_384
"""aiokafka's default of `max_batch_size`."""


class RackAwareProducer(AIOKafkaProducer):  # type: ignore[misc] # aiokafka is untyped
    """An `AIOKafkaProducer` that writes records without a key and a partition to leaders in its rack.

    Takes all arguments of `AIOKafkaProducer`. `LocalLeaders` chooses: one partition for `max_batch_size` bytes, then
    another one at random. A batch that is passed to `send_batch()` with `partition=None` gets a partition of its own. A
    `partitioner` still applies to records with a key.

    Args:
        client_rack: The rack of this producer, as the brokers write theirs in `broker.rack`. If omitted,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are tried (see
            `detect_rack`), which blocks the loop until one responds; it is an error if none has a rack.
        zone_hint: The vendor of a service that reads the zone from the client ID; see `client_id_with_zone`.
        max_share: How many times its fair share of the records without a key a partition may get; see `LocalLeaders`.
        **configs: As for `AIOKafkaProducer`.

    Raises:
        ConfigError: `max_share` is not valid, "auto" finds no rack, or `zone_hint` cannot be followed.
    """

    def __init__(
        self,
        *,
        client_rack: str | None = None,
        zone_hint: Any = None,  # noqa: ANN401 - `**configs` may have values of any type
        max_share: float | None = None,
        **configs: Any,  # noqa: ANN401 - as aiokafka's
    ) -> None:
        rack = resolve_client_rack(configs, client_rack, zone_hint, "aiokafka-producer")
        leaders = LocalLeaders(rack, batch_size=configs.get("max_batch_size", _BATCH_SIZE), max_share=max_share)
        super().__init__(**configs)
        once = WarnOnce(log)
        internals.choose_partitions(self, leaders, once)
        cluster = self.client.cluster
        meter = WriteMeter(
            rack, partial(internals.rack_of, cluster), lambda: [broker.rack for broker in cluster.brokers()]
        )
        set_meter(self, meter)
        internals.count_writes(self, meter, once)

    def locality(self) -> RackTraffic:
        """Return the traffic written so far, by topic and by rack of the leader."""
        return meter_of(self).locality()
