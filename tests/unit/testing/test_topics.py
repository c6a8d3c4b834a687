"""Topics of test clusters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError

from rackassign.admin import cluster
from rackassign.admin.cluster import DescribedTopic
from rackassign.errors import ClusterError, ConfigError
from rackassign.model import Broker, Partition
from rackassign.testing import create_topic, topics


@pytest.mark.parametrize("assignments", [[], [[1], []]])
def test_a_topic_needs_replicas(assignments: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="at least one broker"):
        create_topic("127.0.0.1:1", "t", assignments)


KNOWN = DescribedTopic((Partition((1,), 1), Partition((2,), 2)))
EXPECTED = {0: [1], 1: [2]}


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[int], DescribedTopic]]:
    """What a broker answers to its n-th request."""
    found: dict[int, Callable[[int], DescribedTopic]] = {}
    asked: dict[int, int] = {}

    def describe(_: Any, broker: int, names: Iterable[str]) -> dict[str, DescribedTopic]:
        asked[broker] = asked.get(broker, 0) + 1
        (name,) = names
        return {name: found[broker](asked[broker])}

    monkeypatch.setattr(cluster, "list_brokers", lambda _: [Broker(each, None, fenced=each == 9) for each in found])
    monkeypatch.setattr(cluster, "describe_topics_on", describe)
    return found


def test_a_topic_is_ready_when_each_running_broker_knows_all_of_it(
    views: dict[int, Callable[[int], DescribedTopic]],
) -> None:
    seen: list[int] = []

    def late(request: int) -> DescribedTopic:
        seen.append(request)
        half = DescribedTopic((Partition((1,), None), Partition((2,), 2)))
        return (DescribedTopic(unknown=True), half, KNOWN)[request - 1]

    def ended(_: int) -> DescribedTopic:
        raise NodeNotReadyError

    def fenced(_: int) -> DescribedTopic:
        raise AssertionError

    views.update({1: lambda _: KNOWN, 2: late, 3: ended, 9: fenced})
    topics._await_known(None, "t", EXPECTED, math.inf)
    assert seen == [1, 2, 3]


def test_a_broker_that_never_knows_it_is_named(views: dict[int, Callable[[int], DescribedTopic]]) -> None:
    views.update({1: lambda _: KNOWN, 2: lambda _: DescribedTopic(unknown=True)})
    with pytest.raises(ClusterError, match="'t' is not known to broker 2"):
        topics._await_known(None, "t", EXPECTED, -math.inf)
