"""The request for a reassignment, as it is also in the plan file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rackassign.errors import ConfigError
from rackassign.placement.constraints import PlacementConstraints
from rackassign.text import short_repr
from rackassign.util.files import array_field, bool_field, number_field, object_field, object_fields, text_field

JSON_KEY = "wish"
"""Key of a request in a plan file."""

_JSON_FIELDS = ("topics", "rf", "replace", "even", "group", "rules", "force", "ignore_racks", "allow_placeholders")
_TAKEN = {"first", "exclude", "coverage", "on_shortage"}
"""Constraints that a request has other fields for, or that a reassignment sets itself."""


@dataclass(frozen=True, slots=True)
class ReassignmentRequest:
    """What is to be fixed, in addition to replicas that share a rack and placeholders.

    Args:
        topics: Topics to plan; None for all.
        replication_factor: Replicas of each partition; None for as many as it has.
        removed_brokers: Brokers that lose all their replicas, because they are dead or to be decommissioned.
        rebalance: Whether to balance the load of brokers, at the price of moving more.
        group: Consumer group in whose racks replicas are to be placed; empty for none.
        rules: Further settings of `PlacementConstraints`.
        force: Whether the plan may leave brokers much less even than they are.
        ignore_racks: Whether to plan as if brokers had no racks.
        allow_placeholders: Whether the replication factor may exceed the number of brokers ever seen.
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
        # The request may come from a file that was edited by hand.
        names: list[object] = [self.group, *(self.topics or ())]
        if not all(isinstance(name, str) for name in names):
            raise ConfigError("group and topics: expected names")
        if any(type(broker) is not int for broker in self.removed_brokers):
            raise ConfigError("remove-broker: expected broker IDs")
        if self.replication_factor is not None and self.replication_factor < 1:
            raise ConfigError(f"replication factor must be 1 or more, got {self.replication_factor}")
        if not isinstance(self.rules, Mapping):
            raise ConfigError(f"rules: expected an object, got {short_repr(self.rules)}")
        for name in self.rules:
            if name in _TAKEN:
                raise ConfigError(f"{name} cannot be set for a reassignment")
        PlacementConstraints.of(self.rules)
        if self.ignore_racks and self.group:
            raise ConfigError(
                "near-group: without racks no broker is local to a reader; leave out --disable-rack-aware"
            )

    def rules_for(self, coverage: Mapping[str, float] | None) -> PlacementConstraints:
        """Return the constraints of the placement.

        Args:
            coverage: Weights of racks, by where a group reads.
        """
        base = PlacementConstraints.of(self.rules)
        rules = replace(
            base,
            exclude=self.removed_brokers,
            on_shortage="placeholder",
            first="balance" if self.rebalance else "moves",
        )
        # Where a group reads decides where the copies go that are made anyway. Which copies are made for the group is
        # decided elsewhere.
        return rules if coverage is None or self.rebalance else replace(rules, coverage=coverage)

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON that `read` accepts."""
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
        """Return the request of parsed JSON.

        Raises:
            InputError: A field is unknown or invalid; the message names it.
            ConfigError: A value is impossible.
        """
        fields = object_fields(value, JSON_KEY, (), _JSON_FIELDS)
        topics, factor = fields.get("topics"), fields.get("rf")
        return cls(
            None if topics is None else tuple(text_field(topic, _path("topics")) for topic in _array(topics, "topics")),
            None if factor is None else number_field(factor, _path("rf")),
            frozenset(
                number_field(broker, _path("replace")) for broker in _array(fields.get("replace", []), "replace")
            ),
            bool_field(fields.get("even", False), _path("even")),
            text_field(fields.get("group", ""), _path("group")),
            object_field(fields.get("rules", {}), _path("rules")),
            bool_field(fields.get("force", False), _path("force")),
            bool_field(fields.get("ignore_racks", False), _path("ignore_racks")),
            bool_field(fields.get("allow_placeholders", False), _path("allow_placeholders")),
        )


def _path(field: str) -> str:
    return f"{JSON_KEY}.{field}"


def _array(value: Any, field: str) -> list[Any]:  # noqa: ANN401 - it comes from JSON
    return array_field(value, _path(field))
