"""Standbys (KIP-708): options, client tags with the limits of Kafka Streams, and what assigning them results in.

Members import this module, so it needs neither numpy nor the solver. `standby_assignment` computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from rackassign.errors import ConfigError
from rackassign.model import Partitions, Plan, TopicPartition
from rackassign.strategies import assign_standbys
from rackassign.text import short_repr

Copies = Mapping[str, Mapping[TopicPartition, int]]
"""For each member the partitions of which it has state, with its lag in records; 0 for all if it is active."""

MOST_TAGS = 5
LONGEST_KEY = 20
LONGEST_VALUE = 30
"""In UTF-16 units, as Java counts the length of a string."""

_PREFIX = "client.tag."
_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"


def validate_client_tags(client_tags: Mapping[str, str], assignment_tags: Sequence[str]) -> dict[str, str]:
    """Reject what Kafka Streams would: tags are sent in the group's metadata, and a listed tag must be set."""
    if not isinstance(client_tags, Mapping):
        raise ConfigError(f"client_tags must be keys with values, got {short_repr(client_tags)}")
    for pair in client_tags.items():
        if not all(isinstance(each, str) for each in pair):
            raise ConfigError(f"client_tags must be strings, got {short_repr(pair[0])} with {short_repr(pair[1])}")
        if not all(pair):
            # A variable that is not set, more often than not: all members would have one value.
            raise ConfigError(f"client_tags must not be empty, got {short_repr(pair[0])} with {short_repr(pair[1])}")
        if not all(map(_is_unicode, pair)):
            # Python reads such text from variables whose bytes are not UTF-8. Each join would fail in `poll()`.
            raise ConfigError(f"client_tags cannot be sent as UTF-8: {short_repr(pair[0])} with {short_repr(pair[1])}")
    if len(assignment_tags) > MOST_TAGS:
        raise _invalid(_listed(assignment_tags), _ASSIGNMENT_TAGS, f"exceeds maximum list size of [{MOST_TAGS}].")
    if len(client_tags) > MOST_TAGS:
        raise ConfigError(f"At most {MOST_TAGS} client tags can be specified using {_PREFIX} prefix.")
    for key, value in client_tags.items():
        if _length(key) > LONGEST_KEY:
            raise _invalid(key, _PREFIX, f"Tag key exceeds maximum length of {LONGEST_KEY}.")
        if _length(value) > LONGEST_VALUE:
            raise _invalid(value, _PREFIX, f"Tag value exceeds maximum length of {LONGEST_VALUE}.")
    for key in assignment_tags:
        if key not in client_tags:
            problem = f"Contains invalid value [{key}] which doesn't have corresponding tag set via [{_PREFIX}] prefix."
            raise _invalid(_listed(assignment_tags), _ASSIGNMENT_TAGS, problem)
    return dict(client_tags)


def _invalid(value: str, setting: str, problem: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {setting}: {problem}")


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _length(text: str) -> int:
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Rule = Literal["even", "strict", "hadoop"]
"""Definition of a collision: more copies on one value than an even spread needs; any two on one value, which are
never placed (Redis); or more than two on one value, or as many values as copies (Hadoop, where two copies have two
values). If all members have one value, `even` and `hadoop` place all copies there and count the collisions."""

RULES: tuple[Rule, ...] = get_args(Rule)


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """Options for the placement of standbys. Those with an equivalent in Kafka Streams have its name.

    Args:
        num_standby_replicas: Number of copies of each partition in addition to the active one.
        rack_aware_assignment_tags: Keys of client tags over whose values copies are spread.
        rule: What a collision is.
        forced_tag_values: Values of a tag that count even if no member has them now (Elasticsearch's forced
            awareness): copies that do not fit on the existing values are omitted, not concentrated on them.
        acceptable_recovery_lag: Number of records a copy may lack and still count as warm (KIP-441).
        max_warmup_replicas: Number of partitions that warm up at the same time.

    Raises:
        ConfigError: If an option is not valid.
    """

    num_standby_replicas: int = 1
    rack_aware_assignment_tags: Sequence[str] = ()
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
        if self.rule not in RULES:
            raise ConfigError(f"rule must be one of {', '.join(RULES)}, got {short_repr(self.rule)}")
        if not isinstance(self.forced_tag_values, Mapping):
            raise ConfigError(f"forced_tag_values must be keys with values, got {short_repr(self.forced_tag_values)}")
        for key, values in self.forced_tag_values.items():
            if key not in tags:
                raise ConfigError(f"forced_tag_values: {short_repr(key)} is not one of rack_aware_assignment_tags")
            if not _names(values) or not values:
                raise ConfigError(f"forced_tag_values: {short_repr(key)}: expected values, got {short_repr(values)}")


def _names(value: object) -> bool:
    """Return whether a value is a collection of strings, and not a string itself."""
    return (
        isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(isinstance(v, str) for v in value)
    )


@dataclass(frozen=True, slots=True)
class StandbyPlan:
    """The assignment of active members and standbys."""

    plan: Plan
    # Partitions of which each member is to keep a copy, including its warm-ups, awaited copies, and copies it keeps
    # until others are warm. An entry for every member.
    standbys: Mapping[str, Partitions]
    # Those that are awaited: once one is warm, the partition moves to the member, or another can drop its copy.
    warmups: Mapping[str, Partitions]
    # Copies that cannot be placed, and copies on a value of a tag beyond the limits of the rule.
    missing: Mapping[TopicPartition, int]
    collisions: int
    # Whether copies are optimal: collisions, even loads, kept, in that order.
    proven: bool


__all__ = [
    "RULES",
    "Copies",
    "Rule",
    "StandbyOptions",
    "StandbyPlan",
    "assign_standbys",
    "validate_client_tags",
]
