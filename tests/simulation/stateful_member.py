"""A member with a StatefulConsumer: it counts records by key in a store, and writes each count as a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackassign.errors import KafkaUnavailableError
from rackassign.stateful import BYTES, INT, StatefulConsumer, Store
from rackassign.strategies.standby import StandbyOptions
from tests.simulation import kafka_python, threads
from tests.simulation.kafka_python_member import KafkaPythonMember
from tests.simulation.member import GROUP, TIMES_MS, MemberOptions

RESULTS = "results"

COUNTS: Store[bytes, int] = Store("counts", key=BYTES, value=INT)

_AGAIN_S = 1.0
"""Seconds until a member begins again that could not begin: as if a supervisor started its process again."""

_OTHERS_MS: dict[str, Any] = {
    name: ms for name, ms in TIMES_MS.items() if name not in {"auto_commit_interval_ms", "fetch_max_wait_ms"}
}


@dataclass(frozen=True, slots=True)
class StateOptions(MemberOptions):
    """How members with state are configured; of the other options they have `poll_ms` and `max_records`."""

    commit_ms: int = 500
    standbys: int = 1
    transaction_ms: int = 10_000


class StatefulMember(threads.MultiThreadedProcess, KafkaPythonMember):
    """One incarnation of a member with state; one that is started again has its folder."""

    options: StateOptions

    def __init__(self, folder: Path, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.folder = folder
        self.stateful: Any = None

    def application(self) -> None:
        while self.stateful is None and not self.stopping:
            try:
                self.stateful = self._make()
            except KafkaUnavailableError as error:
                self.world.note("cannot begin", str(error))
                self.sleep(_AGAIN_S)
        if self.stateful is None:
            return
        self.consumer = self.stateful.consumer
        while not self.stopping:
            try:
                self.stateful.poll(self.options.poll_ms)
            except Exception as error:  # noqa: BLE001 - whatever it is
                self.world.violated("poll() raises nothing", f"{self.name}: {error!r}")
            self.sleep(self.taken_work_s())
        self.stateful.close()

    def _process(self, record: Any, state: Any, output: Any) -> None:
        self.processed({(record.topic, record.partition): [record]})
        count = state[COUNTS].get(record.key, 0) + 1
        state[COUNTS].put(record.key, count)
        output.send(f"{record.topic} {record.partition} {record.offset} {count}".encode(), record.key)

    def _make(self) -> StatefulConsumer:
        return StatefulConsumer(
            *self.topics,
            process=self._process,
            state_dir=self.folder,
            stores=[COUNTS],
            output=RESULTS,
            commit_interval_ms=self.options.commit_ms,
            # As by default another one with another folder.
            transactional_id=f"{GROUP}-{self.folder.name}",
            transaction_timeout_ms=self.options.transaction_ms,
            standbys=StandbyOptions(num_standby_replicas=self.options.standbys),
            bootstrap_servers=self.cluster.bootstrap_servers,
            max_poll_records=self.options.max_records,
            **self.client_options(),
        )

    def client_options(self) -> dict[str, Any]:
        return {
            **_OTHERS_MS,
            "client_rack": self.rack,
            "fetch_max_wait_ms": 500,
            "client_id": self.host,
            "group_id": GROUP,
            "proxy_url": f"{kafka_python.SCHEME}://",
            "kafka_client": threads.client_factory(self),
            "metrics_enabled": False,
        }

    def kill(self) -> None:
        """End it at once; its folder is another process's then."""
        super().kill()
        if self.stateful is not None:
            self.stateful._shelf.close()
