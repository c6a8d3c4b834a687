"""Parsers for the values of options, both of the source and of Kafka clients.

This module uses neither Spark nor a Kafka client.
"""

from __future__ import annotations

from collections.abc import Callable

from rackassign.errors import ConfigError
from rackassign.util.redaction import shown_setting

MAX_INT = 2**31 - 1
_MAX_DIGITS = 19
"""A number with more digits exceeds every limit, and `int` only accepts a limited number of digits."""


def one_of(*known: str) -> Callable[[str, str], str]:
    """Return a parser that accepts one of these words, in any case.

    Args:
        known: The words, in lower case.
    """

    def parse(name: str, value: str) -> str:
        if value.lower() not in known:
            raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {shown_setting(name, value)}")
        return value.lower()

    return parse


def parse_int(name: str, value: object, minimum: int = 1, maximum: int = MAX_INT) -> int:
    """Parse a whole number within bounds.

    Raises:
        ConfigError: The value is not a whole number from `minimum` to `maximum`. The message names the bounds.
    """
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and minimum <= int(text) <= maximum):
        raise ConfigError(
            f"{name}: expected a whole number from {minimum} to {maximum}, got {shown_setting(name, value)}"
        )
    return int(text)


def parse_bool(name: str, value: str) -> bool:
    """Parse true or false.

    Raises:
        ConfigError: The value is neither.
    """
    return one_of("true", "false")(name, value) == "true"


def parse_text(name: str, value: str) -> str:
    """Return a value that must not be empty.

    Raises:
        ConfigError: The value is empty.
    """
    if not value:
        raise ConfigError(f"{name}: expected a value, got an empty string")
    return value
