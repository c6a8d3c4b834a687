"""Placers do what Kafka's own classes do, draw by draw, and are found by name."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError, RackassignError
from rackassign.model import Broker
from rackassign.placement.kafka_placers import (
    BrokerRing,
    JavaRandom,
    KafkaPlacer,
    SeededJavaRandom,
    StripedPlacer,
    assign_replicas,
    filter_racks,
    rack_alternated,
)
from rackassign.placement.placer import (
    BUILT_IN,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    ReplicaPlacementError,
    ReplicaPlacer,
    load_placer,
    placer_names,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "placement_vectors.json").read_text())
ERRORS: Mapping[str, type[RackassignError]] = {
    "InvalidPartitionsException": InvalidPartitionsError,
    "InvalidReplicationFactorException": InvalidReplicationFactorError,
    # KIP-660 maps it so.
    "AdminOperationException": ReplicaPlacementError,
}


def named(section: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", VECTORS[section], ids=lambda vector: str(vector.get("name", "")))


class MockRandom(JavaRandom):
    """The generator of Kafka's tests of its placer."""

    def __init__(self, state: int) -> None:
        self._state = state

    def next_bits(self, bits: int) -> int:
        self._state = (self._state * 2862933555777941757 + 3037000493) % 2**64
        drawn = (self._state >> (64 - bits)) % 2**32
        return drawn - 2**32 if drawn >= 2**31 else drawn


def brokers_of(vector: Mapping[str, Any]) -> list[Broker]:
    return [Broker(broker["id"], broker["rack"], broker.get("fenced", False)) for broker in vector["brokers"]]


def test_the_generator_of_the_tests_is_theirs() -> None:
    wanted = VECTORS["mock_random"]
    chance = MockRandom(wanted["state"])
    assert [chance.next_int(bound) for bound in wanted["next_int_bounds"]] == wanted["values"]


def test_a_seed_gives_what_it_gives_in_java() -> None:
    # new Random(42): nextInt(10) five times, nextInt(1 << 20), and a bound that makes it draw again.
    chance = SeededJavaRandom(42)
    assert [chance.next_int(10) for _ in range(5)] == [0, 3, 8, 4, 0]
    assert SeededJavaRandom(0).next_bits(32) == -1155484576
    again = [SeededJavaRandom(seed).next_int(2**30 + 1) for seed in range(50)]
    assert all(0 <= number <= 2**30 for number in again)


@named("rack_alternated_list")
def test_the_list_alternates_racks(vector: Any) -> None:
    assert rack_alternated({int(broker): rack for broker, rack in vector["racks"].items()}) == vector["expected"]


@named("rack_aware_mode")
def test_modes_decide_which_racks_count(vector: Any) -> None:
    racks = {int(broker): rack for broker, rack in vector["brokers"].items()}
    if "error" in vector:
        with pytest.raises(ERRORS[vector["error"]]) as caught:
            filter_racks(racks, vector["mode"])
        assert str(caught.value) == vector["message"]
    else:
        assert filter_racks(racks, vector["mode"]) == {int(b): rack for b, rack in vector["result"].items()}


@named("admin_utils")
def test_kafka_places_as_admin_utils(vector: Any) -> None:
    racks = {broker.id: broker.rack for broker in brokers_of(vector)}

    def placed() -> dict[int, list[int]]:
        return assign_replicas(
            racks,
            vector["num_partitions"],
            vector["replication_factor"],
            fixed_start_index=vector["fixed_start_index"],
            start_partition_id=vector["start_partition_id"],
        )

    if "error" in vector:
        with pytest.raises(ERRORS[vector["error"]]) as caught:
            placed()
        assert str(caught.value) == vector["message"]
        return
    lists = placed()
    if "assignment" in vector:
        assert lists == {int(partition): replicas for partition, replicas in vector["assignment"].items()}
    check_properties(vector, racks, lists)


def check_properties(vector: Any, racks: Mapping[int, str | None], lists: Mapping[int, list[int]]) -> None:
    wanted = vector.get("properties", {})
    leaders = Counter(replicas[0] for replicas in lists.values())
    replicas_of = Counter(broker for replicas in lists.values() for broker in replicas)
    if "leader_counts" in vector:
        assert leaders == Counter({int(b): count for b, count in vector["leader_counts"].items()})
    if "replica_counts" in vector:
        assert replicas_of == Counter({int(b): count for b, count in vector["replica_counts"].items()})
    if wanted.get("even_leaders"):
        assert set(leaders.values()) == {len(lists) // len(racks)}
    if wanted.get("even_replicas"):
        assert len(set(replicas_of.values())) == 1
    if wanted.get("rack_aware"):
        assert all(len({racks[broker] for broker in replicas}) == len(replicas) for replicas in lists.values())
    for replicas in lists.values():
        assert len(set(replicas)) == vector["replication_factor"]
        if "racks_per_partition" in wanted:
            assert len({racks[broker] for broker in replicas}) == wanted["racks_per_partition"]


def test_a_ring_gives_each_broker_once_a_round() -> None:
    ring, none = BrokerRing([0, 1, 2, 3]), BrokerRing([])
    assert [[round_, ring.next(round_)] for round_, _ in VECTORS["broker_list"]["calls"]] == VECTORS["broker_list"][
        "calls"
    ]
    assert [[round_, none.next(round_)] for round_, _ in VECTORS["broker_list"]["empty"]] == [[1, -1]]


@named("striped")
def test_striped_places_as_controllers_do(vector: Any) -> None:
    placer = StripedPlacer(MockRandom(vector["mock_random_state"]))
    arguments = (0, vector["num_partitions"], vector["replication_factor"], brokers_of(vector))
    if "error" in vector:
        with pytest.raises(ERRORS[vector["error"]]) as caught:
            placer.place(*arguments)
        assert str(caught.value) == vector["message"]
    else:
        assert placer.place(*arguments) == vector["placements"]


cases = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=9),
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(0, 5),
)


@given(cases, st.sampled_from(["kafka", "striped", "optimal"]))
def test_every_placer_uses_as_many_racks_as_it_can(case: tuple[list[str], int, int, int], name: str) -> None:
    racks, partitions, replicas, seed = case
    if replicas > len(racks):
        return
    placer = load_placer(name, {"seed": seed})
    lists = placer.place(0, partitions, replicas, [Broker(i, rack) for i, rack in enumerate(racks)])
    assert len(lists) == partitions
    for placed in lists:
        assert len(set(placed)) == replicas
        assert len({racks[broker] for broker in placed}) == min(replicas, len(set(racks)))


def test_kafka_does_not_use_fenced_brokers() -> None:
    brokers = [Broker(0, "a"), Broker(1, "b", fenced=True), Broker(2, "b")]
    assert {broker for placed in KafkaPlacer().place(0, 9, 2, brokers) for broker in placed} == {0, 2}
    with pytest.raises(InvalidReplicationFactorError, match="available brokers: 2"):
        KafkaPlacer().place(0, 9, 3, brokers)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_placers_are_found_by_name(name: str) -> None:
    assert isinstance(load_placer(name), ReplicaPlacer)


class OneBroker:
    """A placer of one's own."""

    settings: dict[str, Any]

    def configure(self, configs: dict[str, Any]) -> None:
        self.settings = configs

    def place(self, start_partition: int, num_partitions: int, num_replicas: int, brokers: Any) -> list[list[int]]:
        if num_replicas > 1:
            raise ReplicaPlacementError(f"no room for partition {start_partition}")
        return [[min(broker.id for broker in brokers)]] * num_partitions

    def close(self) -> None:
        pass


class NotOne:
    def configure(self, configs: Any) -> None:
        raise AssertionError(configs)


@pytest.mark.parametrize("joint", [":", "."])
def test_a_placer_of_ones_own_is_found_by_its_dotted_name(joint: str) -> None:
    placer = load_placer(f"{__name__}{joint}OneBroker", {"answer": 42})
    assert placer.place(0, 2, 1, [Broker(3), Broker(1)]) == [[1], [1]]
    assert vars(placer)["settings"] == {"answer": 42}


def test_a_placer_of_a_distribution_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    # A name of ours stays ours.
    (info / "entry_points.txt").write_text(
        f"[rackassign.placers]\ntheirs = {__name__}:OneBroker\nkafka = {__name__}:OneBroker\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert "theirs" in placer_names()
    assert type(load_placer("theirs")).__name__ == "OneBroker"
    assert isinstance(load_placer("kafka"), KafkaPlacer)


@pytest.mark.parametrize(
    "name",
    ["strpied", "no.such:Placer", "rackassign.placement.kafka_placers:Nobody", "", "a b", ":", ".a:B", "a..b:C"],
)
def test_an_unknown_placer_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"known are elasticsearch, .*kafka, .*optimal, .*striped, and module:Class"):
        load_placer(name)


def test_what_is_no_placer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no method place\(\)"):
        load_placer(f"{__name__}:NotOne")


@pytest.mark.parametrize(
    ("name", "configs", "words"),
    [
        ("kafka", {"rack_aware_mode": "enforced"}, "Enforced, Safe, Disabled"),
        ("kafka", {"fixed_start_index": "1"}, "fixed_start_index"),
        ("kafka", {"seed": 1.5}, "seed"),
        ("striped", {"seed": None}, "seed"),
        ("striped", {"fixed_start_index": 1}, '"fixed_start_index"; known are seed'),
        ("kafka", {"Seed": 1}, '"Seed"; known are fixed_start_index, rack_aware_mode, seed'),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, configs: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_placer(name, configs)
