"""State of frameworks: it is where its topics are read, and goes on after a member was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from rackassign.testing import Cluster, create_topic
from rackassign.testing.harness import wait_until
from tools.run_examples import EXAMPLES

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.frameworks]

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
EVERYTHING = [*range(PARTITIONS)]
HANG_GUARD_S = 600.0
ROUNDS, MORE = 20, 5


class Member:
    """A process of a framework in a rack."""

    def __init__(
        self, python: str, words: tuple[str, ...], rack: str, variables: Mapping[str, str], folder: Path
    ) -> None:
        self.rack, self._output = rack, folder / f"{rack}.out"
        state = folder / rack
        own = {"RACKASSIGN_RACK": rack, "APP_DATADIR": str(state), "STATE_DIR": str(state), "PYTHONUNBUFFERED": "1"}
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                [python, "-m", *words],
                cwd=ROOT,
                env={**os.environ, **variables, **own},
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

    def restored(self) -> int:
        """Return how often a worker of Faust was ready after an assignment."""
        return self._output.read_text("utf-8", errors="replace").count("]: Worker ready")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def output(self) -> str:
        return (
            f"{self.rack} ended with {self.process.poll()}: {self._output.read_text('utf-8', errors='replace')[-3000:]}"
        )


class Crew:
    """Members in the racks a, b and c."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.killed: list[Member] = []

    @property
    def alive(self) -> list[Member]:
        return [each for each in self.members if each not in self.killed]

    def kill_first(self) -> Member:
        victim = self.alive[0]
        self.killed.append(victim)
        victim.kill()
        return victim

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, unless a member ends that was not killed."""

        def ended() -> bool:
            return any(each.process.poll() is not None for each in self.alive)

        wait_until(lambda: condition() or ended(), what, timeout_s=HANG_GUARD_S)
        assert not ended(), self.output()

    def totals(self) -> dict[str, int]:
        """Return the greatest total of each key."""
        found: dict[str, int] = {}
        for each in self.members:
            for line in each.lines("key"):
                found[line["key"]] = max(found.get(line["key"], 0), line["total"])
        return found

    def parts(self, part: str, topic: str) -> list[int]:
        return sorted(partition for each in self.alive for partition in each.part(part, topic))

    def output(self) -> str:
        return "\n".join(each.output() for each in self.members)


@contextmanager
def crew(
    python: str,
    words: tuple[str, ...],
    variables: Mapping[str, str],
    folder: Path,
    settled: Callable[[Crew], bool] = lambda _: True,
) -> Iterator[Crew]:
    """Start members, each once those before it have settled."""
    members: list[Member] = []
    try:
        started = Crew(members)
        for rack in "abc":
            members.append(Member(python, words, rack, variables, folder))
            started.wait(lambda: settled(started), "members that have settled")
        yield started
    finally:
        for each in members:
            each.kill()


@contextmanager
def writing(cluster: Cluster, *topics: str) -> Iterator[Callable[[int], None]]:
    """Create topics with a replica in each rack, and return a function that writes a record of each key to each."""
    for topic in topics:
        create_topic(cluster.bootstrap, topic, [[(p + r) % 3 + 1 for r in range(3)] for p in EVERYTHING])
    with closing(KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")) as producer:

        def write(rounds: int) -> None:
            for _ in range(rounds):
                for topic in topics:
                    for partition in EVERYTHING:
                        producer.send(topic, b"x", key=b"k%d" % partition, partition=partition)
            producer.flush()

        yield write


def stored(cluster: Cluster, name: str, changelog: str) -> list[tuple[int | None, int]]:
    """Return the committed offset of each partition of a topic, by the group of its name, and the changelog's end."""
    with closing(KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=name, enable_auto_commit=False)) as reader:
        ends = reader.end_offsets([TopicPartition(changelog, p) for p in EVERYTHING])
        return [(reader.committed(TopicPartition(name, p)), ends[TopicPartition(changelog, p)]) for p in EVERYTHING]


def all_at(total: int) -> dict[str, int]:
    return {f"k{partition}": total for partition in EVERYTHING}


def test_a_standby_of_faust_in_another_rack_takes_over(
    rack_cluster: Cluster, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    name = unique_name()
    changelog = f"{name}-totals-changelog"
    variables = {"KAFKA_BOOTSTRAP": rack_cluster.bootstrap, "TOPIC": name, "GROUP": name}
    words = ("tests.helpers.kafka.faust_totals", "worker", "--without-web", "--loglevel", "info")

    def recovered(workers: Crew) -> bool:
        """Return whether workers have all partitions, and have restored after each assignment.

        Faust 0.15.3 may read nothing any more, or lose a record, if a rebalance or a record comes before that; it does
        so without rackassign too.
        """
        everything = workers.parts("active", name) == EVERYTHING
        return everything and all(each.restored() >= len(each.lines("active")) for each in workers.alive)

    start = crew(sys.executable, words, variables, tmp_path, recovered)
    with writing(rack_cluster, name) as write, start as workers:
        workers.wait(
            lambda: (
                recovered(workers)
                and all(workers.parts(part, changelog) == EVERYTHING for part in ("active", "standby"))
                and all(len(each.part("active", changelog)) == 1 for each in workers.alive)
            ),
            "three workers with a partition and a standby each",
        )
        for each in workers.alive:
            assert each.part("active", name) == each.part("active", changelog)
            assert each.part("active", name).isdisjoint(each.part("standby", changelog))
        write(ROUNDS)
        workers.wait(lambda: workers.totals() == all_at(ROUNDS), "all records, counted")
        # Faust writes to the changelog and commits later than it counts, and not both at once.
        workers.wait(lambda: stored(rack_cluster, name, changelog) == [(ROUNDS, ROUNDS)] * PARTITIONS, "all stored")
        killed = workers.kill_first()
        lost = killed.part("active", changelog)
        copies = {each.rack: each.part("standby", changelog) & lost for each in workers.alive}
        workers.wait(lambda: workers.parts("active", changelog) == EVERYTHING, "the others with all partitions")
        for each in workers.alive:
            assert each.part("active", changelog) & lost == copies[each.rack], workers.output()
        workers.wait(lambda: recovered(workers), "the others, restored")
        write(MORE)
        check_totals(workers, ROUNDS + MORE, lost, again=ROUNDS)


def test_state_of_quix_streams_goes_on_where_its_topics_are_read(
    rack_cluster: Cluster, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    (example,) = (each for each in EXAMPLES if each.name == "quix")
    example.install()
    topics = unique_name(), unique_name()
    variables = {"KAFKA_BOOTSTRAP": rack_cluster.bootstrap, "TOPICS": ",".join(topics), "GROUP": unique_name()}
    words = ("tests.helpers.kafka.quix_totals",)
    # A key is in both topics, so its total is right only where both are read by one member.
    with writing(rack_cluster, *topics) as write, crew(str(example.python), words, variables, tmp_path) as members:
        write(ROUNDS)
        members.wait(lambda: members.totals() == all_at(2 * ROUNDS), "all records of both topics, counted")
        killed = members.kill_first()
        lost = {int(line["key"][1:]) for line in killed.lines("key")}
        write(MORE)
        check_totals(members, 2 * (ROUNDS + MORE), lost, again=2 * ROUNDS)


def check_totals(members: Crew, total: int, lost: set[int], again: int) -> None:
    """Check totals after a kill."""
    # `lost`: keys of the member that was killed: what it has not committed is counted again.
    members.wait(
        lambda: all(found >= total for found in members.totals().values()), "totals that go on where they were"
    )
    found = members.totals()
    for partition in EVERYTHING:
        assert total <= found[f"k{partition}"] <= total + (again if partition in lost else 0), (found, lost)
