"""Client tags, and Kafka Streams' limits for them: the same limits and error messages (KIP-708)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

MOST_TAGS = 5
LONGEST_KEY = 20
LONGEST_VALUE = 30
"""In UTF-16 units, as Java counts the length of a string."""

_PREFIX = "client.tag."
_ASSIGNMENT_TAGS = "rack.aware.assignment.tags"


def validate_client_tags(client_tags: Mapping[str, str], assignment_tags: Sequence[str]) -> dict[str, str]:
    """Reject what Kafka Streams would: tags are sent in the group's metadata, and a listed tag must be set.

    Args:
        client_tags: Tags of this member, by key.
        assignment_tags: Keys over whose values standbys are spread.

    Returns:
        The tags.

    Raises:
        ConfigError: With Kafka's message (`StreamsConfig`), or if a value is not a tag at all.
    """
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
