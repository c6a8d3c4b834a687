"""Whether local files are of the changelogs that exist."""

from __future__ import annotations

import time

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.stateful.changelog.client import ChangelogClient
from rackassign.stateful.files.directory import StateDirectory
from rackassign.stateful.tasks.active_tasks import ActiveTasks
from rackassign.util.log_once import WarnOnce

_AGAIN_S = 1.0
"""Seconds until the next look after one that has failed: each needs connections of its own."""

_PAUSE_S = 0.1


class ChangelogCheck:
    """A look at the changelogs after this member was out of the group.

    A group can be reset only while it has no members. A member that was cut off is none, and returns with the state and
    the epoch of before: it would take the records of the new changelog for those of a former owner.

    Args:
        logs: The changelogs.
        shelf: The local files.
        once: Logs a warning once.
    """

    def __init__(self, logs: ChangelogClient, shelf: StateDirectory, once: WarnOnce) -> None:
        self._logs = logs
        self._shelf = shelf
        self._once = once
        self._again_at = float("-inf")

    def are_known(self, active: ActiveTasks) -> bool:
        """Return whether local files may be used; discard those of changelogs that are other topics by now."""
        if not active.was_absent:
            return True
        if time.monotonic() < self._again_at:
            # Tasks are assigned and not restored, so that polls do not wait for records.
            time.sleep(_PAUSE_S)
            return False
        try:
            self._logs.look_again()
        except (ConfigError, KafkaUnavailableError) as error:
            self._again_at = time.monotonic() + _AGAIN_S
            self._once.warn("absent", "nothing is processed yet after an absence: %s", error, about=str(error))
            return False
        if self._logs.ids != self._shelf.ids:
            active.release_all()
            self._shelf.discard_others(self._logs.ids)
        active.was_absent = False
        return True
