"""The assignors that keep assignments where they can: sticky, and cooperative-sticky.

The claim of a member determines which partitions it keeps and, in the cooperative protocol, which partitions are
withheld. A false claim leaves a partition without reader. So a member claims what its consumer owns now, and not its
last assignment: the client empties the owned partitions when membership is lost and reduces them when a topic is
unsubscribed, without notifying assignors. The member sends the true generation with its claim (KIP-792), and a leader
that withholds partitions requests the next rebalance itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, TypeAlias

from rackassign.clients.common.adapter import AnyCluster, time_limit_s
from rackassign.clients.common.assignment_history import LeaderAssignment, drop_stale_claims, plausible_claims
from rackassign.clients.common.assignor import FROM_ENVIRONMENT, WATCHING, Assignor, EnvRackDefault
from rackassign.clients.common.fallback import exclude_claimed, fallback_balanced
from rackassign.clients.common.rack_monitor import RackChangePolicy
from rackassign.clients.common.subscriptions import JoinMember, build_group, owned_from_subscription, to_member
from rackassign.errors import ConfigError, InputError, WireError
from rackassign.model import Group, Partitions, Topology
from rackassign.strategies import Options
from rackassign.wire import StickyData, Subscription, decode_sticky, encode_sticky

Weights: TypeAlias = Mapping[str, Sequence[float]]
"""A weight of each partition, by topic."""


class OptimalAssignor(Assignor):
    """Shared base of sticky and cooperative-sticky: balance, then locality, then as few moves as possible, all exact.

    Args:
        rack: As for `Assignor`.
        locality: As for `Assignor`.
        name: As for `Assignor`.
        rack_monitor: As for `Assignor`.
        max_skew: 0 for balance before locality. k > 0 lets members with equal subscriptions differ by up to 1 + k
            partitions if that makes more local.
        costs: Cost of reading across racks, by the reader's rack and the replica's; a pair that is missing costs 1.
            Without costs every pair does.
        weights: A weight of each partition by topic (bytes per second, lag), or a function that returns such a
            mapping. Loads are then sums of weights, and locality counts weight. The function is called where the
            client handles its group (its IO thread, its event loop) whenever this member assigns: it must not block.
            If it raises, the group is balanced by number, with a warning. If it has taken longer than a third of the
            session timeout once, it is not called again. Not together with `max_skew`.

    Raises:
        ConfigError: If an option is not valid.
    """

    def __init__(
        self,
        rack: str | EnvRackDefault | None = FROM_ENVIRONMENT,
        *,
        locality: str = "any-replica",
        max_skew: int = 0,
        costs: Mapping[str, Mapping[str, float]] | None = None,
        weights: Weights | Callable[[], Weights] | None = None,
        name: str | None = None,
        rack_monitor: RackChangePolicy | None = WATCHING,
    ) -> None:
        super().__init__(rack, locality=locality, name=name, rack_monitor=rack_monitor)
        self._plan_with(Options(locality=self.locality, max_skew=max_skew), rack_monitor)
        if weights is not None and max_skew:
            raise ConfigError("max_skew counts partitions: it cannot be used together with weights")
        self._weights = weights
        self._slow = False
        self._costs = {} if costs is None else costs
        try:
            _with(_EMPTY_GROUP, self._costs, {} if weights is None or callable(weights) else weights)
        except (InputError, AttributeError, TypeError, OverflowError) as error:
            raise ConfigError(f"this option is not valid: {error}") from None
        self._begin()

    def _begin(self) -> None:
        """Initialize the state of the subclass."""

    def _read_group(self, group: Group) -> Group:
        """Return the group with costs and weights, and with brokers that are offline."""
        group = self._seen(group)
        if self._weights is None:
            return _with(group, self._costs, {})
        try:
            weights = self._timed_weights() if callable(self._weights) else self._weights
            known = {topic: row for topic, row in weights.items() if topic in group.topology.topics}
            return _with(group, self._costs, known)
        except Exception:  # noqa: BLE001 - the user's own function, whatever it raises
            self._once.warn(
                "weights", "%s: weights are not available; partitions are counted instead", self.name, exc_info=True
            )
            return _with(group, self._costs, {})

    def _timed_weights(self) -> Weights:
        """Return the result of the user's function, unless it has taken longer than a whole plan may."""
        if self._slow or not callable(self._weights):
            return {}
        begun = time.monotonic()
        weights = self._weights()
        took_s, limit_s = time.monotonic() - begun, time_limit_s(self._membership)
        if took_s > limit_s:
            # This leader may have been removed from the group by now, and would be again, each time it leads.
            self._slow = True
            self._once.warn(
                "slow weights",
                "%s: weights took %.1f s, and all of an assignment may take %.1f s, a third of the session timeout:"
                " the function is not called any more, and partitions are counted instead",
                *(self.name, took_s, limit_s),
            )
        return weights

    def _plain(self, cluster: AnyCluster, members: list[JoinMember]) -> LeaderAssignment:
        return LeaderAssignment(fallback_balanced(cluster, members))


class StickyAssignor(OptimalAssignor):
    """Sticky and local assignment, for the eager protocol. Takes the arguments of `OptimalAssignor`.

    Reads and writes the user data of Java's `StickyAssignor`, so that mixed groups stay sticky.
    """

    strategy: ClassVar[str] = "sticky"
    name = "sticky"

    def _begin(self) -> None:
        self._last: StickyData | None = None

    def _subscription(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack, and as user data this member's last partitions; null before the first assignment."""
        user_data = None
        if self._last is not None:
            owned = {topic: partitions for topic, partitions in self._last.owned.items() if topic in topics}
            user_data = encode_sticky(replace(self._last, owned=owned))
        return Subscription(topics, user_data, rack=self.rack)

    def _complete(self, given: Partitions, generation: int) -> None:
        """Record this member's partitions and their generation."""
        self._last = StickyData(given, generation)

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        return self._read_group(build_group(self._reader(cluster), members, self._claims))

    def _claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        try:
            data = decode_sticky(subscription.user_data)
        except WireError as error:
            self._once.warn("user data", "%s: the last partitions of a member cannot be decoded: %s", self.name, error)
            return {}, None
        return data.owned, data.generation


class CooperativeStickyAssignor(OptimalAssignor):
    """Sticky and local assignment, for the cooperative protocol (KIP-429). Takes the arguments of `OptimalAssignor`.

    An instance belongs to one consumer. Bound to it, it claims exactly the partitions the consumer owns. Until then it
    claims its last assignment, and its leader corrects false claims.
    """

    strategy: ClassVar[str] = "cooperative-sticky"
    name = "cooperative-sticky"

    def _begin(self) -> None:
        self._generation = -1
        self._asked = 0

    def _subscription(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack, the owned partitions of these topics, and the generation of their assignment."""
        owned: Partitions = {}
        try:
            owned = self._held()
        except Exception:  # noqa: BLE001 - raised from here, every poll() would fail
            self._once.warn("held", "%s: owned partitions are unknown; nothing is claimed", self.name, exc_info=True)
        claims = {topic: owned[topic] for topic in topics if owned.get(topic)}
        return Subscription(topics, None, claims, self._generation, self.rack)

    def _held(self) -> Partitions:
        if self._membership is None:
            return self._given or {}
        # An eager member has revoked everything by now, though its consumer still lists it.
        return self._membership.owned() if self._membership.cooperative() else {}

    def _complete(self, given: Partitions, generation: int) -> None:
        """Record the generation; as the leader, request the rebalance that assigns withheld partitions."""
        del given
        self._generation = generation
        decided = self._decisions.last
        if decided is None or decided.complete:
            self._asked = 0
            return
        self._asked += 1
        if self._asked > _MOST_ROUNDS:
            self._once.warn("rounds", "%s: members keep claiming partitions that were not assigned to them", self.name)
        elif self._membership is not None:
            self._membership.request_rejoin()

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        group = self._read_group(build_group(self._reader(cluster), members, owned_from_subscription))
        return drop_stale_claims(group, self._new_generation(), self._decisions)

    def _new_generation(self) -> int | None:
        return None if self._membership is None else self._membership.generation()

    def _plain(self, cluster: AnyCluster, members: list[JoinMember]) -> LeaderAssignment:
        target = fallback_balanced(cluster, members)
        free = exclude_claimed(target, self._honest(members))
        return LeaderAssignment(free, complete=free == target)

    def _honest(self, members: list[JoinMember]) -> list[JoinMember]:
        """Return the members without claims that are known to be false; without any claims if that is not known."""
        try:
            generation = self._new_generation()
            if generation is None:
                return members
            true = [plausible_claims(to_member(joined), generation, self._decisions) for joined in members]
            return [
                replace(joined, subscription=replace(joined.subscription, owned=owned))
                for joined, owned in zip(members, true, strict=True)
            ]
        except Exception:  # noqa: BLE001 - this is the way that must not fail
            return members


_MOST_ROUNDS = 5
"""Limit of consecutive rebalances that a leader requests. Two are enough unless a member's claims are always false."""

_EMPTY_GROUP = Group(Topology((), {}), ())


def _with(group: Group, costs: Mapping[str, Mapping[str, float]], weights: Mapping[str, Any]) -> Group:
    """Return a group with costs and weights, validated."""
    rows: dict[str, tuple[float, ...]] = {}
    for topic, row in weights.items():
        if isinstance(row, (Mapping, str)):
            raise InputError(f"weights.{topic}", "expected a list, got a mapping")
        # All numeric types are accepted, numpy's too; the group rejects everything else.
        rows[topic] = tuple(float(w) if isinstance(w, Real) and not isinstance(w, bool) else w for w in row)
    return replace(group, costs={rack: dict(row) for rack, row in costs.items()}, weights=rows)
