"""A `KafkaConsumer` with all of it switched on, and the same for one you already have."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer

from rackassign.clients.kafka_python import host
from rackassign.clients.kafka_python.assignor import RackAwareAssignor, check_rack
from rackassign.clients.kafka_python.follower import FollowerCheck
from rackassign.clients.kafka_python.meter import FetchMeter
from rackassign.clients.kafka_python.selector import replica_selectors, warn_of_selectors
from rackassign.clients.kafka_python.sticky import RackAwareCooperativeStickyAssignor
from rackassign.clients.once import Once
from rackassign.errors import ConfigError
from rackassign.racks import RACK_VARIABLE, detect_rack

log = logging.getLogger(__name__)

AUTO = "auto"

ConsumerT = TypeVar("ConsumerT", bound=KafkaConsumer)


def attach(
    consumer: ConsumerT,
    *,
    disable: Collection[str] = (),
    meter: FetchMeter | None = None,
    admin: KafkaAdminClient | None = None,
) -> ConsumerT:
    """Give a consumer the remedies for the host's own defects, a meter, and a look at whether local is local.

    Call it before the first `poll()`. Nothing global is changed, and attaching twice changes nothing more. A
    remedy that does not fit the installed kafka-python stays off and says so once.

    One warning each is logged if `client_rack` is not set, not the assignor's rack or no broker's, if brokers have no
    rack-aware replica selector (with `admin`), and if partitions with a near replica keep being read from afar.

    Args:
        consumer: Any `KafkaConsumer`, with whatever assignors.
        disable: Names of remedies to leave out: `guard_members`, `keep_finished_join`, `heartbeat_unread_join`.
        meter: Counts what the consumer fetches, by broker.
        admin: Used now, to read the brokers' `replica.selector.class`; blocks until they answer.

    Returns:
        The same consumer.

    Raises:
        ConfigError: If it is no `KafkaConsumer`, a name in `disable` is unknown, or a cooperative assignor of it is
            another consumer's.
    """
    if not isinstance(consumer, KafkaConsumer):
        raise ConfigError(f"attach takes a KafkaConsumer, got {type(consumer).__name__}")
    known = [remedy.name for remedy in host.REMEDIES]
    for name in disable:
        if name not in known:
            raise ConfigError(f"there is no remedy {name!r}; there are {', '.join(known)}")
    once = Once(log)
    membership = host.membership_of(consumer)
    for assignor in host.assignors(consumer):
        if isinstance(assignor, RackAwareCooperativeStickyAssignor) and membership is not None:
            assignor.tie(membership)
    host.install(consumer, [remedy for remedy in host.REMEDIES if remedy.name not in disable], once)
    if meter is not None:
        host.observe_fetches(consumer, meter, once, key=meter)
    rack = consumer.config["client_rack"]
    if warn_of_racks(host.assignors(consumer), rack, once):
        check = FollowerCheck(
            rack,
            lambda: {other for other in host.broker_racks(consumer).values() if other is not None},
            partial(host.near_replica_elsewhere, consumer, rack),
        )
        host.observe_fetches(consumer, check, once, key=FollowerCheck)
        if admin is not None:
            warn_of_selectors(replica_selectors(admin), once)
    return consumer


def warn_of_racks(assignors: Iterable[object], client_rack: str, once: Once) -> bool:
    """Warn if what the assignor takes for near is not what the consumer fetches from.

    Returns:
        Whether reading from followers is what the consumer is set up for.
    """
    racks = {a.rack for a in assignors if isinstance(a, RackAwareAssignor) and a.locality == "any-replica"} - {None}
    for rack in sorted(filter(None, racks)):
        if not client_rack:
            once.warn(
                "client_rack",
                "the assignor's rack is %r but client_rack is not set, so everything is read from the leaders: set"
                " client_rack=%r, or locality='leader'",
                *(rack, rack),
            )
        elif rack != client_rack:
            once.warn(
                "client_rack",
                "the assignor's rack is %r but client_rack is %r: partitions are near the one and read near the other",
                *(rack, client_rack),
            )
    return bool(racks and client_rack)


class RackAwareConsumer(KafkaConsumer):  # type: ignore[misc] # kafka-python is untyped
    """A `KafkaConsumer` that reads near home.

    Takes all arguments of `KafkaConsumer`. What differs: `client_rack` is also the rack of the assignor, the
    default `partition_assignment_strategy` is `RackAwareCooperativeStickyAssignor`, and `attach` is done with a
    meter of its own (`.meter`).
    An assignor of ours that is given as a class gets the same rack, one given as an instance keeps its own.

    Args:
        *topics: Topics to subscribe to.
        client_rack: The rack this consumer stands in, as the brokers write theirs in `broker.rack`. Left out,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are asked (see
            `detect_rack`), and one must know it.
        **configs: As for `KafkaConsumer`.

    Raises:
        ConfigError: If "auto" finds no rack.
    """

    def __init__(self, *topics: str, client_rack: str | None = None, **configs: Any) -> None:  # noqa: ANN401
        rack = check_rack(detect_rack(network=client_rack == AUTO) if client_rack in {None, AUTO} else client_rack)
        if rack is None and client_rack == AUTO:
            raise ConfigError(
                f'client_rack="auto" found no rack: set {RACK_VARIABLE}, or see what `rackassign rack` says'
            )
        chosen = configs.get("partition_assignment_strategy", [RackAwareCooperativeStickyAssignor])
        configs["partition_assignment_strategy"] = [_with_rack(assignor, rack) for assignor in chosen]
        super().__init__(*topics, client_rack=rack or "", **configs)
        self.meter = FetchMeter()
        try:
            attach(self, meter=self.meter)
        except ConfigError:
            # Its IO thread is running already.
            self.close()
            raise

    def bytes_by_rack(self) -> dict[str | None, int]:
        """Return the bytes of record batches fetched so far, by the rack they came from.

        None stands for brokers without rack, and for those that the cluster does not list now.
        """
        racks = host.broker_racks(self)
        totals: dict[str | None, int] = {}
        for broker, size in self.meter.bytes_by_broker().items():
            rack = racks.get(broker)
            totals[rack] = totals.get(rack, 0) + size
        return totals


def _with_rack(assignor: Any, rack: str | None) -> Any:  # noqa: ANN401 - the host takes anything callable
    """Make an instance of a class of ours; leave everything else to the host."""
    if isinstance(assignor, type) and issubclass(assignor, RackAwareAssignor):
        return assignor(rack=rack)
    return assignor
