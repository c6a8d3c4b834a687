"""What `rackassign cluster up` proposes to type next."""

from __future__ import annotations

import pytest

from rackassign.cli.commands import cluster
from rackassign.testing import Broker, LocalCluster


@pytest.mark.parametrize(
    ("racks", "killed"),
    [
        (["a", "b", "c", "a", "b", "a"], ["cluster kill-rack b"]),
        (["a", "b", "a"], ["cluster kill-rack b"]),
        ([None, "b"], ["cluster kill-rack b"]),
        (["a", None, "a"], []),
    ],
)
def test_the_broker_of_the_other_commands_is_not_in_the_rack_to_kill(
    racks: list[str | None], killed: list[str]
) -> None:
    running = LocalCluster(racks)
    running._brokers = tuple(Broker(n, rack, "127.0.0.1", 9100 + n) for n, rack in enumerate(racks))
    commands = list(cluster._next_commands(running, cluster._Shown("default", topics=True, demo_group=False)))
    assert commands == ["audit --bootstrap-server localhost:9100", *killed, "cluster down"]
