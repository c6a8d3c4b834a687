"""A static member that has returned requests the rebalance that its group needs, and no other one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign import RackAwareCooperativeStickyAssignor
from rackassign.assignor.adapter import DescribedMember
from rackassign.model import Partitions
from rackassign.wire import Assignment, Subscription, encode_assignment, encode_subscription
from tests.helpers.fakes.kafka_python import FakeMembership

ALL = {"m": (0,), "other": (1, 2)}


def described(
    assignment: Mapping[str, tuple[int, ...]], racks: str = "abc", **claims: Partitions
) -> list[DescribedMember]:
    """Members as their coordinator describes them: those that returned have claimed nothing."""
    return [
        DescribedMember(
            name,
            f"instance-{name}",
            encode_subscription(Subscription(("t",), owned=claims.get(name, {}), generation=6, rack=racks[i])),
            encode_assignment(Assignment({"t": partitions})) if partitions else b"",
        )
        for i, (name, partitions) in enumerate(assignment.items())
    ]


def returned(
    members: list[DescribedMember], *, static: bool = True, assignments: int = 2, **options: Any
) -> FakeMembership:
    """Return the membership of an assignor in rack a that gets its assignments."""
    membership = FakeMembership()
    membership.has_instance_id, membership.described = static, members
    assignor = RackAwareCooperativeStickyAssignor(rack="a", **options)
    assignor.bind(membership)
    for _ in range(assignments):
        assignor.on_assignment(ConsumerProtocolAssignment(3, [("t", [0])], None), 7)
    return membership


@pytest.mark.parametrize(
    ("members", "asked"),
    [
        pytest.param(described(ALL), 0, id="its partition is local"),
        # Partitions 0, 1 and 2 are in racks a, b and c.
        pytest.param(described({"m": (1,), "other": (0, 2)}), 1, id="in another rack"),
        pytest.param(described({"m": (1,), "other": (0, 2)}, "aa"), 0, id="what is local may be so for one of two"),
        pytest.param(described({"m": (0,), "other": (1,)}), 1, id="a partition without owner"),
        pytest.param(
            described({"m": (0,), "other": (1,)}, other={"t": (1, 2)}), 0, id="one that another member has to revoke"
        ),
    ],
)
def test_a_rebalance_is_requested_once_if_the_group_needs_it(members: list[DescribedMember], asked: int) -> None:
    """The coordinator gives it its former partitions, and lets no leader plan."""
    assert returned(members).asked == asked
    assert returned(members, static=False).asked == 0


def test_what_weights_do_not_allow_is_no_gain() -> None:
    members = described({"m": (1,), "other": (0, 2)}, "ac")

    assert returned(members).asked == 1
    assert returned(members, weights={"t": (1, 2, 1)}).asked == 0


def test_what_cannot_be_read_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    broken = [*described(ALL), DescribedMember("third", None, b"\xff", b"")]

    assert returned(broken).asked == 0

    (warning,) = caplog.records
    assert "cannot be read" in warning.message


def test_partitions_and_topics_that_are_not_known_yet_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """They were added, and assigned by a leader that knew of them; or only another member subscribes to them."""
    other = DescribedMember(
        "third",
        None,
        encode_subscription(Subscription(("another",), rack="a")),
        encode_assignment(Assignment({"another": (0,)})),
    )

    assert returned(described({"m": (0, 7), "other": (1, 2)})).asked == 0
    assert returned([*described(ALL), other]).asked == 0
    assert returned([*described({"m": (1,), "other": (0, 2)}), other]).asked == 1

    assert not caplog.records


def test_a_member_that_was_removed_requests_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It stood still, and hears of that later than of its group."""
    assert returned(described({"other": (0, 1, 2)})).asked == 0

    assert not caplog.records


def test_a_request_that_cannot_be_made_costs_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As with a version of the client whose coordinator differs: poll() raises nothing."""
    membership = FakeMembership()
    membership.has_instance_id = True
    membership.describe_group = None  # type: ignore[assignment, method-assign]
    assignor = RackAwareCooperativeStickyAssignor(rack="a")
    assignor.bind(membership)

    assignor.on_assignment(ConsumerProtocolAssignment(3, [("t", [0])], None), 7)

    (warning,) = caplog.records
    assert "cannot be read" in warning.message
