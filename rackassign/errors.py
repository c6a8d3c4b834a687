"""The errors of rackassign, by cause.

Every error is a `RackassignError`, so that a caller can catch them all, and every message is one line.
None of them is ever raised by a consumer's `poll()` because of an assignor: such errors are logged, and the group gets
a valid assignment.
"""

from __future__ import annotations

import copyreg

from rackassign.text import truncate


class RackassignError(Exception):
    """Base of all errors of rackassign."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return how an error is copied and pickled: with its message and attributes.

        By default the constructor would be called with the message, and some take other arguments. An error that cannot
        be unpickled hangs a `multiprocessing.Pool`, and breaks a `ProcessPoolExecutor`.
        """
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined] # of the standard


class InputError(RackassignError, ValueError):
    """The description of a group or a plan is invalid.

    Args:
        path: The field, as in `members[3].rack`; empty for the whole input.
        problem: What is invalid.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{truncate(path)}: {problem}" if path else problem)
        self.path = path
        self.problem = problem

    def with_prefix(self, parent: str) -> InputError:
        """Return the error with the path relative to the enclosing value."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return InputError(f"{parent}{joint}{self.path}", self.problem)


class WireError(RackassignError, ValueError):
    """Bytes do not conform to the consumer protocol, or a value cannot be encoded.

    Args:
        offset: Position of the problem in the bytes.
        problem: What was expected there, or why the value cannot be encoded.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"at byte {offset}: {problem}")
        self.offset = offset
        self.problem = problem


class ConfigError(RackassignError, ValueError):
    """An option is not valid; the message names the option and the valid values."""


class MissingExtraError(RackassignError):
    """A feature needs packages that are only installed with an extra.

    Args:
        package: The missing package.
        extra: The extra that installs it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is missing: pip install 'rackassign[{extra}]'")
        self.extra = extra


class ClusterError(RackassignError):
    """A request to a test cluster failed; the message contains the last lines of the broker's log."""


class KafkaUnavailableError(RackassignError):
    """Kafka cannot be reached, or does not respond to a request."""
