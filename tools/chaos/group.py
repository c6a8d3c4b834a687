"""One seed from the start of its members to the verdict on what was recorded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rackassign.testing import Cluster, create_topic
from rackassign.testing._docker_cluster import DockerCluster
from tests.helpers.machine_speed import scaled_s

from .checker import QUIET_S, STARTED_S, TIMED, Violation, check, lost_records, unsettled
from .effects import rebalances
from .faults import FaultInjector, Processes, TopicOperator
from .history import (
    NOTES_FILE,
    Acked,
    Batch,
    Calm,
    History,
    Journal,
    Played,
    Stays,
    journaled_traffic,
    now,
    read_history,
)
from .member import KAFKA_PYTHON
from .schedule import MEMBERS, TOPICS, UNDONE_BY, Event, Kind, plan

GROUP = "chaos"

_UNDONE_S = 600.0
_SETTLED_S = QUIET_S + scaled_s(300.0)
"""A guard against hanging; how long the group took is for the checker to judge."""
_LIFE_S = 1800.0
"""More than all of it takes beside the schedule; a member does not live longer."""

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Args:
        faults: How many of each kind there really were, without their undoing.
        acked: Records that the brokers acknowledged.
        processed: Records that members have processed, those that were processed twice counted twice.
        generations: Rebalances.
        seconds: From the start of the members to the verdict.
        violations: What was wrong.
    """

    faults: Mapping[Kind, int]
    acked: int
    processed: int
    generations: int
    seconds: float
    violations: tuple[Violation, ...]

    @property
    def wrong(self) -> tuple[Violation, ...]:
        """The violations without those that only tell that something took long."""
        return tuple(each for each in self.violations if each.rule not in TIMED)

    @property
    def line(self) -> str:
        faults = ", ".join(f"{kind.value} {count}" for kind, count in sorted(self.faults.items()))
        return (
            f"{faults}; {self.acked} records acknowledged, {self.processed} processed;"
            f" {self.generations} generations; {self.seconds:.0f} s; {len(self.violations)} violations"
        )


def can_cut(cluster: Cluster) -> bool:
    """Return whether brokers can be taken off the network."""
    return isinstance(cluster, DockerCluster)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a schedule is played with."""

    journal: Journal
    processes: Processes
    operator: TopicOperator
    injector: FaultInjector


@contextmanager
def stage(cluster: Cluster, group: str, directory: Path, life_s: float, client: str = KAFKA_PYTHON) -> Iterator[Stage]:
    """Create the topics; yield what a schedule is played with, no member of which lives longer than this."""
    for topic, replicas in TOPICS.items():
        create_topic(cluster.bootstrap, topic, replicas)
    with (
        closing(Journal(directory / NOTES_FILE)) as journal,
        Processes(cluster.bootstrap, group, directory, life_s, client) as processes,
        TopicOperator(cluster.bootstrap, group, journal) as operator,
    ):
        yield Stage(journal, processes, operator, FaultInjector(cluster, processes, operator, journal))


def run(seed: int, seconds: float, cluster: Cluster, directory: Path, client: str = KAFKA_PYTHON) -> Outcome:
    """Play one schedule on a cluster that is up and has no topics yet.

    Args:
        seed: Of the schedule.
        seconds: How long it lasts; starting and coming to rest come on top.
        cluster: One broker in each of the racks a, b and c.
        directory: Where everything is recorded.
        client: What the members are made of.
    """
    begin = now()
    events = plan(seed, seconds, cuts=can_cut(cluster))
    with stage(cluster, GROUP, directory, seconds + _LIFE_S, client) as on:
        with journaled_traffic(cluster.bootstrap, list(TOPICS), on.journal):
            on.injector.play([Event(0.0, Kind.MEMBER_START, name) for name in MEMBERS])
            _wait(lambda: _all_have_something(directory), STARTED_S)
            on.injector.play(events)
            cluster.wait_ready()
            _wait(lambda: on.operator.idle, _UNDONE_S)
            on.journal.note(Calm(now()))
            on.journal.note(Stays(now(), on.processes.names))
            _wait(lambda: not any(unsettled(read_history(directory))), _SETTLED_S)
        _wait(lambda: not any(lost_records(read_history(directory))), _SETTLED_S)
        on.processes.note_deaths(on.journal)
    return _outcome(read_history(directory), now() - begin)


def _all_have_something(directory: Path) -> bool:
    logs = read_history(directory).members
    return len(logs) == len(MEMBERS) and all(any(isinstance(e, Batch) for e in log.entries) for log in logs)


def _wait(condition: Callable[[], bool], timeout_s: float) -> None:
    """Look until a condition holds or patience is over: which of them it was, the checker will say."""
    deadline = now() + timeout_s
    while not condition() and now() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _outcome(history: History, seconds: float) -> Outcome:
    batches = [entry for log in history.members for entry in log.entries if isinstance(entry, Batch)]
    faults = Counter[Kind](each.event.kind for each in history.of(Played))
    for kind in (Kind.MEMBER_START, *UNDONE_BY.values()):
        faults.pop(kind, None)
    return Outcome(
        faults=faults,
        acked=len(history.of(Acked)),
        processed=sum(batch.last - batch.first + 1 for batch in batches),
        generations=len(rebalances(history)),
        seconds=seconds,
        violations=tuple(check(history)),
    )
