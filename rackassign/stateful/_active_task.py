"""The owner of a task: it restores the state, and applies what was committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from rackassign.model import TopicPartition
from rackassign.stateful._changelog_client import ChangelogClient
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._processing import TaskRun

log = logging.getLogger(__name__)

_SHORTER_S = 10.0
"""After this time an end before the position is asked for again, before the local file is discarded."""


class ActiveTask:
    """A task that was assigned to this member.

    Until it is `ready`, the caller applies the changelog to its store and calls `continue_restore`.
    """

    def __init__(self, tp: TopicPartition, store: StateFile, log: ChangelogClient) -> None:
        self.tp = tp
        self.store = store
        self.ready = False
        """Whether its state is restored."""
        self.reads = False
        """Whether its input is being read from where the state ends."""
        self.restored = False
        """Whether its input has been read once since its state was restored."""
        self.run: TaskRun | None = None
        """Its processing; None until it is ready."""
        self._log = log
        # Where the log begins, and where the restore has begun, or begun again.
        self._begin = 0
        self._start = store.reached
        self._end: int | None = None
        # When it is asked again, after its changelog was shorter than the file.
        self._again_at: float | None = None

    @property
    def asks(self) -> bool:
        """Whether the end of its changelog is not known yet."""
        return self._end is None

    def progress(self) -> tuple[int, int]:
        """Return the number of changelog records read, and the number to be read."""
        end = self._start if self._end is None else self._end
        return max(0, min(self.store.reached, end) - self._start), max(0, end - self._start)

    def continue_restore(self) -> None:
        """Continue as far as possible now; after a KafkaUnavailableError the call can be repeated."""
        if self._end is None:
            # A former owner could commit while the group was in its generation. All records of such a transaction were
            # written before that, so they are before this end: once it is read, by a reader of committed records, the
            # transaction has ended.
            if self._again_at is not None and time.monotonic() < self._again_at:
                return
            begin, end = self._log.offset_range([self.tp])[self.tp]
            if self.store.position > end:
                if self._again_at is None:
                    # A leader that stood still, and has not learned that it is none, answers with a former end.
                    self._again_at = time.monotonic() + _SHORTER_S
                    return
                log.warning(
                    "%s-%d: its changelog ends at %d, but %d records had been read: discarding the local state",
                    *(*self.tp, end, self.store.position),
                )
                self.store.clear()
            self._begin, self._end = begin, end
        # The file may be discarded also when its last record is not found.
        self._start = max(self._begin, min(self._start, self.store.reached))
        self.ready = self.store.reached >= self._end and self.store.verified

    @property
    def changed(self) -> bool:
        """Whether anything was processed since the last commit."""
        return self.run is not None and self.run.changed

    def committed(self, changes: Mapping[bytes, bytes | None], behind: int) -> None:
        """Apply a commit, whose last record is before this offset; the end of its transaction is behind it."""
        self.store.apply(changes, behind, behind - 1)
        self.store.discard_uncommitted()
