"""Each record has one result that readers of committed records see, whichever members and brokers fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rackassign.testing import Cluster
from tools.chaos.checker import RESULT_RULES, check
from tools.chaos.exactly_once import play
from tools.chaos.history import Acked, Result

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.long]


# `make exactly-once` plays all faults with each client, at random; `make chaos-stateful` a stateful consumer.
@pytest.mark.parametrize(
    ("client", "faults"),
    [
        pytest.param("confluent", ["kill", "suspend", "crash"], marks=pytest.mark.release),
        ("kafka-python", ["kill"]),
        pytest.param("aiokafka", ["kill"], marks=pytest.mark.release),
        pytest.param("stateful", ["kill", "suspend"], marks=pytest.mark.release),
    ],
)
def test_each_record_has_one_result(
    rack_cluster: Cluster, unique_name: Callable[[], str], tmp_path: Path, client: str, faults: Sequence[str]
) -> None:
    history = play(rack_cluster, unique_name(), 1, faults, tmp_path, client=client)
    assert check(history, RESULT_RULES) == []
    assert len(history.of(Acked)) > 1000
    # Each kill has found open transactions.
    assert not all(result.committed for result in history.of(Result))
