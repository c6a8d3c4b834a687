"""One seed from the start of its members to the verdict on what was recorded."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rackassign.testing import Cluster, create_topic
from rackassign.testing._docker_cluster import DockerCluster
from tests.helpers.kafka.example_members import Members
from tests.helpers.machine_speed import scaled_s
from tests.helpers.threads import meanwhile

from .checker import QUIET_S, STARTED_S, lost_records, unsettled
from .effects import rebalances
from .faults import FaultInjector, TopicOperator
from .history import NOTES_FILE, Acked, Batch, Calm, History, Journal, Played, journaled_traffic, now, read_history
from .member import KAFKA_PYTHON
from .schedule import MEMBERS, TOPICS, UNDONE_BY, Event, Kind, plan

_GROUP = "chaos"
_UNDONE_S = 600.0
_SETTLED_S = QUIET_S + scaled_s(300.0)
"""A guard against hanging; how long the group took is for the checker to judge."""
_LOOK_EVERY_S = 0.5


def can_cut(cluster: Cluster) -> bool:
    """Return whether brokers can be taken off the network."""
    return isinstance(cluster, DockerCluster)


@contextmanager
def stage(cluster: Cluster, directory: Path, client: str = KAFKA_PYTHON) -> Iterator[FaultInjector]:
    """Create the topics; yield what a schedule is played with, until the members are killed."""
    for topic, replicas in TOPICS.items():
        create_topic(cluster.bootstrap, topic, replicas)
    words = [sys.executable, "-m", "tools.chaos.member", client, cluster.bootstrap, _GROUP]
    with (
        closing(Journal(directory / NOTES_FILE)) as journal,
        closing(Members(lambda name: [*words, name, str(directory)], directory)) as members,
    ):
        operator = TopicOperator(cluster.bootstrap, _GROUP, journal)
        with meanwhile(operator.run):
            yield FaultInjector(cluster, members, operator, journal)


def run(seed: int, seconds: float, cluster: Cluster, directory: Path, client: str = KAFKA_PYTHON) -> History:
    """Play one schedule on a cluster that is up and has no topics yet."""
    events = plan(seed, seconds, cuts=can_cut(cluster))
    with stage(cluster, directory, client) as on:
        with journaled_traffic(cluster.bootstrap, list(TOPICS), on.journal):
            on.play([Event(0.0, Kind.MEMBER_START, name) for name in MEMBERS])
            # Until each has processed something.
            _wait(lambda: len(dict(read_history(directory).of_members(Batch))) == len(MEMBERS), STARTED_S)
            on.play(events)
            cluster.wait_ready()
            _wait(lambda: on.operator.idle, _UNDONE_S)
            on.journal.note(Calm(now(), on.staying))
            _wait(lambda: not any(unsettled(read_history(directory))), _SETTLED_S)
        _wait(lambda: not any(lost_records(read_history(directory))), _SETTLED_S)
        on.note_deaths()
    return read_history(directory)


def _wait(condition: Callable[[], bool], timeout_s: float) -> None:
    """Look until a condition holds or patience is over: which of them it was, the checker will say."""
    deadline = now() + timeout_s
    while not condition() and now() < deadline:
        time.sleep(_LOOK_EVERY_S)


def faults(history: History) -> Counter[Kind]:
    """Return how many of each kind there really were, without their undoing."""
    found = Counter(each.event.kind for each in history.of(Played))
    return Counter({kind: found[kind] for kind in found.keys() - {Kind.MEMBER_START, *UNDONE_BY.values()}})


def told(history: History) -> str:
    """Return a line: what happened, and what members did."""
    played = ", ".join(f"{kind.value} {count}" for kind, count in sorted(faults(history).items()))
    # Those that were processed twice are counted twice.
    processed = sum(len(batch.numbers) for _, batch in history.of_members(Batch))
    return (
        f"{played}; {len(history.of(Acked))} records acknowledged, {processed} processed;"
        f" {len(rebalances(history))} generations"
    )
