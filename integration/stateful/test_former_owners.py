"""Members that are stopped for longer than their session, and resume: their changelogs show who owned what."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.stateful._changelog import HEADER, ChangelogRecord, Claim, read_change
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import EXPIRING
from tests.helpers.kafka.stateful_group import PARTITIONS, SIX, SPREAD, Fleet
from tests.helpers.machine_speed import scaled_s

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.long]

TIMEOUT_S = 600.0
CYCLES = 4
SESSION_S = EXPIRING["session_timeout_ms"] / 1000


@pytest.mark.release
def test_a_member_that_resumes_takes_nothing_back_and_disturbs_no_living_owner(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    group, topic = unique_name(), make_topic(replicas=SPREAD)
    with closing(Fleet(rack_cluster.bootstrap, group, topic, tmp_path, 1)) as fleet:
        for name in SIX[:4]:
            fleet.start(name)
        wait_until(lambda: fleet.settled(1), "four members with their copies", timeout_s=TIMEOUT_S)
        dice = random.Random(345)
        for _ in range(CYCLES):
            stop_and_resume(fleet, dice)
        wait_until(lambda: fleet.settled(1), "all members with their copies", timeout_s=TIMEOUT_S)
        fleet.counts_right(TIMEOUT_S)
        fleet.end()
    owners = [check_owners(changes(rack_cluster.bootstrap, f"{group}-{topic}-changelog", p)) for p in range(PARTITIONS)]
    # Partitions have moved, or nothing was tried.
    assert sum(map(len, owners)) >= PARTITIONS + CYCLES


def stop_and_resume(fleet: Fleet, dice: random.Random) -> None:
    """Stop a member soon after a rebalance that it took part in, and resume it when others have its partitions."""
    name = dice.choice(sorted(fleet.running))
    absent = [each for each in SIX if each not in fleet.running]
    if absent:
        fleet.start(dice.choice(absent))
    else:
        fleet.kill(dice.choice([each for each in SIX if each != name]))
    fleet.write(200)
    time.sleep(4 * dice.random())
    process = fleet.running.pop(name)
    process.send_signal(signal.SIGSTOP)
    try:
        fleet.write(200)
        time.sleep(SESSION_S + scaled_s(4 * dice.random()))
        fleet.write(200)
    finally:
        process.send_signal(signal.SIGCONT)
    fleet.running[name] = process
    fleet.write(200)
    time.sleep(dice.random())


def changes(bootstrap: str, log: str, partition: int) -> Iterator[ChangelogRecord]:
    tp = KafkaPythonPartition(log, partition)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as reader:
        reader.assign([tp])
        end = reader.end_offsets([tp])[tp]
        while reader.position(tp) < end:
            for records in reader.poll(timeout_ms=200).values():
                for record in records:
                    yield read_change(record.key, record.value, dict(record.headers)[HEADER])


def check_owners(log: Iterator[ChangelogRecord]) -> list[Claim]:
    """Check the fences of a changelog, without the package's own rules, and return the claims of its owners in turn.

    An owner is the writer of a fence with a greater epoch, and its assignment is of a later generation than that of any
    owner before. Other fences are without effect: nothing has their epoch.
    """
    epoch, owners = -1, list[Claim]()
    for change in log:
        if change.kind != "fence":
            assert change.epoch <= epoch, "written with the epoch of a fence that is without effect"
            continue
        assert change.claim is not None
        assert change.claim.term == 0, "no group began anew, and none has static members"
        later = not owners or change.claim.generation > owners[-1].generation
        again = bool(owners) and change.claim == owners[-1]
        if change.epoch > epoch and (later or again):
            epoch = change.epoch
            owners += [change.claim] * later
        elif change.claim.generation >= owners[-1].generation:
            assert change.claim == owners[-1] or change.epoch <= epoch, "two owners of one generation"
    return owners
