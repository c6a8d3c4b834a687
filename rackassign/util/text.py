"""Text for messages: one line, bounded in length, without control characters."""

from __future__ import annotations

import json
from importlib.metadata import version

_LONGEST = 80


def short_repr(value: object) -> str:
    """Show any value within a message of one line: cut short, since it may be the whole of a wrong file."""
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, (str, bool, int, float)):
        return truncate(json.dumps(value))
    return truncate(repr(value))


def truncate(text: str) -> str:
    """Make a text fit into one line of a message: no control characters, the middle left out if it is long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}...{text[-half:]}"
    return strip_control_chars(text)


def strip_control_chars(text: str) -> str:
    """Return a text with nothing in it that would steer a terminal: what others chose is shown, not obeyed."""
    return text if text.isprintable() else ascii(text)[1:-1]


def with_version(distribution: str) -> str:
    """Return the name of an installed distribution with its version, as in "kafka-python 3.0.12"."""
    return f"{distribution} {version(distribution)}"
