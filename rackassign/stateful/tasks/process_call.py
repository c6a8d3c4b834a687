"""Calls of the user's `process`, which must have done its work when it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rackassign.errors import ConfigError
from rackassign.stateful.stores.state import State
from rackassign.stateful.transactions.output import Output
from rackassign.util.functions import deferred_function, takes
from rackassign.util.text import short_repr

Process = Callable[[Any, State], None] | Callable[[Any, State, Output], None]
"""Called with a record of kafka-python and the state of its task, which it reads and changes. With transactions it is
also called with what it writes to."""

_INSTEAD = (
    "its body would never run, and its records would be committed: use a plain function (def, without yield);"
    " asyncio.run(..) in it runs a coroutine, list(..) a generator"
)


def check_process(process: object, name: str = "process") -> None:
    """Refuse what does not do its work when it is called.

    Args:
        process: The user's function.
        name: Name of the option.

    Raises:
        ConfigError: It cannot be called, or its body would not run when it is called.
    """
    if not callable(process):
        raise ConfigError(f"{name} must be a function of a record and a state, got {short_repr(process)}")
    kind = deferred_function(process)
    if kind is not None:
        raise ConfigError(f"{name} is {kind}: {_INSTEAD}")


def check_arguments(process: Callable[..., None], name: str, first: str, *, output: bool) -> None:
    """Refuse a function that cannot be called with what it is called with.

    Args:
        process: The user's function.
        name: Name of the option.
        first: Its first argument.
        output: Whether it gets an `Output`.

    Raises:
        ConfigError: It takes another number of arguments.
    """
    given = (first, "state", "output") if output else (first, "state")
    if not takes(process, *given):
        why = "with output=..," if output else "without output=..,"
        raise ConfigError(f"{why} {name} is called with {len(given)} arguments ({', '.join(given)})")


def check_returned(returned: object) -> None:
    """Refuse what `process`, or a function of `punctuate`, has returned if it has the work still to be done.

    Raises:
        ConfigError: It is a coroutine, a generator, or something else to be awaited.
    """
    kind = _deferred_object(returned)
    if kind is not None:
        close = getattr(returned, "close", None)
        if inspect.iscoroutine(returned) and close is not None:
            # Otherwise Python warns that it was never awaited.
            close()
        raise ConfigError(f"process returned {kind}: {_INSTEAD}")


def _deferred_object(returned: object) -> str | None:
    if inspect.isgenerator(returned):
        return "a generator"
    if inspect.isasyncgen(returned):
        return "an asynchronous generator"
    if inspect.iscoroutine(returned):
        return "a coroutine"
    return f"an awaitable ({type(returned).__name__})" if inspect.isawaitable(returned) else None
