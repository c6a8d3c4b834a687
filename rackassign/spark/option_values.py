"""How values of options are read, whether they are for the source or for a Kafka client.

Pure: neither Spark nor Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

from rackassign.errors import ConfigError
from rackassign.util.redaction import shown_setting

LARGEST_INT = 2**31 - 1
_MOST_DIGITS = 19
"""More are no number that fits anywhere, and Python itself reads only so many."""


def one_of(*known: str) -> Callable[[str, str], str]:
    """Return what reads one of these words, in any case.

    Args:
        known: The words, in lower case.
    """

    def read(name: str, value: str) -> str:
        if value.lower() not in known:
            raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {shown_setting(name, value)}")
        return value.lower()

    return read


def whole(name: str, value: object, least: int = 1, most: int = LARGEST_INT) -> int:
    """Read a whole number within bounds.

    Raises:
        ConfigError: It is none; says which are.
    """
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and least <= int(text) <= most):
        raise ConfigError(f"{name}: expected a whole number from {least} to {most}, got {shown_setting(name, value)}")
    return int(text)


def switch(name: str, value: str) -> bool:
    """Read true or false.

    Raises:
        ConfigError: It is neither.
    """
    return one_of("true", "false")(name, value) == "true"


def text(name: str, value: str) -> str:
    """Return a value that must not be empty.

    Raises:
        ConfigError: It is.
    """
    if not value:
        raise ConfigError(f"{name}: expected something, got nothing")
    return value
