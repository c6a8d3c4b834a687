"""The assignors that keep what they can: sticky, and cooperative-sticky.

What a member says it owns decides who is left alone, and in the cooperative protocol who is waited for. A claim that
is not true leaves a partition to nobody. So a member claims what its consumer holds now, and not what it was given
once: the client empties that when membership is lost and trims it when a topic is unsubscribed, and tells no assignor.
It sends the true generation with it (KIP-792), and a leader that withholds something asks for the next round itself.
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
    """What sticky and cooperative-sticky share: balance, then locality, then as few moves as possible, all exact.

    Args:
        rack: As for `Assignor`.
        locality: The same.
        name: The same.
        rack_monitor: As of `Assignor`.
        max_skew: 0 for balance before locality. k > 0 lets members with equal subscriptions differ by up to 1 + k
            partitions if that makes more local.
        costs: What reading across costs, by the reader's rack and the replica's; a pair that is missing costs 1.
            Without costs every pair does.
        weights: A weight of each partition by topic (bytes per second, lag), or a function that returns such a
            mapping. Loads of weight are balanced then, and locality counts weight. The function is called where
            the client handles its group (its IO thread, its event loop) whenever this member assigns: it must not
            block. If it raises, the group is balanced by number, with a warning; and so for good once it has taken
            longer than a third of the session timeout. Not together with `max_skew`.

    Raises:
        ConfigError: If an option cannot work.
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
            _with(_NOBODY, self._costs, {} if weights is None or callable(weights) else weights)
        except (InputError, AttributeError, TypeError, OverflowError) as error:
            raise ConfigError(f"this cannot be used: {error}") from None
        self._begin()

    def _begin(self) -> None:
        """Set what a kind of these remembers."""

    def _read_group(self, group: Group) -> Group:
        """Return the group with costs and weights, and with the brokers that are away."""
        group = self._seen(group)
        if self._weights is None:
            return _with(group, self._costs, {})
        try:
            weights = self._timed_weights() if callable(self._weights) else self._weights
            known = {topic: row for topic, row in weights.items() if topic in group.topology.topics}
            return _with(group, self._costs, known)
        except Exception:  # noqa: BLE001 - the user's own function, whatever it raises
            self._once.warn(
                "weights", "%s: weights cannot be had; partitions are counted instead", self.name, exc_info=True
            )
            return _with(group, self._costs, {})

    def _timed_weights(self) -> Weights:
        """Return what the user's function says, unless it has taken longer than a whole plan may."""
        if self._slow or not callable(self._weights):
            return {}
        begun = time.monotonic()
        weights = self._weights()
        took_s, limit_s = time.monotonic() - begun, time_limit_s(self._membership)
        if took_s > limit_s:
            # The group may be lost to this leader by now, and would be again, each time it leads.
            self._slow = True
            self._once.warn(
                "slow weights",
                "%s: weights took %.1f s, and all of an assignment may take %.1f s, a third of the session timeout:"
                " they are not asked for any more, and partitions are counted instead",
                *(self.name, took_s, limit_s),
            )
        return weights

    def _plain(self, cluster: AnyCluster, members: list[JoinMember]) -> LeaderAssignment:
        return LeaderAssignment(fallback_balanced(cluster, members))


class StickyAssignor(OptimalAssignor):
    """Sticky assignment near home, for the eager protocol. Takes the arguments of `OptimalAssignor`.

    Reads and writes the user data of Java's `StickyAssignor`, so that mixed groups stay sticky.
    """

    strategy: ClassVar[str] = "sticky"
    name = "sticky"

    def _begin(self) -> None:
        self._last: StickyData | None = None

    def _subscription(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack, and as user data what this member had last; null before there was anything."""
        user_data = None
        if self._last is not None:
            owned = {topic: partitions for topic, partitions in self._last.owned.items() if topic in topics}
            user_data = encode_sticky(replace(self._last, owned=owned))
        return Subscription(topics, user_data, rack=self.rack)

    def _complete(self, given: Partitions, generation: int) -> None:
        """Remember what this member was given, and when."""
        self._last = StickyData(given, generation)

    def _group(self, cluster: AnyCluster, members: list[JoinMember]) -> Group:
        return self._read_group(build_group(self._reader(cluster), members, self._claims))

    def _claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        try:
            data = decode_sticky(subscription.user_data)
        except WireError as error:
            self._once.warn("user data", "%s: what a member had cannot be read: %s", self.name, error)
            return {}, None
        return data.owned, data.generation


class CooperativeStickyAssignor(OptimalAssignor):
    """Sticky assignment near home, for the cooperative protocol (KIP-429). Takes the arguments of `OptimalAssignor`.

    An instance belongs to one consumer. Tied to it, it claims exactly what that holds. As long as it is not, it claims
    what it was given last, and its leader makes up for what is not true.
    """

    strategy: ClassVar[str] = "cooperative-sticky"
    name = "cooperative-sticky"

    def _begin(self) -> None:
        self._generation = -1
        self._asked = 0

    def _subscription(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack, what this member holds of them, and in which generation it was given that."""
        owned: Partitions = {}
        try:
            owned = self._held()
        except Exception:  # noqa: BLE001 - raised from here, every poll() would fail
            self._once.warn("held", "%s: what is held cannot be told; nothing is claimed", self.name, exc_info=True)
        claims = {topic: owned[topic] for topic in topics if owned.get(topic)}
        return Subscription(topics, None, claims, self._generation, self.rack)

    def _held(self) -> Partitions:
        if self._membership is None:
            return self._given or {}
        # An eager member has given up everything by now, though its consumer still lists it.
        return self._membership.owned() if self._membership.cooperative() else {}

    def _complete(self, given: Partitions, generation: int) -> None:
        """Remember the generation; as the leader, ask for the round that hands out what was withheld."""
        del given
        self._generation = generation
        decided = self._decisions.last
        if decided is None or decided.complete:
            self._asked = 0
            return
        self._asked += 1
        if self._asked > _MOST_ROUNDS:
            self._once.warn("rounds", "%s: members go on claiming what they were not given", self.name)
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
        """Return the members with nothing claimed that is known not to be owned; all of it if that cannot be told."""
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
"""So often in a row a leader asks for another round. Two are enough unless a member's claims are never true."""

_NOBODY = Group(Topology((), {}), ())


def _with(group: Group, costs: Mapping[str, Mapping[str, float]], weights: Mapping[str, Any]) -> Group:
    """Return a group with costs and weights, checked."""
    rows: dict[str, tuple[float, ...]] = {}
    for topic, row in weights.items():
        if isinstance(row, (Mapping, str)):
            raise InputError(f"weights.{topic}", "expected a list, got a mapping")
        # Whatever counts as a number, numpy's too; what does not is refused by the group.
        rows[topic] = tuple(float(w) if isinstance(w, Real) and not isinstance(w, bool) else w for w in row)
    return replace(group, costs={rack: dict(row) for rack, row in costs.items()}, weights=rows)
