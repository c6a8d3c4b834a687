"""An `AIOKafkaConsumer` with assignor, fetch metrics and warnings, and `attach` for an existing one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka import __version__ as aiokafka_version

from rackassign.assignor.adapter import track_broker_racks
from rackassign.assignor.base import check_assignors, warn_on_rack_mismatch, with_rack
from rackassign.assignor.member import FROM_ENVIRONMENT
from rackassign.clients import resolve_client_rack
from rackassign.clients.aiokafka import internals, patches
from rackassign.clients.aiokafka._assignors import RackAwareAssignor, RackAwareStickyAssignor
from rackassign.clients.fetch_metrics import (
    ConsumerView,
    FetchMeter,
    FollowerFetchCheck,
    RackTraffic,
    count_reads,
    set_view,
)
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)

ConsumerT = TypeVar("ConsumerT", bound=AIOKafkaConsumer)


def attach(consumer: ConsumerT) -> ConsumerT:
    """Add fetch metrics and a check of follower fetching to a consumer, and let it find followers that are back.

    Call it before `start()`. Later calls work too, but fetches that are under way are not counted. Nothing global is
    changed, and a second call has no further effect. The consumer gets a method `locality()`, which returns a
    `RackTraffic`. Assignors of this package that were passed as classes get the consumer's `client_rack`.

    One warning each is logged if `client_rack` is not set, differs from the assignor's rack or matches no broker, and
    if partitions with a local replica keep being read across racks.

    Args:
        consumer: Any `AIOKafkaConsumer`, with any assignors.

    Returns:
        The consumer.

    Raises:
        ConfigError: If it is no `AIOKafkaConsumer`, one of its assignors belongs to another consumer or another client,
            or two of them have one name.
    """
    if not isinstance(consumer, AIOKafkaConsumer):
        raise ConfigError(f"attach takes an AIOKafkaConsumer, got {type(consumer).__name__}")
    rack = internals.client_rack(consumer)
    begun = internals.membership_of(consumer)
    given = check_assignors(internals.assignors(consumer), RackAwareAssignor)
    chosen = [with_rack(each, FROM_ENVIRONMENT if rack is None else rack) for each in given]
    internals.set_assignors(consumer, chosen)
    own_assignors = [assignor for assignor in chosen if isinstance(assignor, RackAwareAssignor)]
    attached = _attached(consumer, rack)
    for assignor in own_assignors:
        if begun is None:
            assignor.share_rack_cache(attached.racks)
        else:
            assignor.bind(begun, attached.racks)
    patches.observe_fetches(consumer, attached.meter, attached.once, key=FetchMeter)
    if rack is not None:
        patches.find_unknown_followers(consumer, attached.once)
    if warn_on_rack_mismatch(own_assignors, rack, attached.once) and rack is not None:
        check = FollowerFetchCheck(
            rack,
            lambda: {other for other in attached.racks.racks().values() if other is not None},
            partial(internals.near_replica_elsewhere, internals.cluster_of(consumer), rack),
        )
        patches.observe_fetches(consumer, check, attached.once, key=FollowerFetchCheck)
    return consumer


@dataclass(frozen=True, slots=True)
class _Attached:
    """State of an attached consumer, which exists once however often it is attached."""

    once: WarnOnce
    racks: BrokerRackCache
    meter: FetchMeter


def _attached(consumer: AIOKafkaConsumer, rack: str | None) -> _Attached:
    known: _Attached | None = vars(consumer).get("_rackassign")
    if known is not None:
        return known
    once, racks = WarnOnce(log), BrokerRackCache()
    cluster = internals.cluster_of(consumer)
    if cluster is not None:
        track_broker_racks(internals, cluster, racks, once)
    attached = _Attached(once, racks, FetchMeter(rack, racks.rack_of, racks=lambda: racks.racks().values()))
    vars(consumer)["_rackassign"] = attached
    patches.close_when_dropped(consumer)
    set_view(consumer, _view(attached.meter, racks, internals.group_id(consumer), once))
    if not hasattr(consumer, "locality"):
        consumer.locality = attached.meter.locality
    return attached


def _view(meter: FetchMeter, racks: BrokerRackCache, group: str | None, once: WarnOnce) -> ConsumerView:
    """Return how an attached consumer is read; what this returns must not refer to it."""

    def assigned_locality(consumer: AIOKafkaConsumer) -> Locality:
        owned = [TopicPartition(*tp) for tp in consumer.assignment()]
        return count_reads(meter.locality(), internals.read_brokers(consumer, owned).values(), racks.rack_of)

    return ConsumerView(group, meter.locality, assigned_locality, partial(internals.is_closed, once=once))


class RackAwareConsumer(AIOKafkaConsumer):  # type: ignore[misc] # aiokafka is untyped
    """An `AIOKafkaConsumer` that reads locally.

    Takes all arguments of `AIOKafkaConsumer`. Differences: `client_rack` is also the rack of the assignor, the
    default `partition_assignment_strategy` is `RackAwareStickyAssignor`, and `attach` is called.
    An assignor of this package that is passed as a class gets the same rack; an instance keeps its own.

    Args:
        *topics: Topics to subscribe to.
        client_rack: The rack of this consumer, as the brokers write theirs in `broker.rack`. If omitted,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are tried (see
            `detect_rack`), which blocks the loop until one responds; it is an error if none has a rack.
        zone_hint: The vendor of a service that reads the zone from the client ID; see `client_id_with_zone`.
        **configs: As for `AIOKafkaConsumer`.

    Raises:
        ConfigError: If "auto" finds no rack, or `zone_hint` cannot be followed.
    """

    def __init__(
        self,
        *topics: str,
        client_rack: str | None = None,
        zone_hint: Any = None,  # noqa: ANN401 - `**configs` may have values of any type
        **configs: Any,  # noqa: ANN401 - as aiokafka's
    ) -> None:
        rack = resolve_client_rack(configs, client_rack, zone_hint, f"aiokafka-{aiokafka_version}")
        chosen = configs.get("partition_assignment_strategy", [RackAwareStickyAssignor])
        chosen = check_assignors(chosen, RackAwareAssignor)
        configs["partition_assignment_strategy"] = [with_rack(each, rack) for each in chosen]
        super().__init__(*topics, client_rack=rack, **configs)
        attach(self)

    def locality(self) -> RackTraffic:
        """Return the traffic fetched so far, by topic and by rack."""
        return _attached(self, internals.client_rack(self)).meter.locality()
