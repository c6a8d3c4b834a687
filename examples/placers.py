"""Two small placers that show why one would write one: each knows something of the cluster that Kafka does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rackassign.errors import ConfigError
from rackassign.placement.layout import Layout
from rackassign.placement.optimal_placer import OptimalPlacer
from rackassign.placement.placer import UsableBroker
from rackassign.text import short_repr


class NewBrokersFirstPlacer:
    """Fills brokers that are new. Setting: `known`, ids of those that are not, needed; the others as of `optimal`.

    Where the new ones alone could not keep replicas in as many racks, all brokers are used.
    """

    def __init__(self) -> None:
        self._known: frozenset[int] | None = None
        self._placer = OptimalPlacer()

    def configure(self, configs: dict[str, Any]) -> None:
        """Take settings.

        Raises:
            ConfigError: `known` is no list of ids, or another setting cannot work.
        """
        known = configs.pop("known", None)
        if known is None:
            self._known = None
            self._placer.configure(configs)
            return
        if not isinstance(known, (list, tuple, set, frozenset)) or any(type(broker) is not int for broker in known):
            raise ConfigError(f"known: expected a list of broker ids, got {short_repr(known)}")
        self._known = frozenset(known)
        self._placer.configure(configs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not proven of what was placed last, or was not kept to."""
        return self._placer.notes

    def observe(self, layout: Layout) -> None:
        """Count in what brokers carry."""
        self._placer.observe(layout)

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        """Place on new brokers, if they will do.

        Raises:
            ConfigError: It was not said which are not new.
        """
        if self._known is None:
            raise ConfigError("new-brokers-first needs a setting: known, ids of brokers that are not new")
        everybody = list(brokers)
        new = [broker for broker in everybody if broker.id not in self._known and not broker.fenced]
        reach = min(num_replicas, _racks(everybody))
        will_do = len(new) >= num_replicas and _racks(new) >= reach
        return self._placer.place(start_partition, num_partitions, num_replicas, new if will_do else everybody)

    def close(self) -> None:
        """Close the placer it asks."""
        self._placer.close()


class FreeSpacePlacer:
    """Places by the room on disks.

    Settings: `free`, bytes by broker, needed; `least` (0), below which a broker gets nothing.
    """

    def __init__(self) -> None:
        self._placer = OptimalPlacer()
        self._said: frozenset[int] = frozenset()

    def configure(self, configs: dict[str, Any]) -> None:
        """Take settings; what brokers say of their log directories (KIP-827) will do for `free`.

        Raises:
            ConfigError: `free` is not bytes by broker, `least` no number, or another setting cannot work.
        """
        given, least = configs.pop("free", {}), configs.pop("least", 0)
        if not isinstance(given, Mapping) or not all(_is_id(broker) for broker in given):
            raise ConfigError(f"free: expected bytes by broker id, got {short_repr(given)}")
        free = {int(broker): room for broker, room in given.items()}
        for name, value in [("least", least), *((f"free.{broker}", room) for broker, room in free.items())]:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise ConfigError(f"{name}: expected bytes, 0 or more, got {short_repr(value)}")
        full = [broker for broker, room in free.items() if room < least or not room]
        weights = {broker: room for broker, room in free.items() if broker not in full}
        self._placer.configure({**configs, "weights": weights, "exclude": [*configs.get("exclude", []), *full]})
        self._said = frozenset(free)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not proven of what was placed last, or was not kept to."""
        return self._placer.notes

    def observe(self, layout: Layout) -> None:
        """Count in what brokers carry."""
        self._placer.observe(layout)

    def place(
        self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Iterable[UsableBroker]
    ) -> list[list[int]]:
        """Place with room as weight.

        Raises:
            ConfigError: Nothing is said of a broker.
        """
        if not self._said:
            raise ConfigError("free-space needs a setting: free, bytes by broker id")
        everybody = list(brokers)
        for broker in everybody:
            if broker.id not in self._said:
                raise ConfigError(f"free: nothing is said of broker {broker.id}")
        return self._placer.place(start_partition, num_partitions, num_replicas, everybody)

    def close(self) -> None:
        """Close the placer it asks."""
        self._placer.close()


def _is_id(key: object) -> bool:
    return type(key) is int or (isinstance(key, str) and key.isascii() and key.isdecimal())


def _racks(brokers: Iterable[UsableBroker]) -> int:
    return len({broker.rack for broker in brokers})
