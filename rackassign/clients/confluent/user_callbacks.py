"""Callbacks that librdkafka calls, such as `error_cb`, `stats_cb` and the logger: they run when it has returned.

confluent-kafka 2.16.1 forgets the records that a call has taken if a callback raises within that call. With `consume()`
it does not free them either, and `close()` waits for them for ever. Not to let the callback raise is not enough: Python
runs the handler of a signal that came during the call (Ctrl-C) when it enters a function, which is that callback.

So librdkafka gets functions that are not written in Python and only note the call. The first exception of a callback is
kept, and raised by the next `poll()` or `consume()` that has no records to return.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import ref

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

log = logging.getLogger(__name__)

_NEXT, _END = "\0", "\0\n"
"""What `print` writes behind the arguments of a call; no string of librdkafka contains a NUL."""


class UserCallbacks:
    """The callbacks of one consumer, as librdkafka gets them; each has one argument, but for the logger's."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        # Weak: clients are replaced, and with the last one that has a function its calls are gone.
        self._noted: list[tuple[Callable[[Any], object], ref[deque[Any]]]] = []

    @property
    def failed(self) -> bool:
        """Whether an exception waits to be raised."""
        return self._error is not None

    def guard_all(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return properties of librdkafka with guarded callbacks."""
        return {name: self.guard(value) if callable(value) else value for name, value in properties.items()}

    def guard(self, callback: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return a function that never raises and makes `run` call the callback."""
        calls: deque[Any] = deque()
        self._noted = [each for each in self._noted if each[1]() is not None]
        self._noted.append((callback, ref(calls)))
        return calls.append

    def guard_logger(self, logger: Any) -> Any:  # noqa: ANN401 - as confluent-kafka's
        """Return a logger that never raises and makes `run` log its messages.

        `log` has several arguments, and `print` is the function that takes any number and is not written in Python.

        Raises:
            ConfigError: It is no logger.
        """
        if not callable(getattr(logger, "log", None)):
            raise ConfigError(f"logger: expected a logger, got {short_repr(logger)}")
        write = self.guard(_Messages(logger))
        return SimpleNamespace(log=partial(print, sep=_NEXT, end=_END, file=SimpleNamespace(write=write)))

    def run(self) -> None:
        """Call the callbacks that were called meanwhile; keep their exceptions."""
        for callback, noted in self._noted:
            calls = noted()
            while calls:
                self._call(callback, calls.popleft())

    def _call(self, callback: Callable[[Any], object], argument: object) -> None:
        try:
            callback(argument)
        except BaseException as error:
            if self._error is None:
                self._error = error
            else:
                log.warning("a callback failed again before its first exception could be raised", exc_info=True)

    def raise_error(self) -> None:
        """Call the callbacks, and raise the exception that waits, if there is one."""
        self.run()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def log_error(self) -> None:
        """Call the callbacks, and log what waits: the consumer is closed, and nothing is left to raise it."""
        self.run()
        error, self._error = self._error, None
        if error is not None:
            log.warning("a callback failed while its consumer was closed", exc_info=error)


class _Messages:
    """Logs messages of librdkafka, which come in the pieces that `print` has written.

    Args:
        logger: The user's logger.
    """

    def __init__(self, logger: Any) -> None:  # noqa: ANN401 - as confluent-kafka's
        self._logger = logger
        self._pieces: list[str] = []

    def __call__(self, piece: str) -> None:
        """Take one piece, and log the message if it was the last one."""
        if piece == _END:
            (level, *text), self._pieces = self._pieces, []
            self._logger.log(int(level), *text)
        elif piece != _NEXT:
            self._pieces.append(piece)
