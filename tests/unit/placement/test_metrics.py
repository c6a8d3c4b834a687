"""Figures of a layout."""

from __future__ import annotations

import pytest

from rackassign.errors import InputError
from rackassign.placement import Layout, LayoutMetrics
from tests.helpers.generators.layouts import brokers_in


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
