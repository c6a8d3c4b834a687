"""Kafka's placement before KRaft (KIP-36, `AdminUtils`), which `kafka-reassign-partitions --generate` still uses.

Each partition is placed exactly as in Java with the same start; the start is drawn from `seed` unless it is fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, get_args

from rackassign.errors import ConfigError
from rackassign.placement.constraints import check_settings
from rackassign.placement.java_random import JavaRandom, SeededJavaRandom, random_from_config
from rackassign.placement.placer import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    ReplicaPlacementError,
    UsableBroker,
)
from rackassign.text import short_repr

RackAwareMode = Literal["Enforced", "Safe", "Disabled"]
"""What to do if only some brokers have a rack: refuse, or ignore all racks; or ignore racks in any case."""

RACK_AWARE_MODES: tuple[RackAwareMode, ...] = get_args(RackAwareMode)

_NO_START = -1
_SOME_WITHOUT = "Not all brokers have rack information"


def filter_racks(racks: Mapping[int, str | None], mode: RackAwareMode) -> dict[int, str | None]:
    """Return the racks that count, by broker ID.

    Raises:
        ReplicaPlacementError: The mode is Enforced and some brokers have a rack while others have none.
    """
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
    """Return replicas by partition, preferred leader first (`assignReplicasToBrokers`).

    Args:
        racks: Rack of each broker by ID; all brokers have one, or none has.
        num_partitions: Partitions to place.
        replication_factor: Replicas of each.
        fixed_start_index: Index of the broker to begin with, for leaders and followers; -1: drawn.
        start_partition_id: Number of the first partition; -1: 0.
        chance: Source of random numbers; of seed 0 if not given.

    Raises:
        InvalidPartitionsError: There are no partitions to place.
        InvalidReplicationFactorError: It is not positive, or more than there are brokers.
        ReplicaPlacementError: Some brokers have a rack and others have none.
    """
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
        """Return the leader and the followers after it."""
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
        """Set the settings.

        Raises:
            ConfigError: A setting or the mode is unknown, or a number is invalid.
        """
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
