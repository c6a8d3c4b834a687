"""Topics of test clusters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError
from kafka.protocol.admin import ElectionType

from rackassign.admin import describe as cluster_admin
from rackassign.admin.describe import DescribedTopic
from rackassign.errors import ClusterError, ConfigError
from rackassign.model import Broker, Partition
from rackassign.testing import _topics as topics
from rackassign.testing import create_topic


@pytest.mark.parametrize("assignments", [[], [[1], []]])
def test_a_topic_needs_replicas(assignments: list[list[int]]) -> None:
    with pytest.raises(ConfigError, match="at least one broker"):
        create_topic("127.0.0.1:1", "t", assignments)


class Client:
    """An admin client of a cluster whose broker 1 was fenced while the topic was created."""

    def __init__(self, *leaders: int) -> None:
        self.leaders = list(leaders)
        self.in_sync = [[2], [2, 1]]
        self.elected: list[Any] = []

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        assert names == ["t"]
        rows = [{"partition_index": 0, "leader_id": self.leaders[0], "isr_nodes": self.in_sync[0]}]
        self.in_sync = self.in_sync[-1:]
        return [{"partitions": rows}]

    def elect_leaders(self, kind: ElectionType, wanted: dict[str, list[int]], *, raise_errors: bool) -> Any:
        assert (kind, raise_errors) == (ElectionType.PREFERRED, False)
        self.elected.append(wanted)
        # The first of these requests is refused.
        self.leaders = self.leaders[1:]
        return SimpleNamespace(error_code=0, replica_election_results=[])


def test_a_partition_that_another_replica_leads_gets_its_first_replica_as_the_leader() -> None:
    client = Client(2, 2, 1)
    topics._await_in_sync(client, "t", {0: [1, 2]}, math.inf)
    # Not before all replicas were in sync.
    assert client.elected == [{"t": [0]}] * 2


def test_no_election_is_requested_while_there_is_no_leader_or_the_topic_is_not_known() -> None:
    client = Client(1)
    for rows in ([], [{"partition_index": 0, "leader_id": -1, "isr_nodes": [1, 2]}]):
        topics._elect_first(client, "t", rows, {0: [1, 2]})
    assert client.elected == []


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

    monkeypatch.setattr(
        cluster_admin, "list_brokers", lambda _: [Broker(each, None, fenced=each == 9) for each in found]
    )
    monkeypatch.setattr(cluster_admin, "describe_topics_on", describe)
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
