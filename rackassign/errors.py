"""The errors of rackassign, named by who is at fault.

Every one is a `RackassignError`, so that a caller can catch them all, and every message is one line.
None of them ever leaves a consumer's `poll()`: what can go wrong there is logged and answered with a valid
assignment.
"""

from __future__ import annotations

import json

_LONGEST = 80


def shown(value: object) -> str:
    """Show any value within a message of one line: cut short, since it may be the whole of a wrong file."""
    if isinstance(value, dict):
        return f"an object of {len(value)}"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, (str, bool, int, float)):
        return cut(json.dumps(value))
    return cut(repr(value))


def cut(text: str) -> str:
    """Make a text fit into one line of a message: no control characters, the middle left out if it is long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}...{text[-half:]}"
    return printable(text)


def printable(text: str) -> str:
    """Return a text with nothing in it that would steer a terminal: what others chose is shown, not obeyed."""
    return text if text.isprintable() else ascii(text)[1:-1]


class RackassignError(Exception):
    """Base of all errors of rackassign."""


class InputError(RackassignError, ValueError):
    """What was given to describe a group or a plan is wrong.

    Args:
        path: The field, as in `members[3].rack`; empty for the whole input.
        problem: What is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{cut(path)}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def under(self, parent: str) -> InputError:
        """Return the same error, its path seen from the enclosing value."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return InputError(f"{parent}{joint}{self.path}", self.problem)


class WireError(RackassignError, ValueError):
    """Bytes are not what the consumer protocol says they should be.

    Args:
        offset: Where in the bytes the trouble starts.
        problem: What was expected there, or why the value cannot be encoded.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"at byte {offset}: {problem}")
        self.offset = offset
        self.problem = problem


class ConfigError(RackassignError, ValueError):
    """An option was given that cannot work; the message says which and what would."""


class MissingExtraError(RackassignError):
    """Something needs packages that only come with an extra.

    Args:
        package: What is missing.
        extra: The extra that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is missing: pip install 'rackassign[{extra}]'")
        self.extra = extra


class ClusterError(RackassignError):
    """A test cluster did not do what was asked; the message carries the broker's own last words."""


class NoAnswerError(RackassignError):
    """Kafka cannot be reached, or does not answer what it was asked."""
