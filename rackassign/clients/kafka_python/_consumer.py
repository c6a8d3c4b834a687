"""A `KafkaConsumer` with assignor, patches, fetch metrics and warnings, and `attach` for an existing one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from kafka import KafkaAdminClient, KafkaConsumer

from rackassign.assignor.adapter import track_broker_racks
from rackassign.assignor.base import check_assignors, warn_on_rack_mismatch, with_rack
from rackassign.clients import resolve_client_rack
from rackassign.clients.fetch_metrics import (
    ConsumerView,
    FetchMeter,
    FollowerFetchCheck,
    RackTraffic,
    count_reads,
    set_view,
)
from rackassign.clients.kafka_python import internals
from rackassign.clients.kafka_python._assignors import RackAwareAssignor, RackAwareCooperativeStickyAssignor
from rackassign.clients.kafka_python.internals.attributes import ClientFactory
from rackassign.clients.kafka_python.internals.joins import load_before_leading, warn_on_join_response
from rackassign.clients.kafka_python.internals.traffic import LocalityMetrics, observe_fetches
from rackassign.clients.kafka_python.patches import PATCHES
from rackassign.clients.kafka_python.patches.patch import create_response_classes, install
from rackassign.errors import ConfigError
from rackassign.locality import Locality
from rackassign.model import TopicPartition
from rackassign.racks import BrokerRackCache
from rackassign.text import WarnOnce, short_repr, with_version

log = logging.getLogger(__name__)

ConsumerT = TypeVar("ConsumerT", bound=KafkaConsumer)


def attach(
    consumer: ConsumerT,
    *,
    disable_patches: Collection[str] = (),
    meter: FetchMeter | None = None,
    admin: KafkaAdminClient | None = None,
) -> ConsumerT:
    """Add patches for defects of kafka-python, a meter, and a check of follower fetching to a consumer.

    Call it before the first `poll()`. Nothing global is patched, and a second call has no further effect. The classes
    of responses are created for the whole process, which kafka-python does later. A patch that does not fit the
    installed kafka-python stays off, which is logged once. The consumer gets a method `locality()`, which returns a
    `RackTraffic`; its metrics contain the same values. If it is garbage-collected without `close()`, it leaves its
    group, without a commit, and a warning is logged.

    One warning each is logged if `client_rack` is not set, differs from the assignor's rack or matches no broker, if
    brokers have no rack-aware replica selector (with `admin`), if partitions with a local replica keep being read
    across racks, if the broker assigns instead of a member, and if the group is wedged inside the broker.

    Args:
        consumer: Any `KafkaConsumer`, with any assignors.
        disable_patches: Names of patches to leave out, of `rackassign.clients.kafka_python.PATCHES`.
        meter: Counts what the consumer fetches, beside the meter of its own; several consumers may share it.
        admin: Admin client, used only during the call to read the brokers' `replica.selector.class`; blocks until they
            respond.

    Returns:
        The consumer.

    Raises:
        ConfigError: If it is no `KafkaConsumer`, a name in `disable_patches` is unknown, `meter` is no `FetchMeter`, or
            one of its assignors belongs to another consumer, or has the name of another one.
    """
    if not isinstance(consumer, KafkaConsumer):
        raise ConfigError(f"attach takes a KafkaConsumer, got {type(consumer).__name__}")
    disabled = _patch_names(disable_patches)
    if meter is not None and not isinstance(meter, FetchMeter):
        raise ConfigError(f"meter must be a FetchMeter, got {short_repr(meter)}")
    check_assignors(consumer.config["partition_assignment_strategy"], RackAwareAssignor)
    attached = _attached(consumer)
    membership = internals.membership_of(consumer)
    own_assignors = [each for each in internals.assignors(consumer) if isinstance(each, RackAwareAssignor)]
    for assignor in own_assignors:
        if membership is not None:
            assignor.bind(membership, attached.racks)

    def load() -> None:
        for assignor in own_assignors:
            assignor.load()

    load_before_leading(consumer, [each.name for each in own_assignors], load, attached.once)
    if misfit := create_response_classes():
        attached.once.warn(
            "responses", "%s differs: classes of responses are created late: %s", with_version("kafka-python"), misfit
        )
    install(consumer, [patch for patch in PATCHES if patch.name not in disabled], attached.once)
    observe_fetches(consumer, attached.meter, attached.once, key=FetchMeter)
    if meter is not None and meter is not attached.meter:
        observe_fetches(consumer, meter, attached.once, key=meter)
    rack = consumer.config["client_rack"]
    if warn_on_rack_mismatch(internals.assignors(consumer), rack, attached.once):
        check = FollowerFetchCheck(
            rack,
            lambda: {other for other in attached.racks.racks().values() if other is not None},
            partial(internals.missed_local_replica, internals.cluster_of(consumer), rack),
        )
        observe_fetches(consumer, check, attached.once, key=FollowerFetchCheck)
        if admin is not None:
            # Consumers have no admin client, except for this.
            selectors = import_module("rackassign.admin.describe")
            selectors.warn_of_selectors(selectors.replica_selectors(admin), attached.once)
    return consumer


def _patch_names(given: object) -> frozenset[str]:
    """Return the names of patches to leave out."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigError(f"disable_patches must be a list of names, got {short_repr(given)}")
    known, names = [patch.name for patch in PATCHES], list(given)
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no patch {name!r}; there are {', '.join(known)}")
    return frozenset(names)


class _Attached(NamedTuple):
    """State of an attached consumer, which exists once however often it is attached."""

    once: WarnOnce
    racks: BrokerRackCache
    meter: FetchMeter


def _attached(consumer: KafkaConsumer) -> _Attached:
    attached: _Attached | None = vars(consumer).get("_rackassign")
    if attached is not None:
        return attached
    once, racks = WarnOnce(log), BrokerRackCache()
    metrics = LocalityMetrics(consumer, once)
    meter = FetchMeter(
        consumer.config["client_rack"] or None,
        racks.rack_of,
        lambda topic, rack: metrics.add_topic_rack_metric(meter, topic, rack),
        lambda: racks.racks().values(),
    )
    metrics.publish(meter)
    cluster = internals.cluster_of(consumer)
    if cluster is not None:
        track_broker_racks(internals, cluster, racks, once)

        # The IO thread refers to the cluster, and to all that listens to it.
        known = ref(consumer)

        def refreshed() -> None:
            consumer = known()
            if consumer is not None:
                # While an eager group rebalances nothing is assigned, but all of it will be read again.
                topics = {topic for topic, _ in consumer.assignment()}
                metrics.withdraw_others(meter, topics.union(consumer.subscription() or ()))

        internals.on_refresh(cluster, refreshed, once, key=metrics)
    warn_on_join_response(consumer, once)
    internals.close_when_dropped(consumer)
    attached = _Attached(once, racks, meter)
    vars(consumer)["_rackassign"] = attached
    set_view(consumer, _view(meter, racks, consumer.config["group_id"], once))
    if not hasattr(consumer, "locality"):
        consumer.locality = meter.locality
    return attached


def _view(meter: FetchMeter, racks: BrokerRackCache, group: str | None, once: WarnOnce) -> ConsumerView:
    """Return how an attached consumer is read; what this returns must not refer to it."""

    def assigned_locality(consumer: KafkaConsumer) -> Locality:
        owned = [TopicPartition(*tp) for tp in consumer.assignment()]
        return count_reads(meter.locality(), internals.read_brokers(consumer, owned).values(), racks.rack_of)

    return ConsumerView(group, meter.locality, assigned_locality, partial(internals.is_closed, once=once))


class RackAwareConsumer(KafkaConsumer):  # type: ignore[misc] # kafka-python is untyped
    """A `KafkaConsumer` that reads locally.

    Takes all arguments of `KafkaConsumer`. Differences: `client_rack` is also the rack of the assignor, the
    default `partition_assignment_strategy` is `RackAwareCooperativeStickyAssignor`, and `attach` is called. Its
    meter is `.meter`.
    An assignor of this package that is passed as a class gets the same rack; an instance keeps its own.

    Args:
        *topics: Topics to subscribe to.
        client_rack: The rack of this consumer, as the brokers write theirs in `broker.rack`. If omitted,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are tried (see
            `detect_rack`); it is an error if none has a rack.
        zone_hint: The vendor of a service that reads the zone from the client ID; see `client_id_with_zone`.
        **configs: As for `KafkaConsumer`.

    Raises:
        ConfigError: If "auto" finds no rack, or `zone_hint` cannot be followed.
    """

    def __init__(
        self,
        *topics: str,
        client_rack: str | None = None,
        zone_hint: Any = None,  # noqa: ANN401 - `**configs` may have values of any type
        **configs: Any,  # noqa: ANN401 - as kafka-python's
    ) -> None:
        rack = resolve_client_rack(configs, client_rack, zone_hint, KafkaConsumer.DEFAULT_CONFIG["client_id"])
        chosen = configs.get("partition_assignment_strategy", [RackAwareCooperativeStickyAssignor])
        chosen = check_assignors(chosen, RackAwareAssignor)
        configs["partition_assignment_strategy"] = [with_rack(assignor, rack) for assignor in chosen]
        create_response_classes()  # The constructor connects; `attach` warns if it is not possible.
        client = ClientFactory(configs.get("kafka_client", KafkaConsumer.DEFAULT_CONFIG["kafka_client"]))
        try:
            super().__init__(*topics, client_rack=rack or "", **{**configs, "kafka_client": client})
        except BaseException:
            client.close()
            raise
        try:
            attach(self)
        except ConfigError:
            # The consumer's IO thread is already running.
            self.close()
            raise
        self.meter = _attached(self).meter

    def locality(self) -> RackTraffic:
        """Return the traffic fetched so far, by topic and by rack."""
        return _attached(self).meter.locality()

    def bytes_by_rack(self) -> dict[str | None, int]:
        """Return the bytes of record batches fetched so far, by rack.

        None is the key of brokers whose rack was never known.
        """
        return {rack: amount.bytes for rack, amount in self.locality().by_rack().items()}
