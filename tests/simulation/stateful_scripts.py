"""Scripts for members with state: what must hold for them, what happens to them, and scripts from seeds."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka.record.memory_records import MemoryRecords

from rackassign.errors import RackassignError
from tests.simulation import scripts, threads
from tests.simulation.group import Group
from tests.simulation.scripts import Happening, Result, Run, Script
from tests.simulation.stand_ins import Replacement
from tests.simulation.stateful_member import COUNTS, RESULTS, StatefulMember, StateOptions
from tests.simulation.transactions import Header, TransactionalCluster
from tests.simulation.watchers import Partition, Watchers

_KEYS = 4

_CONTROL = 0x20


class StateWatchers(Watchers):
    """What must hold of members with state besides."""

    cluster: TransactionalCluster

    def _commits_are_owners(self, group: Group, partition: Partition, member_id: str) -> None:
        """Do nothing: offsets of a transaction show when it ends, which may be in another generation."""

    def settled(self, cluster: Any, group: Group | None) -> None:
        super().settled(cluster, group)
        if not self._world.problems:
            self._results_are_exact(cluster)
            self._states_are_exact(cluster)

    def _results_are_exact(self, cluster: TransactionalCluster) -> None:
        """Each input record has one committed result, with the count of its key."""
        found = Counter(
            value for partition in cluster.topics[RESULTS] for value in committed_values(cluster, partition)
        )
        expected: set[bytes] = set()
        for topic in self.inputs(cluster):
            for partition in cluster.topics[topic]:
                counts: Counter[bytes] = Counter()
                for offset in range(partition.end):
                    counts[key_of(offset)] += 1
                    expected.add(f"{topic} {partition.index} {offset} {counts[key_of(offset)]}".encode())
        twice = sorted(value for value, times in found.items() if times > 1)
        others, missing = sorted(found.keys() - expected), sorted(expected - found.keys())
        lives = any(not member.dead and not member.ended for member in self.members)
        if twice or others or (missing and lives):
            self._world.violated("results are exact", f"twice {twice}, others {others}, missing {missing}")

    def _states_are_exact(self, cluster: TransactionalCluster) -> None:
        """The state of each owned partition is that of a replay of its input."""
        for member in self.members:
            if member.dead or member.ended:
                continue
            for tp in member.consumer.assignment():
                end = cluster.topics[tp.topic][tp.partition].end
                expected = Counter(map(key_of, range(end)))
                try:
                    with member.stateful.state(tuple(tp)) as state:  # type: ignore[attr-defined] # one with state
                        found = dict(state[COUNTS].items())
                except RackassignError as error:
                    self._world.violated("states are exact", f"{member.name} {tp}: {error}")
                    return
                if found != expected:
                    self._world.violated("states are exact", f"{member.name} {tp}: {found} is not {dict(expected)}")

    @staticmethod
    def inputs(cluster: TransactionalCluster) -> list[str]:
        return [topic for topic in cluster.topics if topic.startswith("topic-")]


def key_of(offset: int) -> bytes:
    """Return the key of an input record."""
    return b"k%d" % (offset * offset % _KEYS)


def committed_values(cluster: TransactionalCluster, partition: Any) -> list[bytes]:
    """Return the values that a reader of committed records gets from a partition, from its first record on."""
    values: list[bytes] = []
    stable = cluster.log(partition).stable(partition.end)
    for batch in partition.batches:
        header = Header.of(batch.data)
        if header.attributes & _CONTROL or batch.base >= stable:
            continue
        aborted_here = any(
            each.producer_id == header.producer_id and each.first <= batch.base < each.marker
            for each in cluster.log(partition).aborted
        )
        if not aborted_here:
            records = MemoryRecords(batch.data)
            values += [record.value for record in records.next_batch()]
    return values


class StateRun(Run):
    """One run of a script with members that have state."""

    settle_s, last_records_s = 50.0, 38.0

    def __init__(self, script: Script, *, log: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rackassign-simulation-"))
        self._losses: Counter[int] = Counter()
        super().__init__(script, log=log)

    def _new_watchers(self, *, once: bool) -> Watchers:
        del once
        # A commit that a rebalance overtakes is aborted, and its records are processed again.
        return StateWatchers(self.world, once=False, within_s=self.script.within_s)

    def _new_cluster(self) -> TransactionalCluster:
        cluster = TransactionalCluster(self.world, scripts.RACKS, self.watchers, {**self.topics, RESULTS: 3})
        cluster.key_of = key_of
        return cluster

    def _new_member(self, number: int, name: str, rack: str | None) -> Any:
        options = self.script.options
        assert isinstance(options, StateOptions)
        folder = self._folder / f"m{number}-{self._losses[number]}"
        return StatefulMember(folder, self.world, name, self.cluster, self.watchers, options, rack, tuple(self.topics))

    def go(self) -> Result:
        try:
            return super().go()
        finally:
            shutil.rmtree(self._folder)

    def _replacements(self) -> Iterable[Replacement]:
        yield from super()._replacements()
        yield from threads.replacements(self.world)

    def _planned(self, group: Group) -> None:
        """Do nothing: where standbys are decides, too."""

    def _lose(self, number: int) -> None:
        """Kill a member, and start it with an empty folder."""
        self._kill(number)
        self._losses[number] += 1
        self._start(number)

    def _refresh_producer(self, number: int) -> None:
        member: Any = self._living(number)
        if member is not None:
            threads.refresh_producers(member)


def run(script: Script, *, log: bool = False) -> Result:
    return StateRun(script, log=log).go()


_WEIGHTS = {
    "kill": 4,
    "stop": 2,
    "start": 8,
    "lose": 2,
    "freeze": 3,
    "pause": 5,
    "work": 2,
    "overwork": 2,
    "drop": 3,
    "delay": 8,
    "kill_broker": 3,
    "start_broker": 4,
    "lead": 3,
    "move_coordinator": 2,
    "move_transactions": 2,
    "refresh": 2,
    "produce": 8,
    "rack": 1,
}

_APIS = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "Produce",
    "ListOffsets",
)


def from_seed(seed: int) -> Script:
    """Make the script of a seed."""
    rng = random.Random(f"state {seed}")
    options = StateOptions(
        poll_ms=rng.choice((100, 500, 1000)),
        max_records=rng.choice((5, 50, 500)),
        commit_ms=rng.choice((0, 100, 1000)),
        standbys=rng.choice((0, 1, 1)),
        transaction_ms=rng.choice((3000, 10_000)),
    )
    weights = {name: _WEIGHTS[name] for name in rng.sample(sorted(_WEIGHTS), rng.randint(3, len(_WEIGHTS)))}
    members, partitions = rng.randint(1, 3), (rng.randint(1, 4),)
    # The first ones begin when members do, and most when they process.
    now, happenings = rng.choice((0.0, 3.0)), list[Happening]()
    for _ in range(rng.randint(2, 16)):
        now = round(now + (rng.expovariate(4.0) if rng.random() < 0.6 else rng.uniform(0.5, 6.0)), 3)
        name, *arguments = scripts.happening(rng, weights, members, partitions)
        if name == "delay" and rng.random() < 0.6:
            arguments[1] = rng.choice(_APIS)
        if name == "move_transactions":
            arguments = [rng.randint(1, 3)]
        if name == "freeze":
            # Sometimes for longer than a broker may be silent, and then others lead.
            arguments = [rng.randint(1, 3), round(rng.choice((0.5, 3.0, 11.0)) * rng.uniform(0.7, 1.5), 3)]
        happenings.append((now, name, *arguments))
    return Script(tuple(happenings), options, members, partitions, seed)
