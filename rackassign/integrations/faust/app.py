"""A Faust application whose workers fetch from their own rack."""

from __future__ import annotations

import logging
from typing import Any

from rackassign.assignor.member import resolve_rack
from rackassign.clients.aiokafka import attach
from rackassign.clients.aiokafka import internals as aiokafka_internals
from rackassign.clients.fetch_metrics import FetchLocality
from rackassign.integrations import warn_of_version
from rackassign.integrations.faust import internals
from rackassign.integrations.faust.assignor import RackAwarePartitionAssignor
from rackassign.locality import validate_locality_mode
from rackassign.model import LocalityMode
from rackassign.text import WarnOnce

log = logging.getLogger(__name__)


class RackAwareApp(internals.PreparingApp):
    """A `faust.App` whose workers read locally, and whose tables have their standbys in other racks.

    Takes all arguments of `faust.App`. Differences: the default of the setting `PartitionAssignor` is
    `RackAwarePartitionAssignor`, the consumers of workers get a `client_rack`, and apps without tables have that
    assignor too; Faust's own use `roundrobin` then. Such a worker also joins by `roundrobin`, while others of the group
    know nothing else.

    Args:
        id: As for `faust.App`.
        client_rack: The rack of this worker, as the brokers write theirs in `broker.rack`. If omitted,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are tried.
        locality: `any-replica` if workers read from followers in their rack, `leader` if all read from leaders.
            aiokafka before 0.14 cannot read from followers: only leaders count with it.
        **options: As for `faust.App`.

    Raises:
        ConfigError: If "auto" finds no rack, or an option is not valid.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - Faust's own name
        *,
        client_rack: str | None = None,
        locality: str = "any-replica",
        **options: Any,  # noqa: ANN401 - as Faust's
    ) -> None:
        self.client_rack = resolve_rack(client_rack)
        wanted = validate_locality_mode(locality)
        self.locality_mode: LocalityMode = wanted if aiokafka_internals.FOLLOWS else "leader"
        self._reader: Any = None
        once = WarnOnce(log)
        warn_of_version(internals.DISTRIBUTION, internals.FIRST, internals.LAST, once)
        options.setdefault("PartitionAssignor", RackAwarePartitionAssignor)
        super().__init__(id, once, **options)

    def locality(self) -> FetchLocality | None:
        """Return the traffic fetched so far by the worker's consumer; None if it has none yet."""
        found: FetchLocality | None = None if self._reader is None else self._reader.locality()
        return found

    def prepare_consumer(self, consumer: Any) -> None:  # noqa: ANN401 - aiokafka is untyped
        """Let a consumer that is not started fetch from its rack."""
        try:
            if self.locality_mode == "any-replica":
                aiokafka_internals.set_client_rack(consumer, self.client_rack)
            chosen = aiokafka_internals.assignors(consumer)
            if self.assignor not in chosen:
                aiokafka_internals.set_assignors(consumer, (self.assignor, *chosen))
            self._reader = attach(consumer)
        except Exception:  # noqa: BLE001 - the worker reads as it would without
            self._once.warn("prepare", "a consumer could not be prepared: it may read across racks", exc_info=True)
