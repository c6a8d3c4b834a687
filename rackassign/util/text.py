"""Text for messages: one line, bounded in length, without control characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.metadata import version

_LONGEST = 80

_DIGITS = 18


def short_repr(value: object) -> str:
    """Format any value for a one-line message, truncated, since it may be the content of a wrong file."""
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, (str, bool, int, float)):
        return truncate(json.dumps(value))
    return truncate(repr(value))


def parse_digits(text: str) -> int | None:
    """Return the number that a text of ASCII digits contains; None for other texts, and for absurdly long ones."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def truncate(text: str) -> str:
    """Return a text that fits into one line of a message: no control characters, the middle omitted if it is long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}...{text[-half:]}"
    return strip_control_chars(text)


def clamp_middle(text: str, width: int) -> str:
    """Return a text of at most `width` characters: similar names differ at their ends, so the middle is omitted."""
    if len(text) <= width:
        return text
    begin = (width - 1) // 2
    return f"{text[:begin]}…{text[len(text) - (width - 1 - begin) :]}"


def strip_control_chars(text: str) -> str:
    """Return a text with control characters and line ends escaped, since it may come from other users."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def counted(count: int, noun: str) -> str:
    """Return a number of things, as in "1 topic" or "2 topics"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def join_ids(ids: Iterable[int]) -> str:
    """Return a list of broker IDs or partition numbers, as in "1, 2, 3"."""
    return ", ".join(map(str, ids))


def join_ranges(ids: Iterable[int]) -> str:
    """Return a list of numbers with ranges, as in "0-3, 7"."""
    ranges: list[list[int]] = []
    for number in sorted(ids):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def join_first(names: Sequence[str], most: int) -> str:
    """Return the first names of a list and the number of the others, as in "a, b and 3 more".

    Args:
        names: The names, in the order in which they are named.
        most: The highest number of names.
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_CODE = re.compile(r"^\[Error \d+\] ")
"""What kafka-python puts before the type of an error that a broker returned."""

_BARE = {
    "NodeNotReadyError": "no connection to the broker (NodeNotReadyError)",
    "CoordinatorLoadInProgressError": "the coordinator of the group is still starting (CoordinatorLoadInProgressError)",
    "CoordinatorNotAvailableError": "the group has no coordinator at the moment (CoordinatorNotAvailableError)",
    "NotCoordinatorError": "the coordinator of the group is moving to another broker (NotCoordinatorError)",
}
"""Errors of kafka-python without a useful message, by what they mean."""

_NO_MESSAGE = {"No node_id provided"}
"""Messages of kafka-python (3.0.12) that describe its own arguments."""


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error in one line.

    The type is stated once: messages of kafka-python begin with it. Messages of rackassign are complete without it.
    """
    name, text = type(error).__name__, " ".join(str(error).split()).removesuffix(":")
    text = _CODE.sub("", text)
    if text.removeprefix(f"{name}: ") in {"", name, *_NO_MESSAGE}:
        return _BARE.get(name, name)
    if type(error).__module__.partition(".")[0] == "rackassign":
        return strip_control_chars(text)
    return strip_control_chars(text if name in text else f"{name}: {text}")


def name_error(error: BaseException) -> str:
    """Return the type of an error, for errors whose messages are too long for a list; ours have short messages."""
    name = type(error).__name__
    ours = type(error).__module__.partition(".")[0] == "rackassign"
    return describe_error(error) if ours else _BARE.get(name, name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the most similar known one, or nothing without one."""
    close = get_close_matches(name, [each for each in known if each != name], 1)
    return f'; did you mean "{strip_control_chars(close[0])}"?' if close else ""


def with_version(distribution: str) -> str:
    """Return the name of an installed distribution with its version, as in "kafka-python 3.0.12"."""
    return f"{distribution} {version(distribution)}"
