"""Kafka's own placers, with the random numbers of `java.util.Random`: their results for a seed are Java's.

`KafkaPlacer` is Kafka's placement before KRaft (KIP-36) which `kafka-reassign-partitions --generate` still uses.

Each partition is placed exactly as in Java with the same start; the start is drawn from `seed` unless it is fixed.

`StripedPlacer` (Java: `StripedReplicaPlacer`) is that of KRaft controllers, with the same sequence of random numbers.
Each partition takes its leader from the next rack and its followers from the racks after it; the brokers of a rack are
used in turn. After as many partitions as there are unfenced brokers, all orders are shuffled, which results in other
pairs. The placer considers one topic, never the existing load of brokers, and it balances racks rather than brokers:
the only broker of a rack gets a replica of everything. If racks are of equal size, their brokers lead unevenly between
two shuffles: of n brokers n / gcd(n, replicas) lead.

One behavior is kept from Java: after a shuffle a fenced broker may be used although an unfenced one of its rack is
free, since the lists store the number of the round in which they were used up, and these numbers begin again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, get_args

from rackassign.errors import ConfigError
from rackassign.placement.constraints import check_settings
from rackassign.placement.placer import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    ReplicaPlacementError,
    UsableBroker,
)
from rackassign.text import short_repr

_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 11
_MASK = 2**48 - 1
_INT_BITS = 31


class JavaRandom(ABC):
    """Random numbers, derived from random bits like in `java.util.Random`."""

    @abstractmethod
    def next_bits(self, bits: int) -> int:
        """Return that many random bits (up to 32), as a signed 32-bit number."""

    def next_int(self, bound: int) -> int:
        """Return a number of at least 0 and below the bound, which must be positive."""
        if bound & (bound - 1) == 0:
            return (bound * self.next_bits(_INT_BITS)) >> _INT_BITS
        while True:
            drawn = self.next_bits(_INT_BITS)
            number = drawn % bound
            # Numbers of the incomplete last interval are drawn again, as small ones would be more likely otherwise.
            if drawn - number + bound - 1 < 2**_INT_BITS:
                return number

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Shuffle values in place (`Collections.shuffle`)."""
        for size in range(len(values), 1, -1):
            other = self.next_int(size)
            values[size - 1], values[other] = values[other], values[size - 1]


class SeededJavaRandom(JavaRandom):
    """`java.util.Random` with a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def next_bits(self, bits: int) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        drawn = self._state >> (48 - bits)
        return drawn - 2**32 if drawn >= 2**31 else drawn


def random_from_config(configs: dict[str, Any]) -> JavaRandom:
    """Return random numbers for the setting `seed`, 0 if it is not set."""
    seed = configs.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"seed: expected an integer, got {short_repr(seed)}")
    return SeededJavaRandom(seed)


RackAwareMode = Literal["Enforced", "Safe", "Disabled"]
"""What to do if only some brokers have a rack: refuse, or ignore all racks; or ignore racks in any case."""

RACK_AWARE_MODES: tuple[RackAwareMode, ...] = get_args(RackAwareMode)

_NO_START = -1
_SOME_WITHOUT = "Not all brokers have rack information"


def filter_racks(racks: Mapping[int, str | None], mode: RackAwareMode) -> dict[int, str | None]:
    """Return the racks that count, by broker ID."""
    without = sum(rack is None for rack in racks.values())
    if mode == "Disabled" or (mode == "Safe" and without):
        return dict.fromkeys(racks)
    if 0 < without < len(racks):
        raise ReplicaPlacementError(
            f"{_SOME_WITHOUT}. "
            "Add --disable-rack-aware in command line to make replica assignment without rack information."
        )
    return dict(racks)


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Return broker IDs, one of each rack in turn; racks by name, brokers by ID."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in rounds for broker in turn if broker is not None]


def assign_replicas(
    racks: Mapping[int, str | None],
    num_partitions: int,
    replication_factor: int,
    *,
    fixed_start_index: int = _NO_START,
    start_partition_id: int = _NO_START,
    chance: JavaRandom | None = None,
) -> dict[int, list[int]]:
    """Return replicas by partition, preferred leader first (`assignReplicasToBrokers`)."""
    # All brokers have a rack, or none has. A `fixed_start_index` of -1 is drawn, a `start_partition_id` of -1 is 0.
    if num_partitions <= 0:
        raise InvalidPartitionsError("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise InvalidReplicationFactorError(
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}."
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if known and len(known) < len(racks):
        raise ReplicaPlacementError(f"{_SOME_WITHOUT} for replica rack aware assignment.")
    ring = _Ring(rack_alternated(known) if known else sorted(racks), known)
    chance = chance or SeededJavaRandom()
    drawn = [fixed_start_index if fixed_start_index >= 0 else chance.next_int(len(ring.brokers)) for _ in range(2)]
    start, shift = drawn
    first = max(0, start_partition_id)
    placed: dict[int, list[int]] = {}
    for partition in range(first, first + num_partitions):
        # Each new round pairs leaders with other followers.
        shift += partition > 0 and partition % len(ring.brokers) == 0
        placed[partition] = ring.replicas((partition + start) % len(ring.brokers), shift, replication_factor)
    return placed


@dataclass(frozen=True, slots=True)
class _Ring:
    brokers: list[int]
    racks: Mapping[int, str]

    def replicas(self, leader: int, shift: int, count: int) -> list[int]:
        size, all_racks = len(self.brokers), set(self.racks.values())
        shift *= max(1, len(all_racks))
        placed = [self.brokers[leader]]
        step = 0
        while len(placed) < count:
            broker = self.brokers[(leader + 1 + (shift + step) % (size - 1)) % size]
            step += 1
            used = {self.racks[other] for other in placed} if self.racks else set()
            if broker not in placed and (not self.racks or self.racks[broker] not in used or used == all_racks):
                placed.append(broker)
        return placed


class KafkaPlacer:
    """`AdminUtils` as a placer; fenced brokers are not used, as it only ever had live ones.

    Settings: `rack_aware_mode` (Enforced, Safe or Disabled; Enforced unless set), `fixed_start_index`, `seed` (0).
    """

    def __init__(self) -> None:
        self._mode: RackAwareMode = "Enforced"
        self._start = _NO_START
        self._chance: JavaRandom = SeededJavaRandom()

    def configure(self, configs: dict[str, Any]) -> None:
        check_settings(configs, ("rack_aware_mode", "fixed_start_index", "seed"))
        mode, start = configs.get("rack_aware_mode", "Enforced"), configs.get("fixed_start_index", _NO_START)
        if mode not in RACK_AWARE_MODES:
            raise ConfigError(f"rack_aware_mode: expected {', '.join(RACK_AWARE_MODES)}, got {short_repr(mode)}")
        if type(start) is not int:
            raise ConfigError(f"fixed_start_index: expected an integer, got {short_repr(start)}")
        self._mode, self._start, self._chance = mode, start, random_from_config(configs)

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        """Place like `assign_replicas`, with its errors."""
        racks = {broker.id: broker.rack for broker in brokers if not broker.fenced}
        placed = assign_replicas(
            filter_racks(racks, self._mode),
            num_partitions,
            num_replicas,
            fixed_start_index=self._start,
            start_partition_id=start_partition,
            chance=self._chance,
        )
        return list(placed.values())

    def close(self) -> None:
        """Do nothing: there are no resources."""


_NONE = -1


class BrokerRing:
    """Brokers of one rack that are returned in turn, each once a round."""

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
    """The controller's placer. Setting: `seed` (0); a controller draws a new one each time."""

    def __init__(self, chance: JavaRandom | None = None) -> None:
        self._chance = chance or SeededJavaRandom()

    def configure(self, configs: dict[str, Any]) -> None:
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
