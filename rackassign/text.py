"""Text for messages: one line, bounded in length, without control characters and secrets; warnings logged once.

Secret settings of any client are redacted by one rule, for messages and for `repr`: Kafka's own tools write `[hidden]`
in place of a password, and so does this module.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

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
    """Return the first names of a list and the number of the others, as in "a, b and 3 more"."""
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
    from importlib.metadata import version  # noqa: PLC0415 - it loads email, and all else is small

    return f"{distribution} {version(distribution)}"


HIDDEN = "[hidden]"

_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|user\.?info|proxy"
    r"|oauth(?:bearer)?\.(?:cb|config|extensions|assertion)"
    r"|(?:access|api|private|keystore)\.?key"
    # The location of a key may be shown, its content may not.
    r"|ssl\.key(?!\.location|store|file)"
    r"|\.pem$|certificates$|certificate\.chain$"
)
_LEAST = 3
"""Minimum length: shorter values occur by chance in many words."""


def is_secret(name: object) -> bool:
    """Return whether the value of a setting must not be shown."""
    return _SECRET.search(re.sub(r"[_-]", ".", str(name).lower())) is not None


def shown_setting(name: object, value: object) -> str:
    """Format the value of a setting for a one-line message, unless it is secret."""
    return HIDDEN if is_secret(name) else short_repr(value)


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """Return another library's message about settings, with the values of secret settings removed."""
    values = {str(value) for name, value in settings.items() if value is not None and is_secret(name)}
    # The longest first: one may contain another.
    for value in sorted(values, key=lambda each: (-len(each), each)):
        if len(value) >= _LEAST:
            text = text.replace(value, HIDDEN)
    return text


class Settings(dict[str, Any]):
    """A dict of settings whose `repr` hides secret values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr({name: HIDDEN if is_secret(name) else value for name, value in self.items()})

    __str__ = __repr__


_MOST = 100


class WarnOnce:
    """Logs each warning only the first time, so that a rebalance per minute does not fill the log.

    The number of remembered warnings is limited separately for each kind. Members get new IDs at each start, and
    however many of their warnings there are, warnings of other kinds are still logged.
    """

    __slots__ = ("_logged", "_logger")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: dict[str, set[object]] = {}

    def warn(self, kind: str, message: str, *args: object, about: object = None, exc_info: bool = False) -> None:
        """Log a warning unless an equal one was logged before."""
        # `about`: subject of the warning, if there may be many; after a hundred of one kind no more of that kind are
        # logged, and the log states this.
        logged = self._logged.setdefault(kind, set())
        if about in logged or len(logged) >= _MOST:
            return
        logged.add(about)
        # Names are chosen by others: a line end in the client ID of a member would begin a line of its own.
        plain = (each if isinstance(each, int | float) else strip_control_chars(str(each)) for each in args)
        self._logger.warning(message, *plain, exc_info=exc_info)
        if len(logged) == _MOST:
            self._logger.warning("more warnings like the last one are not logged")
