"""The values check themselves.

Errors that are passed from one process to another.

What is near.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import ConfigError, InputError, MissingExtraError, RackassignError, WireError
from rackassign.locality import Locality, RackSets, validate_locality_mode
from rackassign.model import Broker, Group, LocalityMode, Member, Partition, Topology

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


ERRORS = [
    RackassignError("message"),
    ConfigError("rack must be a string"),
    InputError("members[3].rack", "expected a string"),
    WireError(7, "expected a list"),
    MissingExtraError("aiokafka", "aiokafka"),
    AuthorizationError("Describe", "the cluster"),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: RackassignError, protocol: int) -> None:
    passed = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - its own
    for other in (passed, copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


TOPOLOGY = Topology(
    (Broker(1, "a"), Broker(2, "b"), Broker(3)),
    {"t": (Partition((1, 2), 1), Partition((2,), None), Partition((3, 9), 3), Partition((), None))},
)


@pytest.mark.parametrize(
    ("mode", "rack", "expected"),
    [
        ("any-replica", "a", Locality(local=1, cross=1, unknown=2)),
        ("any-replica", "b", Locality(local=2, cross=0, unknown=2)),
        ("any-replica", "nowhere", Locality(local=0, cross=2, unknown=2)),
        ("any-replica", None, Locality(local=0, cross=0, unknown=4)),
        ("leader", "a", Locality(local=1, cross=0, unknown=3)),
        ("leader", "b", Locality(local=0, cross=1, unknown=3)),
    ],
)
def test_counts(mode: LocalityMode, rack: str | None, expected: Locality) -> None:
    group = Group(TOPOLOGY, (Member("m", frozenset({"t"}), rack=rack),))
    assert Locality.count(group, {"m": {"t": (0, 1, 2, 3)}}, RackSets.of(TOPOLOGY, mode)) == expected


def test_an_unknown_mode_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"one of any-replica, leader, got 'near'"):
        validate_locality_mode("near")
