"""What only plans need is loaded by the leader of a group, beside the thread of its client, and by no follower."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from typing_extensions import Self

pytestmark = [pytest.mark.brokers, pytest.mark.local]

HANG_S = 600


class Member:
    """A member in a process of its own, closed at the end of the `with` block."""

    def __init__(self, client: str, bootstrap: str, topic: str, group: str) -> None:
        module = "tests.helpers.kafka.loading_member"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, client, bootstrap, topic, group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reports: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(HANG_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
        assert code == 0

    def has(self, partitions: int) -> bool:
        """Return whether it has so many partitions now."""
        assert self._process.poll() is None
        return bool(self.reports) and self.reports[-1]["partitions"] == partitions

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.reports.append(json.loads(line))


@pytest.mark.long
@pytest.mark.parametrize(
    ("client", "thread"),
    [("kafka-python", "rackassign-load"), ("confluent", "rackassign-load"), ("aiokafka", "rackassign-plan")],
)
def test_a_leader_loads_beside_its_client_and_a_follower_does_not(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], client: str, thread: str
) -> None:
    topic, group = make_topic(replicas=[[1], [2], [3], [1]]), unique_name()
    where = (client, rack_cluster.bootstrap, topic, group)
    with ExitStack() as opened:
        leader = opened.enter_context(Member(*where))
        wait_until(lambda: leader.has(4), "a member with everything")
        follower = opened.enter_context(Member(*where))
        wait_until(lambda: leader.has(2) and follower.has(2), "two members that share")
    assert leader.reports[-1]["loaded_by"] == thread
    # Whichever rebalance came when, and until it has closed.
    assert {report["loaded_by"] for report in follower.reports} == {None}
