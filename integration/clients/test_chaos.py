"""One short schedule of faults, of every kind that there is, as a test; `python -m tools.chaos` plays more.

What took too long is shown and fails nothing: that is for the program, on a machine that does nothing else.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.machine_speed import scaled_s
from tools.chaos.checker import RULES, TIMED, check
from tools.chaos.effects import rebalances
from tools.chaos.group import can_cut, faults, run, told
from tools.chaos.history import Acked, History
from tools.chaos.member import CONFLUENT
from tools.chaos.schedule import RACKS, promised

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.long, pytest.mark.release]


class TimedWarning(UserWarning):
    """Something took longer than it does on a machine that does nothing else."""


def judge(history: History, folder: Path) -> None:
    """Fail if anything is wrong, and warn of what took too long."""
    violations = check(history, RULES)
    shown = f"{told(history)}\n{violations}\nsee {folder}"
    assert {violation.rule for violation in violations} <= TIMED, shown
    assert len(history.of(Acked)) * scaled_s(1) >= 2000, shown
    if violations:
        warnings.warn(TimedWarning(f"stood still: {shown}"), stacklevel=2)


def test_a_group_under_faults_of_every_kind_loses_nothing(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(RACKS)
    cuts = can_cut(cluster)
    history = run(1, 48 if cuts else 36, cluster, tmp_path)
    judge(history, tmp_path)
    assert promised(cuts=cuts) <= faults(history).keys()
    # On a busy machine many changes can be one rebalance; the first generation is that of the start.
    assert len(rebalances(history)) >= 2


def test_members_that_read_with_librdkafka_lose_nothing_either(make_cluster: MakeCluster, tmp_path: Path) -> None:
    history = run(1, 30, make_cluster(RACKS), tmp_path, CONFLUENT)
    judge(history, tmp_path)
    assert faults(history).total() >= 5
