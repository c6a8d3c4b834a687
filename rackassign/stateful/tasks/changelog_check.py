"""Whether local files are of the changelogs that exist."""

from __future__ import annotations

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.stateful.changelog.client import ChangelogClient
from rackassign.stateful.files.directory import StateDirectory
from rackassign.stateful.tasks.active_tasks import ActiveTasks
from rackassign.util.log_once import WarnOnce


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

    def are_known(self, active: ActiveTasks) -> bool:
        """Return whether local files may be used; discard those of changelogs that are other topics by now."""
        if not active.was_absent:
            return True
        try:
            self._logs.look_again()
        except (ConfigError, KafkaUnavailableError) as error:
            self._once.warn("absent", "nothing is processed yet after an absence: %s", error, about=str(error))
            return False
        if self._logs.ids != self._shelf.ids:
            active.release_all()
            self._shelf.discard_others(self._logs.ids)
        active.was_absent = False
        return True
