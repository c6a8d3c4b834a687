"""Options for standbys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from rackassign.errors import ConfigError
from rackassign.strategies.standby.client_tags import MOST_TAGS
from rackassign.util.text import short_repr

Mode = Literal["best", "kafka"]
"""How copies are placed: with the least collisions, or as Kafka Streams does."""

Rule = Literal["even", "strict", "hadoop"]
"""Definition of a collision: more copies on one value than an even spread needs; any two on one value, which are
never placed (Redis); or more than two on one value, or as many values as copies (Hadoop, where two copies have two
values). If all members have one value, `even` and `hadoop` place all copies there and count the collisions."""

MODES: tuple[Mode, ...] = get_args(Mode)
RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """Options for the placement of standbys. Those with an equivalent in Kafka Streams have its name.

    Args:
        num_standby_replicas: Number of copies of each partition in addition to the active one.
        rack_aware_assignment_tags: Keys of client tags over whose values copies are spread.
        mode: How copies are placed.
        rule: What a collision is; mode `kafka` has its own rule.
        forced_tag_values: Values of a tag that count even if no member has them now (Elasticsearch's forced
            awareness): copies that do not fit on the existing values are omitted, not concentrated on them.
        acceptable_recovery_lag: Number of records a copy may lack and still count as warm (KIP-441).
        max_warmup_replicas: Number of partitions that warm up at the same time.

    Raises:
        ConfigError: If an option is not valid.
    """

    num_standby_replicas: int = 1
    rack_aware_assignment_tags: Sequence[str] = ()
    mode: Mode = "best"
    rule: Rule = "even"
    forced_tag_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2

    def __post_init__(self) -> None:
        for name, least in (
            ("num_standby_replicas", 0),
            ("acceptable_recovery_lag", 0),
            ("max_warmup_replicas", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigError(f"{name} must be an integer, {least} or more, got {short_repr(value)}")
        tags = self.rack_aware_assignment_tags
        if not _names(tags) or len(tags) > MOST_TAGS or len(set(tags)) < len(tags):
            raise ConfigError(
                f"rack_aware_assignment_tags must be up to {MOST_TAGS} different keys, got {short_repr(tags)}"
            )
        for name, value, allowed in (("mode", self.mode, MODES), ("rule", self.rule, RULES)):
            if value not in allowed:
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {short_repr(value)}")
        if not isinstance(self.forced_tag_values, Mapping):
            raise ConfigError(f"forced_tag_values must be keys with values, got {short_repr(self.forced_tag_values)}")
        for key, values in self.forced_tag_values.items():
            if key not in tags:
                raise ConfigError(f"forced_tag_values: {short_repr(key)} is not one of rack_aware_assignment_tags")
            if not _names(values) or not values:
                raise ConfigError(f"forced_tag_values: {short_repr(key)}: expected values, got {short_repr(values)}")
        if self.mode == "kafka" and (self.rule != "even" or self.forced_tag_values):
            raise ConfigError("mode kafka has its own rules: omit rule and forced_tag_values")


def _names(value: object) -> bool:
    """Return whether a value is a collection of strings, and not a string itself."""
    return (
        isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(isinstance(v, str) for v in value)
    )
