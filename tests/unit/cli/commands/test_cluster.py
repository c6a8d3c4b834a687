"""What `rackassign cluster up` refuses, and what it proposes to type next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackassign.cli.commands import cluster
from rackassign.testing import Broker, LocalCluster
from rackassign.testing.registry import register
from tests.unit.cli.conftest import Cli


def test_an_option_is_checked_also_while_another_cluster_has_the_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKASSIGN_CACHE", str(tmp_path))
    with register("default"):
        code, out, err = cli("cluster", "up", "--kafka-version", "2.8")
        assert (code, out) == (2, "")
        assert err.startswith("rackassign: kafka_version: expected one of 3.5.2, ")
        assert cli("cluster", "up").err.startswith("rackassign: a cluster 'default' is up already; ")


@pytest.mark.parametrize(
    ("racks", "shown", "expected"),
    [
        ("abc", ("default", False, True), ["inspect {} --all-groups", "top {} --all-groups", "cluster kill-rack c"]),
        ("abc", ("x", True, False), ["audit {}", "cluster kill-rack c --name x"]),
        ("a", ("default", False, False), ["create-topic orders --partitions 12 --replication-factor 1 {}"]),
        # The broker of the other commands, the first one, is not in the rack to kill.
        ("abcaba", ("default", True, False), ["audit {}", "cluster kill-rack b"]),
        ("aba", ("default", True, False), ["audit {}", "cluster kill-rack b"]),
        ((None, "b"), ("default", True, False), ["audit {}", "cluster kill-rack b"]),
        (("a", None, "a"), ("default", True, False), ["audit {}"]),
    ],
)
def test_a_cluster_names_the_commands_to_type_next(
    racks: Sequence[str | None], shown: tuple[str, bool, bool], expected: list[str]
) -> None:
    running = LocalCluster(list(racks))
    running._brokers = tuple(Broker(n, rack, "127.0.0.1", 9100 + n) for n, rack in enumerate(racks))
    down = "cluster down" if shown[0] == "default" else f"cluster down --name {shown[0]}"
    access = "--bootstrap-server localhost:9100"
    assert list(cluster._next_commands(running, cluster._Shown(*shown))) == [
        *(line.format(access) for line in expected),
        down,
    ]
