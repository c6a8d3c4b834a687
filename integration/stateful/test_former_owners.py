"""Members that are stopped for longer than their session, and resume: their changelogs show that nothing went back."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rackassign.stateful._processing import decode_progress
from rackassign.stateful._stores import PROGRESS
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.consumers import EXPIRING
from tests.helpers.kafka.example_members import records
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
        owners = {(name, p) for name in SIX for line in fleet.output_lines(name) for p in line.get("runs", ())}
        fleet.end()
    for partition in range(PARTITIONS):
        log = records(rack_cluster.bootstrap, f"{group}-{topic}-changelog", partition, "read_committed")
        offsets = [decode_progress(each.value).next[topic] for each in log if each.key == PROGRESS]
        # A former owner would have continued where its own state ended.
        assert offsets == sorted(set(offsets))
    # Partitions have moved, or nothing was tried.
    assert len(owners) >= PARTITIONS + CYCLES


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
