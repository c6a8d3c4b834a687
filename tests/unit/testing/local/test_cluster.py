"""A local cluster, without its brokers."""

from __future__ import annotations

import pytest

from rackassign.errors import ClusterError, ConfigError
from rackassign.testing import Broker, LocalCluster


def test_unknown_brokers_and_racks_are_named_with_those_that_exist() -> None:
    cluster = LocalCluster(["a", "b", None])
    cluster._brokers = tuple(Broker(n, rack, "127.0.0.1", n) for n, rack in ((1, "a"), (2, "b"), (3, None)))
    assert cluster.bootstrap == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    with pytest.raises(ConfigError, match="no broker 4: the cluster has 1, 2, 3"):
        cluster.kill(4)
    with pytest.raises(ConfigError, match="no rack 'z': the cluster has 'a', 'b'"):
        cluster.stop_rack("z")


def test_a_cluster_that_was_never_started_says_so_and_closes() -> None:
    cluster = LocalCluster(["a"])
    cluster._brokers = (Broker(1, "a", "127.0.0.1", 1),)
    with pytest.raises(ClusterError, match="not running"):
        cluster.kill(1)
    cluster.close()
    cluster.close()
    assert cluster.pids == {}


@pytest.mark.parametrize("port", [0, -1, 65_534, 70_000])
def test_ports_that_do_not_exist_are_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"first_port: expected 1 to 65533, got {port}"):
        LocalCluster(["a", "b", None], first_port=port)
