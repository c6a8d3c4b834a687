"""What members of the group have in common, whatever client they are of: options, and what their applications do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.simulation.cluster import SimulatedCluster
from tests.simulation.watchers import Watchers
from tests.simulation.world import ClientProcess, World

Library = Literal["kafka-python", "aiokafka", "both"]
"""With `both`, members with an odd number are of aiokafka."""

Client = Literal["consumer", "attached", "assignor", "patched", "stock"]
"""Ours; the library's with our assignor and patches; with our assignor alone; with patches alone; with neither."""

Commit = Literal["auto", "sync", "async", "explicit", "listener", "transaction"]
"""With `explicit` the offsets of what was just processed, whatever has happened since; with `transaction` offsets are
sent as a producer's, with what `group_metadata()` returns."""

Strategy = Literal["cooperative", "sticky", "range"]

GROUP = "group"

IDLE_S = 0.1
"""Pause of an application whose polls do not wait."""

TIMES_MS = {
    "heartbeat_interval_ms": 1000,
    "session_timeout_ms": 6000,
    "max_poll_interval_ms": 10_000,
    "request_timeout_ms": 8000,
    "metadata_max_age_ms": 10_000,
    "auto_commit_interval_ms": 1000,
    "fetch_max_wait_ms": 3000,
}
"""The least that brokers accept where they limit it, so that a run is short."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """How members are configured."""

    client: Client = "consumer"
    commit: Commit = "sync"
    static: bool = False
    poll_ms: int = 500
    max_records: int = 50
    # Patches that are left out of an attached consumer.
    without: tuple[str, ...] = ()
    library: Library = "kafka-python"
    strategy: Strategy = "cooperative"


class Member(ClientProcess):
    """One incarnation of a member; one that is started again is another object."""

    def __init__(
        self,
        world: World,
        name: str,
        cluster: SimulatedCluster,
        watchers: Watchers,
        options: MemberOptions,
        rack: str | None,
        topics: tuple[str, ...],
    ) -> None:
        super().__init__(world, name)
        self.cluster, self.watchers, self.options, self.rack, self.topics = cluster, watchers, options, rack, topics
        self.consumer: Any = None
        self.work_s = 0.0
        self.stopping = False
        self.calls: list[str] = []
        # Records until a signal's handler raises, once.
        self.interrupted_after = -1

    @property
    def has_known_defects(self) -> bool:
        """Whether its library has defects that this package does not mend; with the stock client they are reported."""
        return False

    @property
    def host(self) -> str:
        """The name of its place: that of all its incarnations."""
        return self.name.split("#")[0]

    def start(self) -> None:
        raise NotImplementedError

    def member_id(self) -> str:
        raise NotImplementedError

    def unsettled(self) -> str | None:
        """Return its state, unless it has an assignment and waits for no other one."""
        raise NotImplementedError

    def refresh_metadata(self) -> None:
        """Request metadata now, as its `metadata.max.age.ms` would at some time."""
        raise NotImplementedError

    def configs(self) -> dict[str, Any]:
        """Return what both clients are configured with."""
        configs: dict[str, Any] = {
            **TIMES_MS,
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "client_id": self.host,
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": self.options.commit == "auto",
        }
        if self.options.static:
            configs["group_instance_id"] = self.host
        return configs

    def taken_work_s(self) -> float:
        """Return how long the application works now, besides its polls."""
        work_s, self.work_s = self.work_s, 0.0
        return max(work_s, 0.001 if self.options.poll_ms else IDLE_S)

    def processed(self, records: Mapping[Any, Sequence[Any]]) -> None:
        for partition, batch in records.items():
            self.watchers.processed(self, tuple(partition), [record.offset for record in batch])

    def commit_failed(self, error: Exception) -> None:
        # Applications go on: what was not committed is read again by the next owner.
        self.world.note("commit failed", type(error).__name__)
        self.watchers.commit_failed(self, error)

    def noted(self, what: str, partitions: Iterable[Any]) -> None:
        shown = " ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions))
        self.world.note(what, f"{self.name} {shown}")
