"""The options of the assignors, the same for every client: one class for `range`, one for the sticky strategies.

An assignor of a client inherits its options from here and the interface of its library from the client's base class. A
new option is added here, and where it takes effect: in `OptimalPlanner`, or in `MemberContext` and
`Assignor.member_context` if it is every member's. Then `StandbyAwareAssignor` of kafka-python needs it, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rackassign.assignor.base import DEFAULT_RACK_MONITOR, Assignor
from rackassign.assignor.member import FROM_ENVIRONMENT, EnvRackDefault
from rackassign.assignor.optimal_planner import OptimalPlanner, WeightsOption
from rackassign.assignor.planner import RangePlanner
from rackassign.assignor.rack_monitor import RackChangePolicy
from rackassign.assignor.subscriptions import CooperativeCodec, RangeCodec, StickyCodec


class RangeAssignor(Assignor):
    """Range assignment that keeps partitions local to their readers (KIP-881).

    The result equals that of Java's `RangeAssignor`, partition by partition.

    Args:
        rack: Rack of this member, as the brokers write theirs in `broker.rack`; None or "" for none. If it is
            omitted, as it is when the class itself is passed to a consumer, `RACKASSIGN_RACK` is read. "auto" tries
            more sources (`detect_rack`).
        locality: `any-replica` if members read from followers in their rack (the brokers have a rack-aware
            replica selector and the members a `client_rack`), `leader` if all read from leaders.
        name: Name in the protocol. All members of a group must share one; the default is the standard name, so that
            Java and librdkafka members can be in the same group.
        rack_monitor: How this member, while it leads, monitors the racks of the replicas; None to disable it.

    Raises:
        ConfigError: If an option is not valid.
    """

    name = "range"

    def __init__(
        self,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        *,
        locality: str = "any-replica",
        name: str | None = None,
        rack_monitor: RackChangePolicy | None = DEFAULT_RACK_MONITOR,
    ) -> None:
        member = self.member_context(rack, locality, name)
        super().__init__(member, RangeCodec(member), RangePlanner(member), rack_monitor)


class OptimalAssignor(Assignor):
    """Sticky and local assignment: balance, then locality, then as few moves as possible, all exact."""

    _codec_type: ClassVar[type[StickyCodec | CooperativeCodec]]

    def __init__(
        self,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        *,
        locality: str = "any-replica",
        max_skew: int = 0,
        balance: str = "total",
        copartition: Sequence[Sequence[str]] = (),
        costs: Mapping[str, Mapping[str, float]] | None = None,
        weights: WeightsOption | None = None,
        weight_tolerance: float | None = None,
        name: str | None = None,
        rack_monitor: RackChangePolicy | None = DEFAULT_RACK_MONITOR,
    ) -> None:
        member = self.member_context(rack, locality, name)
        planner = OptimalPlanner(
            member,
            "cooperative-sticky" if issubclass(self._codec_type, CooperativeCodec) else "sticky",
            max_skew=max_skew,
            balance=balance,
            copartition=copartition,
            costs=costs,
            weights=weights,
            weight_tolerance=weight_tolerance,
        )
        super().__init__(member, self._codec_type(member), planner, rack_monitor)
