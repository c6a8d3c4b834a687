"""What `rackassign cluster up` refuses, and what it proposes to type next."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackassign.cli.commands import cluster
from rackassign.testing import Broker, LocalCluster
from rackassign.testing.registry import register
from tests.unit.cli.conftest import Cli


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


def test_an_option_is_checked_also_while_another_cluster_has_the_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKASSIGN_CACHE", str(tmp_path))
    with register("default"):
        code, out, err = cli("cluster", "up", "--kafka-version", "2.8")
        assert (code, out) == (2, "")
        assert err.startswith("rackassign: kafka_version: expected one of 3.5.2, ")
        assert cli("cluster", "up").err.startswith("rackassign: a cluster 'default' is up already; ")
