"""Callbacks that librdkafka calls, such as `error_cb` and `stats_cb`: their exceptions wait until it has returned.

confluent-kafka 2.16.1 forgets the records that a call has taken if a callback raises within that call. With `consume()`
it does not free them either, and `close()` waits for them for ever. So no exception leaves a callback: the first one is
kept, and raised by the next `poll()` or `consume()` that has no records to return.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger(__name__)


class UserCallbacks:
    """The callbacks of one consumer, as librdkafka gets them."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether an exception waits to be raised."""
        return self._error is not None

    def guard_all(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return properties of librdkafka with guarded callbacks."""
        return {name: self.guard(value) if callable(value) else value for name, value in properties.items()}

    def guard(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return a callback that never raises."""

        def call(*arguments: object) -> None:
            try:
                callback(*arguments)
            except BaseException as error:
                if self._error is None:
                    self._error = error
                else:
                    log.warning("a callback failed again before its first exception could be raised", exc_info=True)

        return call

    def raise_error(self) -> None:
        """Raise the exception that waits, if there is one."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def log_error(self) -> None:
        """Log the exception that waits, if there is one: the consumer is closed, and nothing is left to raise it."""
        error, self._error = self._error, None
        if error is not None:
            log.warning("a callback failed while its consumer was closed", exc_info=error)
