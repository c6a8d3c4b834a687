"""Functions of users: what cannot be called as it will be, or would not do its work then, is refused in advance.

What they raise later is reported, and the consumer goes on: `is_failure`.
"""

from __future__ import annotations

import threading

from rackassign.errors import ConfigError
from rackassign.util.functions import deferred_function, takes
from rackassign.util.text import short_repr


def check_function(function: object, option: str, *arguments: str) -> None:
    """Refuse what is no function, or cannot be called as it will be.

    Args:
        function: The user's function.
        option: Name of the option.
        *arguments: What it is called with.

    Raises:
        ConfigError: It cannot be called with so many arguments, or its body would not run when it is called.
    """
    if not callable(function):
        raise ConfigError(f"{option} must be a function, got {short_repr(function)}")
    kind = deferred_function(function)
    if kind is not None:
        raise ConfigError(f"{option} is {kind}, whose body would never run: use a plain function")
    if not takes(function, *arguments):
        given = f"({', '.join(arguments)})" if arguments else "no arguments"
        raise ConfigError(f"{option} is called with {given}, and takes others: {short_repr(function)}")


def is_failure(error: BaseException) -> bool:
    """Return whether what a user's function has raised is a failure of it, rather than a request to end the program.

    `asyncio.CancelledError` or `sys.exit()` in it would end a client's task or thread, and the consumer would wait for
    ever. In the main thread `SystemExit` may come from the handler of a signal, which must not be ignored.
    """
    if isinstance(error, SystemExit):
        return threading.current_thread() is not threading.main_thread()
    return not isinstance(error, KeyboardInterrupt)
