"""What a repair is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rackassign.errors import ConfigError
from rackassign.placement import json_fields
from rackassign.placement.constraints import PlacementConstraints
from rackassign.util.text import short_repr

_TAKEN = {"first", "exclude", "coverage", "on_shortage"}
"""Rules that a wish says in words of its own, or that a repair decides."""


_KEYS = ("topics", "rf", "replace", "even", "group", "rules", "force", "ignore_racks", "allow_placeholders")
"""Keys in a plan file: those of its format, which outlive the names of fields."""


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    """What is to be put right, beside what is always: replicas that share a rack, or wait for a broker.

    Args:
        topics: Only these; None for all.
        replication_factor: How many replicas each partition shall have; None for as many as it has.
        removed_brokers: Brokers that lose what they have: they are dead, or are to go.
        rebalance: Whether brokers are to carry evenly, at the price of moving more.
        group: Name of the consumer group near which replicas are to be; empty for none.
        rules: Further settings of `PlacementConstraints`.
        force: Whether it may leave brokers much less even than they are.
        ignore_racks: Whether brokers are taken to have no racks.
        allow_placeholders: Whether there may be more replicas than brokers were ever seen.
    """

    topics: tuple[str, ...] | None = None
    replication_factor: int | None = None
    removed_brokers: frozenset[int] = frozenset()
    rebalance: bool = False
    group: str = ""
    rules: Mapping[str, Any] = field(default_factory=dict)
    force: bool = False
    ignore_racks: bool = False
    allow_placeholders: bool = False

    def __post_init__(self) -> None:
        # It may come from a file that somebody has changed.
        names: list[object] = [self.group, *(self.topics or ())]
        if not all(isinstance(name, str) for name in names):
            raise ConfigError("group and topics: expected names")
        if any(type(broker) is not int for broker in self.removed_brokers):
            raise ConfigError("replace: expected ids of brokers")
        if self.replication_factor is not None and self.replication_factor < 1:
            raise ConfigError(f"rf must be 1 or more, got {self.replication_factor}")
        if not isinstance(self.rules, Mapping):
            raise ConfigError(f"rules: expected an object, got {short_repr(self.rules)}")
        for name in self.rules:
            if name in _TAKEN:
                raise ConfigError(f"{name} cannot be set for a repair")
        PlacementConstraints.of(self.rules)
        if self.ignore_racks and self.group:
            raise ConfigError("for-group: without racks no broker is near to a reader; leave out --disable-rack-aware")

    def rules_for(self, coverage: Mapping[str, float] | None) -> PlacementConstraints:
        """Return how to place.

        Args:
            coverage: What racks weigh, where a group reads.
        """
        base = PlacementConstraints.of(self.rules)
        rules = replace(
            base,
            exclude=self.removed_brokers,
            on_shortage="placeholder",
            first="balance" if self.rebalance else "moves",
        )
        # Where a group reads decides where copies go that are made anyway; which are made for it is another matter.
        return rules if coverage is None or self.rebalance else replace(rules, coverage=coverage)

    def to_json(self) -> dict[str, Any]:
        """Return what reads as this wish."""
        return {
            "topics": self.topics,
            "rf": self.replication_factor,
            "replace": sorted(self.removed_brokers),
            "even": self.rebalance,
            "group": self.group,
            "rules": self.rules,
            "force": self.force,
            "ignore_racks": self.ignore_racks,
            "allow_placeholders": self.allow_placeholders,
        }

    @classmethod
    def read(cls, value: Any) -> ReassignmentRequest:  # noqa: ANN401 - it comes from JSON
        """Make a wish of parsed JSON.

        Raises:
            InputError: A field is unknown or wrong; names it.
            ConfigError: It cannot be.
        """
        found = json_fields.fields(value, "wish", (), _KEYS)
        topics, rf = found.get("topics"), found.get("rf")
        return cls(
            None
            if topics is None
            else tuple(json_fields.text(topic, "wish.topics") for topic in json_fields.array(topics, "wish.topics")),
            None if rf is None else json_fields.number(rf, "wish.rf"),
            frozenset(
                json_fields.number(broker, "wish.replace")
                for broker in json_fields.array(found.get("replace", []), "wish.replace")
            ),
            json_fields.flag(found.get("even", False), "wish.even"),
            json_fields.text(found.get("group", ""), "wish.group"),
            json_fields.mapping(found.get("rules", {}), "wish.rules"),
            json_fields.flag(found.get("force", False), "wish.force"),
            json_fields.flag(found.get("ignore_racks", False), "wish.ignore_racks"),
            json_fields.flag(found.get("allow_placeholders", False), "wish.allow_placeholders"),
        )
