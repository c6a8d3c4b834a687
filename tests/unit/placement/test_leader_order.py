"""Leaders evened where no replica moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.model import Broker
from rackassign.placement import (
    Layout,
    LayoutMetrics,
    PlacementConstraints,
    ReplicaPlacementError,
    load_placer,
    rebalance,
)
from rackassign.placement.optimal_placer import rebalance_leaders
from tests.helpers.generators.layouts import brokers_in, random_layout


def changes(before: Layout, topics: Any) -> tuple[int, int]:
    """Lists that are not what they were, and those that another broker leads."""
    pairs = [pair for topic in topics for pair in zip(before.topics[topic], topics[topic], strict=True)]
    return sum(old != new for old, new in pairs), sum(old[0] != new[0] for old, new in pairs)


@pytest.mark.parametrize(
    "brokers", [(), (Broker(1, "a"),), (Broker(1, "a", fenced=True),), (Broker(1), Broker(2, "a"))]
)
@pytest.mark.parametrize("topics", [{}, {"t": ()}])
def test_of_no_partitions_nothing_is_unproven(
    brokers: tuple[Broker, ...], topics: dict[str, tuple[tuple[int, ...], ...]]
) -> None:
    layout = Layout(brokers, topics)
    for found in (rebalance(layout, replication_factor=3), rebalance_leaders(layout)):
        assert (found.topics, found.moved, found.lower_bound, found.proven, found.notes) == (topics, 0, 0, True, ())
    with pytest.raises(ConfigError, match='topic "x" does not exist'):
        rebalance(layout, replication_factor={"x": 1})


def test_leaders_that_resonate_are_evened_in_place() -> None:
    brokers = brokers_in(3, 3, 3)
    topics = {f"p{n}": load_placer("striped", {"seed": n}).place(0, n, 3, brokers) for n in (9, 12, 18, 30, 60, 90)}
    before = Layout(tuple(brokers)).with_topics(topics)
    assert LayoutMetrics.of(before).leaders_per_topic == 3.0
    found = rebalance_leaders(before)
    quality = LayoutMetrics.of(before.with_topics(found.topics), before)
    assert (found.moved, found.lower_bound, quality.moved, found.proven) == (0, 0, 0, True)
    assert quality.leaders_per_topic == 1.0
    assert quality.leaders_per_broker == pytest.approx(25 * 9 / 219)
    alone = rebalance_leaders(before, keep_successors=True)
    lists, leaders = changes(before, alone.topics)
    # Nine topics' worth of partitions are led by three brokers of nine where there are nine.
    assert lists == leaders == changes(before, found.topics)[1] < 219 / 3
    assert changes(before, found.topics)[0] < 219 / 2


def test_a_layout_that_is_as_good_as_any_keeps_every_list() -> None:
    layout = random_layout(brokers_in(3, 2, 4), 120, 3, 5, topics=4)
    best = layout.with_topics(rebalance(layout).topics)
    assert rebalance_leaders(best).topics == best.topics


def test_fenced_excluded_and_unknown_brokers_lead_only_where_no_other_can() -> None:
    brokers = (Broker(1, "a"), Broker(2, "b"), Broker(3, "c", fenced=True), Broker(4))
    lists = ((3, 1, 2), (9, 2, 1), (4, 1), (3,), (9, 3), (4, 9), (1, 3, 2), (2, 4, 1), (-1, 2), ())
    found = rebalance_leaders(Layout(brokers, {"t": lists}), PlacementConstraints(exclude=frozenset({4})))
    assert found.proven
    assert [sorted(own) for own in found.topics["t"]] == [sorted(own) for own in lists]
    assert [own for own in found.topics["t"] if not {1, 2} & set(own)] == [(3,), (9, 3), (4, 9), ()]
    assert Counter(own[0] for own in found.topics["t"] if {1, 2} & set(own)) == {1: 3, 2: 3}
    # Who is dead does not come next anyway; who is to go would.
    assert found.topics["t"][6:9] == ((1, 3, 2), (2, 1, 4), (2, -1))
    nobody = Layout((Broker(3, "c", fenced=True),), {"t": ((3, 1), (1,))})
    assert rebalance_leaders(nobody).topics == nobody.topics
    with pytest.raises(ReplicaPlacementError, match="brokers 4 have none"):
        rebalance_leaders(Layout(brokers, {"t": lists}))


def test_leaders_are_brought_to_the_racks_asked_for_where_a_replica_is() -> None:
    lists = ((1, 3), (3, 1), (2, 4), (4, 2), (5, 6))
    layout = Layout(tuple(brokers_in(2, 2, 2)), {"t": lists})
    found = rebalance_leaders(layout, PlacementConstraints(leader_racks=frozenset("b")))
    assert [own[0] for own in found.topics["t"][:4]] == [3, 3, 4, 4]
    assert set(found.topics["t"][4]) == {5, 6}
    assert found.notes == ("1 have no eligible leader in the racks where leaders must be",)
    assert not found.proven


def test_what_leads_other_topics_counts_when_leaders_are_evened() -> None:
    layout = Layout(tuple(brokers_in(1, 1)), {"old": ((1,), (1,), (1,)), "new": ((1, 2), (1, 2), (2, 1), (1, 2))})
    found = rebalance_leaders(layout, topics=["new"])
    assert list(found.topics) == ["new"]
    # 2 leads one of seven now; three or four are its share.
    assert Counter(own[0] for own in found.topics["new"]) == {1: 1, 2: 3}
    with pytest.raises(ConfigError, match='topic "t" does not exist'):
        rebalance_leaders(layout, topics=["t"])
