"""Tables of Faust: standbys in other racks take over with their state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import wait_until

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.frameworks]

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
HANG_GUARD_S = 600.0


class Worker:
    """A process of `tests.helpers.kafka.faust_totals`."""

    def __init__(self, rack: str, environment: dict[str, str], folder: Path) -> None:
        self.rack, self._output = rack, folder / f"{rack}.out"
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.kafka.faust_totals", "worker", "--without-web"],
                cwd=ROOT,
                env={**os.environ, **environment, "RACKASSIGN_RACK": rack, "APP_DATADIR": str(folder / rack)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def lines(self, field: str) -> list[dict[str, Any]]:
        """Return what it has written with this field."""
        text = self._output.read_text("utf-8", errors="replace")
        # Faust writes codes for terminals in front of a line.
        begun = (line.partition(f'{{"{field}"') for line in text.splitlines())
        return [json.loads(mark + rest) for _, mark, rest in begun if mark]

    def part(self, part: str, topic: str) -> set[int]:
        """Return its active or standby partitions of a topic, as of its last assignment."""
        lines = self.lines("active")
        return {partition for name, partition in lines[-1][part] if name == topic} if lines else set()

    def output(self) -> str:
        return f"{self.rack} ended with {self.process.poll()}: {self._output.read_text('utf-8')[-3000:]}"


@contextmanager
def workers(environment: dict[str, str], folder: Path) -> Iterator[list[Worker]]:
    crew = [Worker(rack, environment, folder) for rack in "abc"]
    try:
        yield crew
    finally:
        for each in crew:
            each.process.kill()
            each.process.wait()


def test_a_standby_in_another_rack_takes_over_with_its_state(
    rack_cluster: Cluster, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    name = unique_name()
    changelog = f"{name}-totals-changelog"
    create_topic(
        rack_cluster.bootstrap, name, [[p % 3 + 1, (p + 1) % 3 + 1, (p + 2) % 3 + 1] for p in range(PARTITIONS)]
    )
    environment = {"KAFKA_BOOTSTRAP": rack_cluster.bootstrap, "TOPIC": name, "GROUP": name, "PYTHONUNBUFFERED": "1"}
    sent = 0
    killed: Worker | None = None
    with (
        closing(KafkaProducer(bootstrap_servers=rack_cluster.bootstrap, acks="all")) as producer,
        workers(environment, tmp_path) as crew,
    ):

        def wait(condition: Callable[[], bool], what: str) -> None:
            wait_until(lambda: condition() or ended(), what, timeout_s=HANG_GUARD_S)
            assert not ended(), "\n".join(each.output() for each in crew)

        def ended() -> bool:
            return any(each.process.poll() is not None for each in crew if each is not killed)

        def write(rounds: int) -> None:
            nonlocal sent
            for _ in range(rounds):
                for partition in range(PARTITIONS):
                    producer.send(name, b"", key=b"k%d" % partition, partition=partition)
            producer.flush()
            sent += rounds

        def parts(part: str, topic: str, members: list[Worker]) -> list[int]:
            return sorted(partition for each in members for partition in each.part(part, topic))

        def totals() -> dict[str, int]:
            found: dict[str, int] = {}
            for each in crew:
                for line in each.lines("key"):
                    found[line["key"]] = max(found.get(line["key"], 0), line["total"])
            return found

        everything = [*range(PARTITIONS)]
        wait(
            lambda: (
                all(parts(part, changelog, crew) == everything for part in ("active", "standby"))
                and all(len(each.part("active", changelog)) == 1 for each in crew)
            ),
            "three workers with a partition and a standby each",
        )
        for each in crew:
            assert each.part("active", name) == each.part("active", changelog)
            assert each.part("active", name).isdisjoint(each.part("standby", changelog))
        write(20)
        wait(lambda: totals() == {f"k{p}": 20 for p in everything}, "all records, counted")
        killed, *rest = crew
        copies = {each.rack: each.part("standby", changelog) & killed.part("active", changelog) for each in rest}
        lost = killed.part("active", changelog)
        killed.process.kill()
        killed.process.wait()
        wait(lambda: parts("active", changelog, rest) == everything, "the others with all partitions")
        for each in rest:
            assert each.part("active", changelog) & lost == copies[each.rack], "\n".join(each.output() for each in crew)
        write(5)
        wait(lambda: all(totals()[f"k{p}"] >= sent for p in everything), "totals that go on where they were")
        # Records that were counted and not committed when the worker was killed are counted again, and no others.
        assert all(totals()[f"k{p}"] == sent for p in set(everything) - lost), totals()
        assert all(totals()[f"k{p}"] <= sent + 20 for p in lost), totals()
