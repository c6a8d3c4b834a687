"""What is known of a function before it is called: whether its body would run, and what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


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
