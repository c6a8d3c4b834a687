"""The codec: Java's bytes, and a value or one clear error for any others.

Counts of elements: as many as the bytes left may hold are read, and more are refused before anything is read.

What sticky members put into their user data: Java's bytes, and a value or one clear error for any others.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rackassign.errors import WireError
from rackassign.model import TopicPartition
from rackassign.wire import (
    Assignment,
    StickyData,
    Subscription,
    SubscriptionReader,
    decode_assignment,
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_assignments,
    encode_sticky,
    encode_subscription,
)
from rackassign.wire.streams import decode_streams, decode_streams_assignment

JAVA: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "java_protocol_bytes.json").read_text()
)
FUZZ = int(os.environ.get("RACKASSIGN_FUZZ", "100000"))

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int32s = st.integers(-(2**31), 2**31 - 1)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=5).map(lambda topics: tuple(sorted(topics))),
    user_data=st.none() | st.binary(max_size=20),
    owned=st.dictionaries(names, st.lists(int32s, min_size=1, max_size=4).map(lambda ids: tuple(sorted(ids)))),
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | names.filter(bool),
)
assignments = st.builds(
    Assignment,
    partitions=st.dictionaries(names, st.lists(int32s, min_size=1, max_size=5).map(tuple), max_size=5),
    user_data=st.none() | st.binary(max_size=20),
)


def partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def by_topic(texts: list[str]) -> dict[str, tuple[int, ...]]:
    partitions: dict[str, tuple[int, ...]] = {}
    for topic, p in map(partition, texts):
        partitions[topic] = (*partitions.get(topic, ()), p)
    return partitions


def unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def subscription_of(fields: dict[str, Any]) -> Subscription:
    return Subscription(
        tuple(fields["topics"]),
        unhexed(fields["user_data_hex"]),
        by_topic(fields["owned"]),
        fields["generation"],
        fields["rack"],
    )


@pytest.mark.parametrize("case", JAVA["subscription"])
def test_subscriptions_are_java_s_byte_for_byte(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    assert encode_subscription(subscription_of(case["input"]), case["version"]) == data
    assert decode_subscription(data) == subscription_of(case["decoded"])


@pytest.mark.parametrize("case", JAVA["assignment"])
def test_assignments_are_java_s_byte_for_byte(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    assignment = Assignment(by_topic(case["partitions"]), unhexed(case["user_data_hex"]))
    assert encode_assignment(assignment, case["version"]) == data
    assert decode_assignment(data) == assignment


@pytest.mark.parametrize("case", JAVA["subscription_edge"], ids=lambda case: case["what"])
def test_odd_subscriptions_are_read_as_java_reads_them(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    if "error" in case:
        with pytest.raises(WireError):
            decode_subscription(data)
    else:
        assert decode_subscription(data) == subscription_of(case["decoded"])


@pytest.mark.parametrize("case", JAVA["assignment_edge"], ids=lambda case: case["what"])
def test_odd_assignments_are_read_as_java_reads_them(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    if "error" in case:
        with pytest.raises(WireError):
            decode_assignment(data)
    else:
        assert decode_assignment(data) == Assignment({}, b"")


@given(subscriptions, st.binary(max_size=5), st.integers(3, 2**15 - 1))
def test_subscription_round_trip(subscription: Subscription, tail: bytes, version: int) -> None:
    data = encode_subscription(subscription)
    assert decode_subscription(data) == subscription
    newer = version.to_bytes(2, "big") + data[2:] + tail
    assert decode_subscription(newer) == subscription


@given(assignments, st.integers(0, 3))
def test_assignment_round_trip(assignment: Assignment, version: int) -> None:
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


@given(subscriptions, st.integers(0, 3))
def test_agrees_with_kafka_python(subscription: Subscription, version: int) -> None:
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(subscription, version))
    assert tuple(theirs.topics) == subscription.topics
    assert theirs.user_data == subscription.user_data
    owned = {topic: tuple(ids) for topic, ids in theirs.owned_partitions}
    assert owned == (subscription.owned if version >= 1 else {})
    assert theirs.generation_id == (subscription.generation if version >= 2 else -1)
    assert theirs.rack_id == (subscription.rack if version >= 3 else None)
    assert theirs.encode() == encode_subscription(subscription, version)


@given(assignments, st.integers(0, 3))
def test_assignments_agree_with_kafka_python(assignment: Assignment, version: int) -> None:
    data = encode_assignment(assignment, version)
    theirs = ConsumerProtocolAssignment.decode(data)
    assert {topic: tuple(ids) for topic, ids in theirs.assigned_partitions} == assignment.partitions
    assert theirs.encode() == data


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription(("x" * 2**15,)),
        Subscription(("\ud800",)),
        Subscription((), owned={"t": (2**31,)}),
        Subscription((), generation=2**31),
        Subscription((), rack="\udfff"),
    ],
)
def test_what_does_not_fit_is_refused(subscription: Subscription) -> None:
    with pytest.raises(WireError):
        encode_subscription(subscription)


@pytest.mark.parametrize("version", [-1, 4])
def test_only_versions_0_to_3_are_written(version: int) -> None:
    with pytest.raises(WireError, match="cannot be written"):
        encode_subscription(Subscription(()), version)


def test_an_error_says_where() -> None:
    with pytest.raises(WireError, match=r"^at byte 8: expected 3 bytes of a topic, only 1 are left$"):
        decode_subscription(bytes.fromhex("0003 00000001 0003 61"))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_wire_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with suppress(WireError):
            decode(data)


def test_mutated_bytes_give_a_value_or_a_wire_error() -> None:
    """Seeded and bounded; RACKASSIGN_FUZZ sets how many."""
    seeds = [bytes.fromhex(case["hex"]) for kind in JAVA if kind != "source" for case in JAVA[kind]]
    dice = random.Random(881)
    values = errors = 0
    for i in range(FUZZ):
        data = bytearray(seeds[i % len(seeds)] or b"\0")
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(data) + 1)
            kind = dice.randrange(4)
            if kind == 0:
                data[at:at] = dice.randbytes(dice.randrange(1, 5))
            elif kind == 1:
                del data[at : at + dice.randrange(1, 9)]
            else:
                # Lengths and counts are where a reader is hurt: extreme numbers more often than any others.
                data[at : at + 4] = dice.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", dice.randbytes(4)))
        try:
            (decode_subscription if i % 2 else decode_assignment)(bytes(data))
            values += 1
        except WireError:
            errors += 1
    assert values + errors == FUZZ
    assert values > FUZZ // 100
    assert errors > FUZZ // 100


def test_a_count_that_cannot_fit_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(WireError, match="2147483647 topics cannot fit into the 4 bytes left"):
        decode_subscription(bytes.fromhex("0003 7fffffff 00000000"))


def test_a_topic_that_is_repeated_takes_time_that_grows_with_the_bytes() -> None:
    entry = b"\0\1t" + (1).to_bytes(4, "big") + (7).to_bytes(4, "big")
    count = 100_000
    data = b"\0\1" + bytes(4) + (0xFFFFFFFF).to_bytes(4, "big") + count.to_bytes(4, "big") + entry * count
    assert decode_subscription(data).owned == {"t": (7,) * count}


def topics_of_bytes(arrays: list[tuple[bytes, tuple[int, ...]]]) -> bytes:
    parts = [struct.pack(f">h{len(name)}si{len(ids)}i", len(name), name, len(ids), *ids) for name, ids in arrays]
    return struct.pack(">i", len(arrays)) + b"".join(parts)


some_names = st.sampled_from([b"", b"a", b"b", b"topic", b"\0\0", b"x" * 255, b"x" * 256, b"x" * 257, b"\xff"])
arrays_of_topics = st.lists(st.tuples(some_names, st.lists(int32s, max_size=3).map(tuple)), max_size=6)


@given(st.lists(arrays_of_topics, min_size=1, max_size=5), st.integers(-9, 0), st.data())
def test_topics_that_were_read_before_are_read_as_new_ones(
    joined: list[list[tuple[bytes, tuple[int, ...]]]], cut: int, data: st.DataObject
) -> None:
    """Repeated topics, those without partitions, names of any length, ends that are missing, and wrong numbers."""
    reader = SubscriptionReader()
    for arrays in joined:
        sent = bytearray(struct.pack(">hii", 1, 0, -1) + topics_of_bytes(arrays))
        if cut:
            del sent[cut:]
        elif data.draw(st.booleans()):
            sent[data.draw(st.integers(10, len(sent) - 1))] = data.draw(st.integers(0, 255))
        outcomes: list[object] = []
        for decode in (decode_subscription, reader.read):
            try:
                outcomes.append(decode(bytes(sent)))
            except WireError as error:
                outcomes.append((error.offset, str(error)))
        assert outcomes[0] == outcomes[1]
        if isinstance(outcomes[0], Subscription) and outcomes[0].owned:
            assert all(outcomes[0].owned.values())


def test_arrays_of_a_topic_that_is_listed_twice_are_merged_in_order() -> None:
    arrays: list[tuple[bytes, tuple[int, ...]]] = [(b"b", (3, 1)), (b"e", ()), (b"a", (7,)), (b"b", (2, 3)), (b"a", ())]
    sent = struct.pack(">hii", 1, 0, -1) + topics_of_bytes(arrays)
    assert [*decode_subscription(sent).owned.items()] == [("b", (3, 1, 2, 3)), ("a", (7,))]


@given(st.lists(st.dictionaries(names, st.lists(int32s, max_size=5).map(tuple), max_size=5), max_size=4))
def test_many_assignments_are_encoded_as_each_by_itself(many: list[dict[str, tuple[int, ...]]]) -> None:
    for version in range(4):
        assert encode_assignments(many, version) == [encode_assignment(Assignment(of), version) for of in many]


def test_a_string_that_is_not_utf_8_is_refused_with_its_place() -> None:
    data = encode_subscription(Subscription(("topic",), rack="rack"))
    for text, what in ((b"rack", "the rack"), (b"topic", "a topic")):
        place = data.index(text) + 2
        with pytest.raises(WireError, match=f"{what} is not UTF-8") as caught:
            decode_subscription(data[:place] + b"\xff" + data[place + 1 :])
        assert caught.value.offset == place


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


USER_DATA: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "java_user_data.json").read_text())
STICKY = [case for case in USER_DATA["member_data"] if case["assignor"] == "sticky"]
COOPERATIVE = [case for case in USER_DATA["member_data"] if case["assignor"] != "sticky" and case["generation"] < 0]

numbers = st.integers(0, 2**31 - 1)
stickies = st.builds(
    StickyData,
    owned=st.dictionaries(names, st.lists(numbers, min_size=1, max_size=4).map(tuple), max_size=4),
    generation=st.none() | numbers,
)


def test_written_as_java_writes_it_but_for_the_order_of_topics() -> None:
    theirs = bytes.fromhex(USER_DATA["user_data"]["sticky_v1_generation_42_t1_t0_u5"])
    ours = encode_sticky(StickyData({"u": (5,), "t": (1, 0)}, 42))
    assert ours == theirs
    assert encode_sticky(StickyData({}, 43)) == bytes.fromhex(USER_DATA["user_data"]["sticky_v1_generation_43_empty"])


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
def test_any_bytes_of_sticky_data_give_a_value_or_a_wire_error(data: bytes) -> None:
    decode_generation(data)
    with suppress(WireError):
        decode_sticky(data)
