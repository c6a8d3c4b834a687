"""Layouts as JSON.

Figures of a layout.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackassign.errors import InputError
from rackassign.model import Broker
from rackassign.placement import Layout, LayoutMetrics
from tests.helpers.generators.layouts import brokers_in


def test_a_layout_is_read_and_written() -> None:
    text = {
        "format": "rackassign/1",
        "brokers": [{"id": 1, "rack": "a", "weight": 2}, {"id": 2, "rack": None, "fenced": True}],
        "topics": {"t": [[1, 2, 1], {"replicas": [2], "leader": None}]},
    }
    layout = Layout.read(text)
    assert layout.brokers == (Broker(1, "a"), Broker(2, fenced=True))
    assert layout.topics == {"t": ((1, 2), (2,))}
    assert layout.weights == {1: 2}
    assert Layout.read(json.loads(json.dumps(layout.to_json()))) == layout


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "expected an object"),
        ({"topics": {}}, "'brokers' is missing"),
        ({"brokers": 1, "topics": {}}, "brokers: expected an array"),
        ({"brokers": [{"id": 1, "weight": "x"}], "topics": {}}, r"brokers\[0\].weight: expected a number"),
        ({"brokers": [{"id": 1, "weight": -1}], "topics": {}}, r"brokers\[0\].weight: .* above 0"),
        ({"brokers": [{"id": 1}, {"id": 1}], "topics": {}}, r"brokers\[1\].id"),
        ({"brokers": [3], "topics": {}}, r"brokers\[0\]: expected an object"),
        ({"brokers": [], "topics": {"t": [["1"]]}}, r"topics.t\[0\].replicas\[0\]"),
    ],
)
def test_a_wrong_layout_is_refused_by_field(value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Layout.read(value)


def test_figures_of_a_layout() -> None:
    layout = Layout(tuple(brokers_in(2, 1)), {"t": ((1, 3), (1, 2), (3, 1), (1, 9)), "u": ((-1,),)})
    quality = LayoutMetrics.of(layout)
    assert (quality.partitions, quality.replicas, quality.missing) == (5, 7, 2)
    assert quality.replicas_per_broker == pytest.approx(4 / (7 / 3))
    assert quality.leaders_per_broker == pytest.approx(3 / (4 / 3))
    assert quality.leaders_per_topic == pytest.approx(3 / 2)
    assert quality.replicas_per_rack == pytest.approx(5 / 3.5)
    assert quality.leaders_per_rack == pytest.approx(1.5)
    assert (quality.sharing, quality.gone_with_rack, quality.moved) == (1, 2, None)
    assert quality.leaders_with_rack == 0.75
    assert quality.replicas_with_rack == pytest.approx(5 / 7)
    # Broker 3 lost: 1 leads all four. Broker 1 lost: 2 and 3 have one and two, and one has no other replica.
    assert quality.leaders_after_loss == pytest.approx(2.0)
    assert LayoutMetrics.of(Layout(())).replicas_per_broker == 1.0


def test_hot_figures_are_of_brokers_by_weight() -> None:
    layout = Layout(tuple(brokers_in(1, 1)), {"t": ((1,), (1,), (2,))}, {1: 2})
    assert LayoutMetrics.of(layout).replicas_per_broker == 1.0
    with pytest.raises(InputError, match="the broker does not exist"):
        Layout((), {}, {7: 1})
