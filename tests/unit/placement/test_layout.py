"""Layouts as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rackassign.errors import InputError
from rackassign.model import Broker
from rackassign.placement import Layout


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
