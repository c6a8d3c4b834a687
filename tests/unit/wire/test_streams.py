"""What Kafka Streams puts into user data: Java's bytes in every version; any others give a value or one clear error."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import WireError
from rackassign.model import TopicPartition
from rackassign.wire.streams_assignment import (
    NO_REBALANCE,
    StreamsAssignmentInfo,
    decode_streams_assignment,
    encode_streams_assignment,
)
from rackassign.wire.streams_subscription import (
    ACTIVE_SUM,
    UNKNOWN_SUM,
    StreamsSubscriptionInfo,
    TaskId,
    decode_streams,
    encode_streams,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "standby_vectors.json").read_text("utf-8"))
INFO, TOLD = VECTORS["subscription_info"], VECTORS["assignment_info"]

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
named = st.builds(TaskId, int32s, int32s, st.none() | texts.filter(bool))
nameless = st.builds(TaskId, int32s, int32s)
places = st.lists(st.builds(TopicPartition, texts, int32s), max_size=3).map(tuple)
hosts = st.dictionaries(
    st.builds(lambda name, port: f"{name}:{port}", texts, st.integers(0, 2**31 - 1)), places, max_size=3
)


def task(name: str) -> TaskId:
    group, partition = name.split("_")
    return TaskId(int(group), int(partition))


def by_host(said: dict[str, list[list[Any]]]) -> dict[str, tuple[TopicPartition, ...]]:
    return {host: tuple(TopicPartition(*place) for place in places) for host, places in said.items()}


def info_of(version: int) -> StreamsSubscriptionInfo:
    """The vector's member, as far as a version tells."""
    said = INFO["input"]
    sums = {task(name): total for name, total in said["task_offset_sums_in_order"]}
    if version < 7:
        sums = {each: total if total == ACTIVE_SUM else UNKNOWN_SUM for each, total in sums.items()}
    return StreamsSubscriptionInfo(
        UUID(said["process_id"]),
        sums,
        dict(said["client_tags_in_order"]) if version >= 11 else {},
        said["user_endpoint"] if version >= 2 else "",
        said["unique_field"] if version >= 8 else 0,
        said["error_code"],
        version,
        said["latest_supported_version"] if version >= 3 else -1,
    )


@pytest.mark.parametrize("case", INFO["encoded"], ids=lambda case: f"v{case['version']}")
def test_subscriptions_are_java_s(case: dict[str, Any]) -> None:
    data, said = bytes.fromhex(case["hex"]), info_of(case["version"])
    assert encode_streams(said) == data
    assert decode_streams(data) == said
    assert list(decode_streams(data).task_offset_sums) == list(said.task_offset_sums)


def test_of_a_newer_version_the_numbers_are_read() -> None:
    future = INFO["future_version"]
    read = decode_streams(bytes.fromhex(future["hex"]))
    assert (read.version, read.latest) == (future["version"], future["latest_supported_version"])
    with pytest.raises(WireError, match="version 12: expected 1 to 11"):
        encode_streams(read)


@pytest.mark.parametrize("case", TOLD["encoded"], ids=lambda case: f"v{case['version']}")
def test_assignments_are_java_s(case: dict[str, Any]) -> None:
    said, version = TOLD["input"], case["version"]
    told = StreamsAssignmentInfo(
        tuple(map(task, said["active"])),
        {task(name): tuple(TopicPartition(*place) for place in where) for name, where in said["standby"].items()},
        by_host(said["partitions_by_host"]) if version >= 2 else {},
        by_host(said["standby_partitions_by_host"]) if version >= 6 else {},
        said["err_code"] if version >= 4 else 0,
        said["next_rebalance_ms"] if version >= 7 else NO_REBALANCE,
        version,
        said["commonly_supported_version"] if version >= 3 else -1,
    )
    assert encode_streams_assignment(told) == bytes.fromhex(case["hex"])
    assert decode_streams_assignment(bytes.fromhex(case["hex"])) == told


@given(
    st.builds(
        StreamsSubscriptionInfo,
        st.uuids(),
        st.dictionaries(named, int64s, max_size=4),
        st.dictionaries(texts, texts, max_size=3),
        texts,
        st.integers(-128, 127),
        int32s,
        st.sampled_from([10, 11]),
    )
)
def test_subscriptions_round_trip(info: StreamsSubscriptionInfo) -> None:
    expected = info if info.version >= 11 else replace(info, tags={})
    assert decode_streams(encode_streams(info)) == expected


@given(
    st.builds(
        StreamsAssignmentInfo,
        st.lists(named, max_size=4).map(tuple),
        st.dictionaries(named, places, max_size=3),
        hosts,
        hosts,
        int32s,
        int64s,
        st.sampled_from([10, 11]),
    )
)
def test_assignments_round_trip(told: StreamsAssignmentInfo) -> None:
    assert decode_streams_assignment(encode_streams_assignment(told)) == told


def test_names_are_written_as_java_writes_them() -> None:
    for name, written in (("\0", "c080"), ("ä", "c3a4"), ("😀", "eda0bdedb880")):
        told = StreamsAssignmentInfo((), {TaskId(0, 0): (TopicPartition(name, 1),)}, version=1, common=-1)
        data = encode_streams_assignment(told)
        assert data.hex().endswith(f"{len(written) // 2:04x}{written}00000001")
        assert decode_streams_assignment(data) == told


def test_what_a_version_has_no_room_for_is_refused() -> None:
    topology = {TaskId(0, 0, "named"): 5}
    for version in (6, 9):
        with pytest.raises(WireError, match="no room for the name of a topology"):
            encode_streams(StreamsSubscriptionInfo(task_offset_sums=topology, version=version))
    with pytest.raises(WireError, match="no room for the name of a topology"):
        encode_streams_assignment(StreamsAssignmentInfo(tuple(topology), version=9))
    with pytest.raises(WireError, match="expected HOST:PORT"):
        encode_streams_assignment(StreamsAssignmentInfo(partitions_by_host={"h": ()}))
    for version in (0, -1):
        with pytest.raises(WireError, match=f"version {version}"):
            encode_streams(StreamsSubscriptionInfo(version=version))
        with pytest.raises(WireError, match=f"version {version}: expected 1 or more"):
            decode_streams(version.to_bytes(4, "big", signed=True) + bytes(40))


@pytest.mark.parametrize("version", [0, 12])
def test_an_assignment_of_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(WireError, match=f"version {version}: expected 1 to 11"):
        encode_streams_assignment(StreamsAssignmentInfo(version=version))
    with pytest.raises(WireError, match=f"version {version}: expected 1 to 11"):
        decode_streams_assignment(version.to_bytes(4, "big") + bytes(80))


def test_many_tasks_without_names_are_read_from_few_bytes() -> None:
    told = StreamsAssignmentInfo(tuple(TaskId(0, p) for p in range(50)), version=1)
    assert decode_streams_assignment(encode_streams_assignment(told)).active == told.active


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


@given(st.binary(max_size=80) | st.builds(lambda n, rest: bytes((0, 0, 0, n)) + rest, st.integers(1, 11), st.binary()))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_streams, decode_streams_assignment):
        with suppress(WireError):
            decode(data)


@pytest.mark.parametrize("cases", [INFO["encoded"], TOLD["encoded"]], ids=["subscriptions", "assignments"])
def test_mutations_are_read_or_refused(cases: list[dict[str, Any]]) -> None:
    decode: Any = decode_streams if cases is INFO["encoded"] else decode_streams_assignment
    dice = random.Random(708)
    for case in cases:
        whole = bytes.fromhex(case["hex"])
        for cut in range(len(whole)):
            with pytest.raises(WireError):
                decode(whole[:cut])
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(dice.randrange(1, 4)):
                data[dice.randrange(len(data))] = dice.choice([0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            with suppress(WireError):
                decode(bytes(data))
