"""The values check themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackassign.errors import InputError
from rackassign.model import Broker, Group, Member, Partition, Topology

EMPTY = Topology((), {})

LARGER_UNIT = "only ratios count, and a missing pair costs 1, so choose a larger unit"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Broker(-1), "id: expected 0 or more, got -1"),
        (lambda: Broker("1"), 'id: expected an integer, got "1"'),  # type: ignore[arg-type]
        (lambda: Broker(id=True), "id: expected an integer, got true"),
        (lambda: Broker(1, 7), "rack: expected a string, got 7"),  # type: ignore[arg-type]
        (lambda: Partition((1, -2)), "replicas[1]: expected 0 or more, got -2"),
        (lambda: Partition((1,), leader=-2), "leader: expected 0 or more, got -2"),
        (lambda: Topology((Broker(1), Broker(1)), {}), "brokers[1].id: broker 1 is listed twice"),
        (lambda: Member("", frozenset()), "id: expected a member id, got an empty string"),
        (lambda: Member("m", frozenset(), generation=-2), "generation: expected 0 or more, got -2"),
        (lambda: Member("m", frozenset(), owned={"t": (1, 1)}), "owned.t[1]: partition 1 is listed twice"),
        (lambda: Member("m", frozenset(), owned={"t": (-1,)}), "owned.t[0]: expected 0 or more, got -1"),
        (lambda: Member("m", frozenset(), owned={"s": (), "t": (1, 1)}), "owned.t[1]: partition 1 is listed twice"),
        (
            lambda: Member("m", frozenset(), owned={"s": (2, 2), "t": (-1,)}),
            "owned.s[1]: partition 2 is listed twice",
        ),
        (
            lambda: Member("m", frozenset(), owned={"s": (1,), "t": (2, True)}),
            "owned.t[1]: expected an integer, got true",
        ),
        (
            lambda: Member("m", frozenset(), owned={"s": (1,), "t": ("2",)}),  # type: ignore[dict-item]
            'owned.t[0]: expected an integer, got "2"',
        ),
        (
            lambda: Group(EMPTY, (Member("m", frozenset()), Member("m", frozenset()))),
            'members[1].id: member "m" is listed twice',
        ),
        (
            lambda: Group(EMPTY, (), weights={"t": (1.0, float("nan"))}),
            "weights.t[1]: expected a finite number, 0 or more, got NaN",
        ),
        (
            lambda: Group(EMPTY, (), costs={"a": {"b": -1}}),
            "costs.a.b: expected a finite number, 0 or more, got -1",
        ),
        (
            lambda: Group(EMPTY, (), costs={"a": {"b": 2e-8, "a": 1e-9}}),
            f"costs.a.b: expected 0, or at least 1e-06 beside the other costs, got 2e-08; {LARGER_UNIT}",
        ),
        (
            lambda: Group(EMPTY, (), costs={"a": {"b": 1e12, "c": 0.5}}),
            f"costs.a.c: expected 0, or at least 1 beside the other costs, got 0.5; {LARGER_UNIT}",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_the_name_of_the_field(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message


def test_what_is_normal_is_no_error() -> None:
    assert Partition((1, 1)).replicas == (1, 1)
    assert Member("m", frozenset(), rack="").rack is None
    assert Member("m", frozenset(), generation=-1).generation is None
    assert Member("m", frozenset(), owned={"s": (), "t": (0, 2, 1), "u": (1,)}).owned["t"] == (0, 2, 1)
    assert Group(EMPTY, (), costs={"a": {"a": 1e-9, "b": 0, "c": 1e-6}, "b": {"b": 1e300, "a": 1e6}}).costs["a"]["c"]
    assert Group(EMPTY, (Member("m", frozenset({"gone"}), owned={"gone": (9,)}),)).members[0].owned == {"gone": (9,)}


def test_a_message_is_one_line_however_wrong_the_value() -> None:
    error = InputError("topics.bad\nname" + "x" * 1000, "expected")
    assert "\n" not in str(error)
    assert len(str(error)) < 120
