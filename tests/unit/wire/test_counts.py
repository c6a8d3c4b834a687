"""Counts of elements: as many as the bytes left may hold are read, and more are refused before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rackassign.errors import WireError
from rackassign.wire import decode_assignment, decode_subscription
from rackassign.wire.streams import decode_streams, decode_streams_assignment

UUID = bytes(16)


def i16(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2, "big", signed=True) for number in numbers)


def i32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big", signed=True) for number in numbers)


@pytest.mark.parametrize(
    ("decode", "before", "what", "smallest"),
    [
        pytest.param(decode_subscription, i16(3), "topics", 2, id="subscription-topics"),
        pytest.param(decode_subscription, i16(1) + i32(0, -1), "owned topics", 6, id="subscription-owned"),
        pytest.param(
            decode_subscription, i16(1) + i32(0, -1, 1) + i16(0), "partitions", 4, id="subscription-owned-partitions"
        ),
        pytest.param(decode_assignment, i16(0), "assigned topics", 6, id="assignment"),
        pytest.param(decode_streams, i32(11, 11) + UUID + i32(0), "offset sums", 18, id="streams-subscription-sums"),
        pytest.param(
            decode_streams, i32(11, 11) + UUID + i32(0, 0) + b"\0" + i32(0), "tags", 8, id="streams-subscription-tags"
        ),
        pytest.param(decode_streams_assignment, i32(11, 11), "active tasks", 12, id="streams-assignment-active"),
        pytest.param(decode_streams_assignment, i32(11, 11, 0), "standby tasks", 16, id="streams-assignment-standby"),
        pytest.param(
            decode_streams_assignment,
            i32(11, 11, 0, 1, 0, 0, 0),
            "partitions",
            6,
            id="streams-assignment-standby-partitions",
        ),
        pytest.param(
            decode_streams_assignment,
            i32(11, 11, 1, 0, 0),
            "characters of the name of a topology",
            2,
            id="streams-assignment-characters",
        ),
        pytest.param(decode_streams_assignment, i32(11, 11, 0, 0), "topics", 6, id="streams-assignment-topics"),
        pytest.param(decode_streams_assignment, i32(11, 11, 0, 0, 0), "hosts", 10, id="streams-assignment-hosts"),
        pytest.param(
            decode_streams_assignment,
            i32(11, 11, 0, 0, 1, 0) + i16(0) + i32(1) + i16(0) + i32(9),
            "partitions",
            8,
            id="streams-assignment-host-partitions",
        ),
        pytest.param(
            decode_streams_assignment, i32(11, 11, 0, 0, 0, 0), "hosts", 10, id="streams-assignment-standby-hosts"
        ),
    ],
)
def test_as_many_elements_are_read_as_the_bytes_left_may_hold(
    decode: Callable[[bytes], Any], before: bytes, what: str, smallest: int
) -> None:
    left = 3 * smallest - 1
    with pytest.raises(WireError, match=f"^.*3 {what} cannot fit into the {left} bytes left") as caught:
        decode(before + i32(3) + bytes(left))
    assert caught.value.offset == len(before)
    # All elements are of the smallest size; what follows them is missing, or bytes of an element that is not there.
    try:
        decode(before + i32(3) + bytes(left + 1))
    except WireError as error:
        assert f"3 {what} cannot fit" not in str(error)  # noqa: PT017 - most of them raise nothing here
