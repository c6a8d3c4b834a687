"""Plans while a broker is down, which brokers before Kafka 4.0 do not list."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackassign.testing import Cluster, create_topic
from rackassign.testing._cluster import alive_brokers
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeCluster
from tests.helpers.kafka.command import rackassign

pytestmark = [pytest.mark.brokers, pytest.mark.local]

WARNING = "broker 3 is not listed, and the plan replaces its replicas: before Kafka 4.0 it may only be offline"


def stop_until_unlisted(cluster: Cluster, broker: int) -> None:
    """Stop a broker, and wait until all others have learnt it from the controller, whichever a command will ask."""
    cluster.stop(broker)
    others = [other for other in cluster.brokers if other.id in cluster.running]
    wait_until(
        lambda: all(broker not in alive_brokers(other.host, other.port, 30) for other in others),
        f"brokers that do not list broker {broker}",
    )


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("kafka_version", ["3.9.2", "4.0.2"])
def test_a_plan_that_replaces_a_broker_that_may_only_be_offline_warns(
    make_cluster: MakeCluster, kafka_version: str, tmp_path: Path
) -> None:
    cluster = make_cluster(["a", "b", "c", "c"])
    create_topic(cluster.bootstrap, "t", [[1, 2, 3], [2, 4, 1]])
    whole = rackassign("reassign plan", cluster.bootstrap, home=tmp_path)
    assert "nothing to reassign" in whole.stdout
    stop_until_unlisted(cluster, 3)
    done = rackassign("reassign plan", cluster.bootstrap, home=tmp_path)
    if not kafka_version.startswith("3."):
        assert "nothing to reassign" in done.stdout
        assert "not listed" not in done.stderr
        return
    assert "1 replica to copy" in done.stdout
    assert WARNING in done.stderr
    # Nobody needs to be told what was asked for.
    asked = rackassign("reassign plan", cluster.bootstrap, "--remove-broker", "3", home=tmp_path)
    assert "1 replica to copy" in asked.stdout
    assert "not listed" not in asked.stderr
