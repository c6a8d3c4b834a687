"""Commits the ends of completed batches to a consumer group, so that lag monitors see a stream.

A stream continues from its checkpoint and never reads these offsets. So they are sent on a thread, only the newest ones
if Kafka is slow, and a failure is a warning.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rackassign.spark.offsets import Offsets
from rackassign.util.text import describe_error

log = logging.getLogger(__name__)

_RETRY_S = 10.0
"""Seconds after a failure during which the same offsets are not sent again: an idle stream has them many times."""


class OffsetPublisher:
    """Sends offsets on a thread of its own, which starts with the first ones.

    Args:
        group: The group, for warnings.
        send: Commits offsets to the group; may raise anything.
    """

    def __init__(self, group: str, send: Callable[[Offsets], None]) -> None:
        self._group = group
        self._send = send
        self._changed = threading.Condition()
        self._pending: Offsets | None = None
        self._newest: Offsets | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self._problem = ""
        self._retry_at: float | None = None

    def publish(self, offsets: Offsets) -> None:
        """Send these offsets in place of those that wait, unless they are the same and not due again; return at once.

        Offsets that could not be sent are due again after a while. A stream without new records has no others, and its
        group would be behind for as long.
        """
        with self._changed:
            due = self._retry_at is not None and time.monotonic() >= self._retry_at
            if self._closed or (offsets == self._newest and not due):
                return
            self._retry_at = None
            self._newest = dict(offsets)
            self._pending = dict(offsets)
            self._changed.notify()
            if self._thread is None:
                # A daemon thread does not delay the end of the process.
                self._thread = threading.Thread(target=self._run, name="rackassign-offsets", daemon=True)
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End the thread after it has sent the last offsets, or after so many seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending is not None or self._closed)
                offsets, self._pending = self._pending, None
            if offsets is None:
                return
            self._try(offsets)

    def _try(self, offsets: Offsets) -> None:
        try:
            self._send(offsets)
        except Exception as error:  # noqa: BLE001 - whatever it is, the query goes on
            problem = describe_error(error)
            # Once for each problem in a row: a batch may end every second.
            if problem != self._problem:
                log.warning("commitGroup: offsets of group %s are not committed: %s", self._group, problem)
            self._problem = problem
            with self._changed:
                self._retry_at = time.monotonic() + _RETRY_S
        else:
            self._problem = ""
