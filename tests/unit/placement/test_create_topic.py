"""Creating topics without a cluster: what is kept in the state file.

Creating while brokers are away: KIP-409's policies, and what is kept of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rackassign.admin.alter import TopicValidation
from rackassign.cli.app import run
from rackassign.cli.commands import placement as command
from rackassign.errors import ConfigError
from rackassign.model import Broker, TopicPartition
from rackassign.placement import create_topic, state_file
from rackassign.placement.create_topic import (
    POLICIES,
    KnownBroker,
    NotEnoughBrokersError,
    Policy,
    PolicyPlacement,
    check_policy,
    place_new,
)
from rackassign.placement.state_file import PlacementState, read, update, write

ELSEWHERE = {TopicPartition("other", 0): (1, -1)}


class FakeController:
    """Plays the controller; another process keeps placeholders of its topic while this one is validated."""

    created: tuple[str, ...] = ()

    def __init__(self, _admin: object) -> None:
        pass

    def validate(
        self, _name: str, _configs: Mapping[str, str], _lists: Sequence[Sequence[int]] | None = None
    ) -> TopicValidation:
        state_file.write(Path("rackassign-state.json"), PlacementState({9: "z"}, ELSEWHERE, "c"))
        return TopicValidation(1)

    def create(self, name: str, _configs: Mapping[str, str], _lists: Sequence[Sequence[int]]) -> None:
        FakeController.created += (name,)


def test_placeholders_that_another_process_keeps_meanwhile_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(FakeController, "created", ())
    monkeypatch.setattr(command, "admin_client", lambda *_: nullcontext())
    monkeypatch.setattr(create_topic, "TopicAdmin", FakeController)
    monkeypatch.setattr(create_topic, "cluster_id", lambda _: "c")
    monkeypatch.setattr(create_topic, "list_brokers", lambda _: (Broker(1, "a"), Broker(2, "b")))
    monkeypatch.setattr(create_topic, "_observe_load", lambda *_: None)
    words = ["create-topic", "mine", "--bootstrap-server", "b:1", "--policy", "enabled", "--allow-placeholders"]
    assert run(words) == 0
    assert FakeController.created == ("mine",)
    found = state_file.read(Path("rackassign-state.json"))
    assert {tp: row for tp, row in found.plans.items() if tp.topic == "other"} == ELSEWHERE
    assert [row[-1] for tp, row in found.plans.items() if tp.topic == "mine"] == [-1]
    assert found.brokers == {1: "a", 2: "b", 9: "z"}


VECTORS = json.loads((Path(__file__).parents[2] / "data" / "placement_vectors.json").read_text("utf-8"))[
    "kip409_policy"
]
PARTITIONS = 6


def spread(brokers: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
    """Place round robin over the racks in turn; enough of a placer for what is tested here."""
    racks: dict[str | None, list[int]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker.id)
    longest = max(map(len, racks.values()), default=0)
    order = [row[i] for i in range(longest) for row in racks.values() if i < len(row)]
    return [[order[(p + k) % len(order)] for k in range(replicas)] for p in range(PARTITIONS)]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_policies_of_kip_409(vector: dict[str, Any]) -> None:
    brokers = [KnownBroker(number, rack, online) for number, rack, online in vector["brokers"]]

    def place() -> PolicyPlacement:
        return place_new(
            check_policy(vector["policy"]), spread, brokers, replicas=vector["rf"], min_isr=vector["min_isr"]
        )

    if "error" in vector:
        with pytest.raises(NotEnoughBrokersError):
            place()
        return
    placed = place()
    racks = {broker.id: broker.rack for broker in brokers}
    assert {len(row) for row in placed.to_request()} == {vector["wire_rf"]}
    assert placed.placeholders() == vector["placeholders"] * PARTITIONS
    if "offline_replicas" in vector:
        assert placed.offline == set(vector["offline_replicas"])
    for row in placed.plan:
        away = [broker for broker in row if broker in placed.offline]
        if "offline_replicas_per_partition" in vector:
            assert len(away) == vector["offline_replicas_per_partition"]
        if "online_per_partition" in vector:
            assert len(row) - len(away) == vector["online_per_partition"]
        if vector.get("one_replica_per_rack"):
            assert len({racks[broker] for broker in row}) == len(row)


BROKER = st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans(), st.booleans())


@given(st.sampled_from(POLICIES), st.lists(BROKER, max_size=7), st.integers(1, 4), st.integers(1, 5))
# A broker that was removed and one that is down.
@example("enabled", [("a", True, True), ("b", False, False), ("c", False, True)], 3, 1)
def test_a_partition_can_be_written_to_or_is_not_created(
    policy: Policy, found: list[tuple[str | None, bool, bool]], replicas: int, min_isr: int
) -> None:
    brokers = [KnownBroker(i, rack, online, registered) for i, (rack, online, registered) in enumerate(found)]
    up = {broker.id for broker in brokers if broker.online and broker.registered}
    taken = {broker.id for broker in brokers if broker.registered}
    required = max(1, min(min_isr, replicas))
    try:
        placed = place_new(policy, spread, brokers, replicas=replicas, min_isr=min_isr)
    except NotEnoughBrokersError as error:
        assert len(up) < (replicas if policy == "disabled" else required)
        refusal = str(error)
        assert ("--policy enabled allows fewer" in refusal) == (len(up) >= required)
        return
    for row in placed.plan:
        assert len(row) == len(set(row)) == replicas
        assert row[0] in up
        assert len(up.intersection(row)) >= required
        assert {broker for broker in row if broker >= 0} <= taken
        missing = sum(broker < 0 for broker in row)
        assert missing == max(0, replicas - len(taken))
        assert {broker for broker in row if broker < 0} == set(range(-missing, 0))
    assert len({len(row) for row in placed.to_request()}) == 1
    if policy != "enabled_prefer_observed" and len(up) >= replicas:
        assert placed.offline == frozenset()


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="disabled, enabled, enabled_prefer_observed"):
        check_policy("always")


def test_a_registry_keeps_brokers_and_plans_with_placeholders(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "registry.json"
    assert read(file) == PlacementState()
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    made = PlacementState().with_brokers([Broker(1, "a"), Broker(2)]).with_placeholders({one: (1, -1), two: (1, 2)})
    assert made.plans == {one: (1, -1)}
    write(file, made)
    assert read(file) == made
    later = made.with_brokers([Broker(2, "b")]).with_placeholders({one: (1, 2)}).forget(1)
    assert later == PlacementState({2: "b"})
    assert [path.name for path in file.parent.iterdir()] == ["registry.json"]


def test_a_registry_is_of_one_cluster(tmp_path: Path) -> None:
    file = tmp_path / "registry.json"
    # As it was written before clusters were told apart.
    file.write_text('{"format": "rackassign-registry/1", "brokers": {"1": "a"}, "plans": {"t": {"0": [1, -1]}}}')
    old = read(file)
    assert (old.cluster, old.brokers) == ("", {1: "a"})
    mine = (
        old.for_cluster("one")
        .with_brokers([Broker(2, "b")])
        .with_placeholders({TopicPartition("t", 1): (2, -1)})
        .forget(1)
    )
    write(file, mine)
    assert read(file) == mine.for_cluster("one") == mine
    assert read(file).cluster == "one"
    with pytest.raises(
        ConfigError, match=r'^state file: it belongs to cluster "one", but this is "two"; .* --state-file$'
    ):
        read(file).for_cluster("two")
    # One that does not tell its id is taken at the user's word.
    assert read(file).for_cluster("") == mine


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "other/1", "brokers": {}, "plans": {}}',
        '{"format": "rackassign-registry/1", "brokers": {"1": 5}, "plans": {}}',
        '{"format": "rackassign-registry/1", "brokers": {}, "plans": {"t": {"0": ["1"]}}}',
        '{"format": "rackassign-registry/1", "brokers": {}, "plans": {}, "cluster": 5}',
        "\udcff",
    ],
)
def test_a_registry_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "registry.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=str(file)):
        read(file)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(ConfigError, match="cannot write"):
        write(tmp_path / "file" / "registry.json", PlacementState())


def test_changes_of_a_registry_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "registry.json"

    def add(broker: int) -> None:
        update(file, lambda known: known.with_brokers([Broker(broker)]))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(40)))
    assert sorted(read(file).brokers) == list(range(40))
