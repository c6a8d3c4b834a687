"""The placer of KRaft controllers (`StripedReplicaPlacer`), with the same sequence of random numbers.

Each partition takes its leader from the next rack and its followers from the racks after it; the brokers of a rack are
used in turn. After as many partitions as there are unfenced brokers, all orders are shuffled, which results in other
pairs. The placer considers one topic, never the existing load of brokers, and it balances racks rather than brokers:
the only broker of a rack gets a replica of everything. If racks are of equal size, their brokers lead unevenly between
two shuffles: of n brokers n / gcd(n, replicas) lead.

One behavior is kept from Java: after a shuffle a fenced broker may be used although an unfenced one of its rack is
free, since the lists store the number of the round in which they were used up, and these numbers begin again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rackassign.placement.constraints import check_settings
from rackassign.placement.java_random import JavaRandom, SeededJavaRandom, random_from_config
from rackassign.placement.placer import InvalidReplicationFactorError, UsableBroker

_NONE = -1


class BrokerRing:
    """Brokers of one rack that are returned in turn, each once a round.

    Args:
        brokers: Their IDs.
        offset: Index of the first one.
    """

    def __init__(self, brokers: Iterable[int], offset: int = 0) -> None:
        self._brokers = sorted(brokers)
        self._offset = offset
        self._round = 0
        self._given = 0

    def draw_offset(self, chance: JavaRandom) -> None:
        """Draw the first broker; an empty ring draws nothing."""
        if self._brokers:
            self._offset = chance.next_int(len(self._brokers))

    def shuffle(self, chance: JavaRandom) -> None:
        """Shuffle the brokers."""
        chance.shuffle(self._brokers)

    def next(self, round_: int) -> int:
        """Return the next broker of this round; -1 when all have been returned."""
        if not self._brokers:
            return _NONE
        if round_ != self._round:
            self._round, self._given = round_, 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._given >= len(self._brokers):
            return _NONE
        self._given += 1
        return self._brokers[(self._offset + self._given - 1) % len(self._brokers)]


class _Rack:
    def __init__(self, brokers: Sequence[UsableBroker], chance: JavaRandom) -> None:
        self.unfenced = BrokerRing(broker.id for broker in brokers if not broker.fenced)
        self.fenced = BrokerRing(broker.id for broker in brokers if broker.fenced)
        for ring in (self.unfenced, self.fenced):
            ring.draw_offset(chance)

    def shuffle(self, chance: JavaRandom) -> None:
        self.unfenced.shuffle(chance)
        self.fenced.shuffle(chance)

    def next(self, round_: int) -> int:
        broker = self.unfenced.next(round_)
        return self.fenced.next(round_) if broker == _NONE else broker


class _Stripes:
    def __init__(self, brokers: Sequence[UsableBroker], chance: JavaRandom) -> None:
        # Brokers without a rack form a rack of their own, the first.
        names = sorted({broker.rack for broker in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_Rack([broker for broker in brokers if broker.rack == name], chance) for name in names]
        self._order = list(range(len(names)))
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._chance = chance
        self._offset = chance.next_int(len(names))
        self._round = 0

    def place(self, count: int) -> list[int]:
        if self._round == self._unfenced > 1:
            self._chance.shuffle(self._order)
            for rack in self._racks:
                rack.shuffle(self._chance)
            self._round = 0
        self._offset %= len(self._order)
        racks = [self._racks[rack] for rack in self._order]
        leader, own = self._leader(racks)
        placed = self._with_followers(leader, own, racks, count)
        self._round += 1
        self._offset += 1
        return placed

    def _leader(self, racks: list[_Rack]) -> tuple[int, int]:
        at = self._offset
        while (leader := racks[at].unfenced.next(self._round)) == _NONE:
            at = (at + 1) % len(racks)
        return leader, at

    def _with_followers(self, leader: int, own: int, racks: list[_Rack], count: int) -> list[int]:
        placed, at, passed = [leader], self._offset, False
        while len(placed) < count:
            if at == own and not passed:
                passed = True
            elif (broker := racks[at].next(self._round)) != _NONE:
                placed.append(broker)
            at = (at + 1) % len(racks)
        return placed


class StripedPlacer:
    """The controller's placer. Setting: `seed` (0); a controller draws a new one each time.

    Args:
        chance: Source of random numbers; by default one with the seed.
    """

    def __init__(self, chance: JavaRandom | None = None) -> None:
        self._chance = chance or SeededJavaRandom()

    def configure(self, configs: dict[str, Any]) -> None:
        """Set the seed.

        Raises:
            ConfigError: A setting is unknown, or the seed is not an integer.
        """
        check_settings(configs, ("seed",))
        if "seed" in configs:
            self._chance = random_from_config(configs)

    def place(
        self,
        start_partition: int,  # noqa: ARG002 - Java's ignores it too
        num_partitions: int,
        num_replicas: int,
        brokers: Iterable[UsableBroker],
    ) -> list[list[int]]:
        """Place partition after partition.

        Raises:
            InvalidReplicationFactorError: It is not positive, more than there are brokers, or all brokers are fenced.
        """
        known = list(brokers)
        if num_replicas <= 0:
            raise InvalidReplicationFactorError(
                f"Invalid replication factor {num_replicas}: the replication factor must be positive."
            )
        if all(broker.fenced for broker in known):
            raise InvalidReplicationFactorError("All brokers are currently fenced.")
        if num_replicas > len(known):
            raise InvalidReplicationFactorError(
                f"The target replication factor of {num_replicas} cannot be reached because only {len(known)} "
                "broker(s) are registered."
            )
        stripes = _Stripes(known, self._chance)
        return [stripes.place(num_replicas) for _ in range(num_partitions)]

    def close(self) -> None:
        """Do nothing: there are no resources."""
