"""What sticky members put into their user data: Java's bytes, and a value or one clear error for any others."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

from rackassign.errors import WireError
from rackassign.wire import StickyData, decode_generation, decode_sticky, encode_sticky

JAVA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "java_user_data.json").read_text())
STICKY = [case for case in JAVA["member_data"] if case["assignor"] == "sticky"]
COOPERATIVE = [case for case in JAVA["member_data"] if case["assignor"] != "sticky" and case["generation"] < 0]

int32s = st.integers(0, 2**31 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
stickies = st.builds(
    StickyData,
    owned=st.dictionaries(names, st.lists(int32s, min_size=1, max_size=4).map(tuple), max_size=4),
    generation=st.none() | int32s,
)


def unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_written_as_java_writes_it_but_for_the_order_of_topics() -> None:
    theirs = bytes.fromhex(JAVA["user_data"]["sticky_v1_generation_42_t1_t0_u5"])
    ours = encode_sticky(StickyData({"u": (5,), "t": (1, 0)}, 42))
    assert ours == theirs
    assert encode_sticky(StickyData({}, 43)) == bytes.fromhex(JAVA["user_data"]["sticky_v1_generation_43_empty"])


@pytest.mark.parametrize("case", STICKY, ids=lambda case: case["what"])
def test_read_as_java_reads_it(case: dict[str, Any]) -> None:
    data = unhexed(case["user_data_hex"])
    expected = case["partitions"].strip("[]")
    if case["what"] == "garbage":
        with pytest.raises(WireError):
            decode_sticky(data)
        return
    read = decode_sticky(data)
    partitions = [f"{topic}-{p}" for topic, ids in read.owned.items() for p in ids]
    assert partitions == (expected.split(", ") if expected else [])
    assert read.generation == case["member_generation"]


@pytest.mark.parametrize("case", COOPERATIVE, ids=lambda case: case["what"])
def test_generations_of_old_cooperative_members_are_java_s(case: dict[str, Any]) -> None:
    read = decode_generation(unhexed(case["user_data_hex"]))
    if "extra ignored" in case["what"]:
        # Four bytes and more are librdkafka's, whose first number is a count of topics.
        assert read is None
    else:
        assert read == (None if case["member_generation"] == -1 else case["member_generation"])


def test_the_generation_of_librdkafka_s_cooperative_members_is_behind_their_partitions() -> None:
    assert decode_generation(encode_sticky(StickyData({"t": (1, 2)}, 7))) == 7


@given(stickies)
def test_round_trip(data: StickyData) -> None:
    assert decode_sticky(encode_sticky(data)) == data


@given(stickies)
def test_what_kafka_python_writes_is_read(data: StickyData) -> None:
    for version in (0, 1):
        if version == 1 or data.generation is None:
            theirs = StickyAssignorUserData(
                version=version,
                previous_assignment=[(topic, list(ids)) for topic, ids in data.owned.items()],
                generation=-1 if data.generation is None else data.generation,
            )
            assert decode_sticky(theirs.encode()) == data


@given(stickies)
def test_kafka_python_reads_the_same(data: StickyData) -> None:
    version = 0 if data.generation is None else 1
    theirs = StickyAssignorUserData.decode(encode_sticky(data), version=version, header=False)
    assert {entry.topic: tuple(entry.partitions) for entry in theirs.previous_assignment} == data.owned
    assert theirs.generation == (-1 if data.generation is None else data.generation)


@given(st.binary(max_size=100))
def test_any_bytes_give_a_value_or_a_wire_error(data: bytes) -> None:
    decode_generation(data)
    with suppress(WireError):
        decode_sticky(data)
