"""What kafka-python's own cooperative assignor leaves to nobody on a real broker, ours does not.

The partitions are so laid out that nothing has to move: a member that really gives something up joins again, and with
its next claims the group would heal by chance. Further cases are in `tests/property/test_simulation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from rackassign import RackAwareCooperativeStickyAssignor, attach
from rackassign.testing import Cluster
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.scenarios import HOST, OURS, Kind, ScenarioGroup, unsubscribed

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.long]

PLAIN = Kind(KafkaConsumer, lambda: RackAwareCooperativeStickyAssignor(rack="a"))
MENDED = Kind(
    lambda *topics, **config: attach(KafkaConsumer(*topics, **config)), CooperativeStickyAssignor, poll_ms=100
)


@pytest.mark.parametrize(
    ("staying", "leaving", "rebalances"),
    [
        # Here all that is claimed is true, and nothing is waited for in vain.
        pytest.param(OURS, OURS, 1, id="ours"),
        # Claims are put right in a second round, and a member without our patches may lose one on top.
        pytest.param(OURS, HOST, 5, id="ours leading the host's", marks=pytest.mark.release),
        pytest.param(MENDED, MENDED, 5, id="the host's, attached", marks=pytest.mark.release),
        pytest.param(PLAIN, PLAIN, 5, id="ours without attach", marks=pytest.mark.release),
    ],
)
def test_a_follower_that_unsubscribes_leaves_nothing_unowned(
    rack_cluster: Cluster,
    make_topic: MakeTopic,
    unique_name: Callable[[], str],
    staying: Kind,
    leaving: Kind,
    rebalances: int,
) -> None:
    with closing(ScenarioGroup(rack_cluster.bootstrap, unique_name(), make_topic)) as stage:
        outcome = unsubscribed(stage, staying, leaving)
    assert outcome.unowned == 0
    assert outcome.rebalances <= rebalances
