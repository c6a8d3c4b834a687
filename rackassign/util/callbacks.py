"""Functions of users: what cannot be called as it will be, or would not do its work then, is refused in advance.

What they raise later is reported, and the consumer goes on (`is_failure`). A long step reports its progress to a
function of its caller; this package itself prints nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from rackassign.errors import ConfigError
from rackassign.text import short_repr


def deferred_function(function: object) -> str | None:
    """Return what a function is whose body does not run when it is called; None for any other."""
    called: Any = function
    while isinstance(called, partial):
        called = called.func
    for each in (called, type(called).__call__ if callable(called) else None):
        if inspect.iscoroutinefunction(each):
            return "a coroutine function (async def)"
        if inspect.isasyncgenfunction(each):
            return "an asynchronous generator function (async def with yield)"
        if inspect.isgeneratorfunction(each):
            return "a generator function (yield)"
    return None


def takes(function: Callable[..., object], *arguments: str) -> bool:
    """Return whether a function can be called with so many arguments; True if that is not known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Of some functions that are written in C it is not known.
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def check_function(function: object, option: str, *arguments: str) -> None:
    """Refuse what is no function, or cannot be called as it will be."""
    if not callable(function):
        raise ConfigError(f"{option} must be a function, got {short_repr(function)}")
    kind = deferred_function(function)
    if kind is not None:
        raise ConfigError(f"{option} is {kind}, whose body would never run: use a plain function")
    if not takes(function, *arguments):
        given = f"({', '.join(arguments)})" if arguments else "no arguments"
        raise ConfigError(f"{option} is called with {given}, and takes others: {short_repr(function)}")


def is_failure(error: BaseException) -> bool:
    """Return whether what a user's function has raised is a failure of it, rather than a request to end the program."""
    # `asyncio.CancelledError` or `sys.exit()` in it would end a client's task or thread, and the consumer would wait
    # for ever. In the main thread `SystemExit` may come from the handler of a signal, which must not be ignored.
    if isinstance(error, SystemExit):
        return threading.current_thread() is not threading.main_thread()
    return not isinstance(error, KeyboardInterrupt)


_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a step; `str()` of it is one line for users.

    Args:
        step: Description of the step, such as "Fetching Kafka 4.4.0 (46 jars)".
        done: How much of the step is done; 0 if the step does not count it.
        total: How much there is to do in total; 0 if the step does not count it.
        unit: Unit of both: B for bytes; empty if the description of the step states what is counted.
    """

    step: str
    done: int = 0
    total: int = 0
    unit: Literal["B", ""] = "B"

    def __str__(self) -> str:
        if not self.total:
            return self.step
        if not self.unit:
            return f"{self.step}: {self.done} of {self.total}"
        return f"{self.step}: {self.done / _MB:.1f} of {self.total / _MB:.1f} MB"


ProgressCallback = Callable[[Progress], None]
"""Called with each `Progress`, sometimes from another thread but never from two at once. Must not raise."""


def ignore_progress(_: Progress) -> None:
    """Ignore the progress."""
