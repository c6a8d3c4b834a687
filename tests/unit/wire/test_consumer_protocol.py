"""The codec: Java's bytes, and a value or one clear error for any others.

Counts of elements: as many as the bytes left may hold are read, and more are refused before anything is read.

What sticky members put into their user data: Java's bytes, and a value or one clear error for any others.

What Kafka Streams puts into user data: Java's bytes in every version; any others give a value or one clear error.
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
from uuid import UUID

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
from rackassign.wire.streams import (
    StreamsAssignmentInfo,
    StreamsSubscriptionInfo,
    TaskId,
    decode_streams,
    decode_streams_assignment,
    encode_streams,
    encode_streams_assignment,
)

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


PROCESS = bytes(16)


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
        pytest.param(decode_streams, i32(11, 11) + PROCESS + i32(0), "offset sums", 18, id="streams-subscription-sums"),
        pytest.param(
            decode_streams,
            i32(11, 11) + PROCESS + i32(0, 0) + b"\0" + i32(0),
            "tags",
            8,
            id="streams-subscription-tags",
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


VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "standby_vectors.json").read_text("utf-8"))
INFO, TOLD = VECTORS["subscription_info"], VECTORS["assignment_info"]

int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
named = st.builds(TaskId, int32s, int32s, st.none() | texts.filter(bool))
places = st.lists(st.builds(TopicPartition, texts, int32s), max_size=3).map(tuple)
hosts = st.dictionaries(
    st.builds(lambda name, port: f"{name}:{port}", texts, st.integers(0, 2**31 - 1)), places, max_size=3
)


def task(name: str) -> TaskId:
    group, partition = name.split("_")
    return TaskId(int(group), int(partition))


def by_host(said: dict[str, list[list[Any]]]) -> dict[str, tuple[TopicPartition, ...]]:
    return {host: tuple(TopicPartition(*place) for place in places) for host, places in said.items()}


def version_11(encoded: list[dict[str, Any]]) -> bytes:
    """Java's bytes of the version that members of this package write."""
    (case,) = (case for case in encoded if case["version"] == 11)
    return bytes.fromhex(case["hex"])


def test_a_subscription_is_java_s() -> None:
    said = INFO["input"]
    info = StreamsSubscriptionInfo(
        UUID(said["process_id"]),
        {task(name): total for name, total in said["task_offset_sums_in_order"]},
        dict(said["client_tags_in_order"]),
        said["user_endpoint"],
        said["unique_field"],
        said["error_code"],
        said["latest_supported_version"],
    )
    data = version_11(INFO["encoded"])
    assert encode_streams(info) == data
    assert decode_streams(data) == info
    assert list(decode_streams(data).task_offset_sums) == list(info.task_offset_sums)


def test_an_assignment_is_java_s() -> None:
    said = TOLD["input"]
    info = StreamsAssignmentInfo(
        tuple(map(task, said["active"])),
        {task(name): tuple(TopicPartition(*place) for place in where) for name, where in said["standby"].items()},
        by_host(said["partitions_by_host"]),
        by_host(said["standby_partitions_by_host"]),
        said["err_code"],
        said["next_rebalance_ms"],
        said["commonly_supported_version"],
    )
    assert encode_streams_assignment(info) == version_11(TOLD["encoded"])
    assert decode_streams_assignment(version_11(TOLD["encoded"])) == info


@pytest.mark.parametrize("case", [*INFO["encoded"][:-1], INFO["future_version"]], ids=lambda case: case["version"])
def test_other_versions_of_a_subscription_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=f"version {case['version']}: expected 11"):
        decode_streams(bytes.fromhex(case["hex"]))


@pytest.mark.parametrize("case", TOLD["encoded"][:-1], ids=lambda case: case["version"])
def test_other_versions_of_an_assignment_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=f"version {case['version']}: expected 11"):
        decode_streams_assignment(bytes.fromhex(case["hex"]))


@given(
    st.builds(
        StreamsSubscriptionInfo,
        st.uuids(),
        st.dictionaries(named, int64s, max_size=4),
        st.dictionaries(texts, texts, max_size=3),
        texts,
        st.integers(-128, 127),
        int32s,
        int32s,
    )
)
def test_subscriptions_round_trip(info: StreamsSubscriptionInfo) -> None:
    assert decode_streams(encode_streams(info)) == info


@given(
    st.builds(
        StreamsAssignmentInfo,
        st.lists(named, max_size=4).map(tuple),
        st.dictionaries(named, places, max_size=3),
        hosts,
        hosts,
        int32s,
        int64s,
        int32s,
    )
)
def test_assignments_round_trip(told: StreamsAssignmentInfo) -> None:
    assert decode_streams_assignment(encode_streams_assignment(told)) == told


def test_names_are_written_as_java_writes_them() -> None:
    for name, written in (("\0", "c080"), ("ä", "c3a4"), ("😀", "eda0bdedb880")):
        told = StreamsAssignmentInfo((), {TaskId(0, 0): (TopicPartition(name, 1),)})
        data = encode_streams_assignment(told)
        assert f"{len(written) // 2:04x}{written}00000001" in data.hex()
        assert decode_streams_assignment(data) == told


def test_a_host_without_a_port_is_refused() -> None:
    with pytest.raises(WireError, match="expected HOST:PORT"):
        encode_streams_assignment(StreamsAssignmentInfo(partitions_by_host={"h": ()}))


def test_half_a_pair_of_surrogates_is_refused_with_its_place() -> None:
    data = encode_streams_assignment(StreamsAssignmentInfo((TaskId(0, 0, "ab"),)))
    place = data.index("b".encode("utf-16-be"), data.index("ab".encode("utf-16-be")) + 2)
    with pytest.raises(WireError, match="do not belong together") as caught:
        decode_streams_assignment(data[:place] + b"\xd8\x00" + data[place + 2 :])
    assert caught.value.offset == place


def test_a_text_that_is_not_java_s_is_refused_with_its_place() -> None:
    data = encode_streams_assignment(StreamsAssignmentInfo(partitions_by_host={"host:1": ()}))
    place = data.index(b"host") + 2
    with pytest.raises(WireError, match="is not Java's UTF-8") as caught:
        decode_streams_assignment(data[:place] + b"\xff" + data[place + 1 :])
    assert caught.value.offset == place


@given(
    st.binary(max_size=80)
    | st.builds(lambda n, rest: bytes((0, 0, 0, n)) + rest, st.sampled_from([10, 11, 11, 12]), st.binary())
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_streams, decode_streams_assignment):
        with suppress(WireError):
            decode(data)


@pytest.mark.parametrize("kind", ["subscription", "assignment"])
def test_mutations_are_read_or_refused(kind: str) -> None:
    decode: Any = decode_streams if kind == "subscription" else decode_streams_assignment
    whole = version_11((INFO if kind == "subscription" else TOLD)["encoded"])
    dice = random.Random(708)
    for cut in range(len(whole)):
        with pytest.raises(WireError):
            decode(whole[:cut])
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(4, len(data))] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        with suppress(WireError):
            decode(bytes(data))
