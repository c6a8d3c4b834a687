"""What Kafka Streams puts into user data: Java's bytes in every version; any others give a value or one clear error."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import WireError
from rackassign.model import TopicPartition
from rackassign.wire.streams import (
    StreamsAssignmentInfo,
    StreamsSubscriptionInfo,
    TaskId,
    decode_streams,
    decode_streams_assignment,
    encode_streams,
    encode_streams_assignment,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "standby_vectors.json").read_text("utf-8"))
INFO, TOLD = VECTORS["subscription_info"], VECTORS["assignment_info"]

int32s = st.integers(-(2**31), 2**31 - 1)
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
