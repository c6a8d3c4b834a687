"""The calls of a consumer: one at a time, and what is done if one ends in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka.errors import KafkaError

from rackassign.errors import RackassignError


class UserFunctionError(Exception):
    """Carries what a function of the user has raised out of a call in which everything else is done."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


_REGULAR = (UserFunctionError, RackassignError, KafkaError)
"""What a call raises by itself, with states and positions that agree."""


class OneCall:
    """Refusal of a second call while one is running.

    A commit that fails discards the state of its task. If `process` made that call, the records of its batch would be
    processed on top of a state that no longer has the ones before them. And what `process` has written to the output
    would be in a commit that has no other effects of its record, and be written again with them.

    The handler of a signal may raise between any two lines, also what is no `KeyboardInterrupt`. Then it is not known
    which records the state has, or which of those that the client has returned were processed.

    Args:
        release: Called if a call ends in the middle: releases all tasks, so that records are read again with the state
            of the files.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._running = ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Run a block as a call.

        Args:
            name: Name of the method.

        Raises:
            RackassignError: Another call is running.
        """
        if self._running:
            raise RackassignError(
                f"{name}() was called while {self._running}() is running: by process, another function of yours that"
                " it calls, or another thread"
            )
        try:
            try:
                self._running = name
                yield
            finally:
                self._running = ""
        except _REGULAR:
            raise
        except BaseException:
            self._release()
            raise
        finally:
            # Once more: the first one may have been interrupted.
            self._running = ""
