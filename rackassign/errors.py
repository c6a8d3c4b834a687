"""The errors of rackassign, named by who is at fault.

Every one is a `RackassignError`, so that a caller can catch them all, and every message is one line.
None of them ever leaves a consumer's `poll()`: what can go wrong there is logged and answered with a valid
assignment.
"""

from __future__ import annotations

from rackassign.util.text import truncate


class RackassignError(Exception):
    """Base of all errors of rackassign."""


class InputError(RackassignError, ValueError):
    """What was given to describe a group or a plan is wrong.

    Args:
        path: The field, as in `members[3].rack`; empty for the whole input.
        problem: What is wrong with it.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{truncate(path)}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def with_prefix(self, parent: str) -> InputError:
        """Return the same error, its path seen from the enclosing value."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return InputError(f"{parent}{joint}{self.path}", self.problem)


class WireError(RackassignError, ValueError):
    """Bytes that do not follow the consumer protocol.

    Args:
        offset: Where in the bytes the trouble starts.
        problem: What was expected there, or why the value cannot be encoded.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"at byte {offset}: {problem}")
        self.offset = offset
        self.problem = problem


class ConfigError(RackassignError, ValueError):
    """An option has an invalid value; the message names the option and what is valid."""


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
    """A test cluster did not do what was asked; the message carries the last log lines of the broker."""


class KafkaUnavailableError(RackassignError):
    """Kafka cannot be reached, or does not answer what it was asked."""
