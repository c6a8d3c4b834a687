"""Requests to the coordinators of groups, which are sent again while coordinators move.

To send a request that kafka-python (3.0.12) has no method for, `_find_coordinator_id`, `_manager.run` and
`_manager.send` of an admin client are used. `_manager.cluster._coordinators` is used to forget a coordinator that has
moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from kafka import errors
from kafka.protocol.metadata import CoordinatorType

from rackassign.errors import ConfigError
from rackassign.util.text import with_version

_NEEDED = ("_find_coordinator_id", "_manager.run", "_manager.send", "_manager.cluster._coordinators")

_MOVED = (
    errors.NotCoordinatorError,
    errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError,
    # kafka-python caches the first coordinator forever, dead or alive.
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    # A broker that hangs is replaced as coordinator, too. Its connections stay open, so that only time shows it.
    errors.RequestTimedOutError,
    errors.KafkaTimeoutError,
)

_PATIENCE_S = 10.0
"""Time limit for coordinators to move from one broker to another, for all groups together."""

_TRIES = 2
"""Minimum number of attempts: the first may go to a broker that is no longer the coordinator."""

_PAUSE_S = 0.1


class GroupCoordinators:
    """Sends requests about groups to their coordinators.

    While coordinators move, requests are sent again for up to ten seconds. This limit is shared: with a broker down,
    each of a hundred groups would take ten seconds. It begins again after ten seconds without a failure.

    Args:
        admin: A `KafkaAdminClient` that is not used elsewhere meanwhile.
        clock: As `time.monotonic`.
        sleep: As `time.sleep`.

    Raises:
        ConfigError: kafka-python is not as expected.
    """

    def __init__(
        self,
        admin: Any,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        try:
            attrgetter(*_NEEDED)(admin)
        except AttributeError as error:
            raise ConfigError(f"{with_version('kafka-python')} differs, groups cannot be described: {error}") from None
        self._admin = admin
        self._clock = clock
        self._sleep = sleep
        self._first_failure: float | None = None
        self._last_failure = 0.0

    def forget(self, group: str) -> None:
        """Look up the coordinator for the next request about a group, which kafka-python otherwise does only once."""
        self._admin._manager.cluster._coordinators.pop((CoordinatorType.GROUP, group), None)

    def ask(self, group: str, request: Any) -> Any:
        """Send a request to the coordinator of a group; return the response, which may contain any error.

        Args:
            group: Name of the group.
            request: A request with one `group_id`, or for one group.

        Raises:
            KafkaError: As raised by the admin client.
        """
        tries = 0
        while True:
            tries += 1
            try:
                response = self._admin._manager.run(self._send, group, request)
                answer = getattr(response, "groups", None) or [response]
                if errors.for_code(answer[0].error_code) not in _MOVED or self._give_up(tries):
                    return response
            except _MOVED:
                if self._give_up(tries):
                    raise
            self.forget(group)
            self._sleep(_PAUSE_S)

    def _give_up(self, tries: int) -> bool:
        """Note a failure, and return whether the time limit is used up."""
        now = self._clock()
        if self._first_failure is None or now > self._last_failure + _PATIENCE_S:
            self._first_failure = now
        self._last_failure = now
        return tries >= _TRIES and now > self._first_failure + _PATIENCE_S

    async def _send(self, group: str, request: Any) -> Any:
        coordinator = await self._admin._find_coordinator_id(group)
        return await self._admin._manager.send(request, node_id=coordinator)
