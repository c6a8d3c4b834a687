"""Mode `kafka` against what Kafka's own classes answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.strategies import client_tag_aware
from rackassign.strategies.client_tag_aware import Clients, balance, place, preserves_diversity, preserves_tags
from rackassign.strategies.standby import validate_client_tags

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "standby_vectors.json").read_text("utf-8"))
SPREAD = [(case, order) for case in VECTORS["tag_aware_standby"] for order in case["expected"]]


class Numbered:
    """A case as numbers: clients by id, tasks by name."""

    def __init__(self, case: dict[str, Any], tasks: list[str]) -> None:
        self.ids = sorted(case["clients"], key=int)
        self.tasks = sorted(tasks, key=lambda name: tuple(map(int, name.split("_"))))
        self.number = {name: i for i, name in enumerate(self.tasks)}
        said = [case["clients"][each] for each in self.ids]
        # What runs and keeps no state counts as load, and has no copies: it is numbered behind.
        others = sorted({name for each in said for name in each["active"]} - set(tasks))
        every = self.number | {name: len(tasks) + i for i, name in enumerate(others)}
        self.clients = Clients(
            tuple(each["capacity"] for each in said),
            tuple(each["tags"] for each in said),
            tuple(frozenset(every[name] for name in each["active"]) for each in said),
        )

    def order(self, names: list[str]) -> list[int]:
        return [self.number[name] for name in names]

    def by_task(self, holders: list[list[int]]) -> dict[str, list[int]]:
        found = {name: sorted(int(self.ids[client]) for client in holders[i]) for name, i in self.number.items()}
        return {name: who for name, who in found.items() if who}

    def by_client(self, holders: list[list[int]]) -> dict[str, list[str]]:
        return {
            client: [name for name, i in self.number.items() if number in holders[i]]
            for number, client in enumerate(self.ids)
        }


@pytest.mark.parametrize(("case", "order"), SPREAD, ids=lambda each: each if isinstance(each, str) else each["name"])
def test_standbys_are_java_s(case: dict[str, Any], order: str) -> None:
    expected = case["expected"][order]
    told = Numbered(case, case["stateful_tasks"])
    holders = place(
        told.clients, told.order(expected["task_order"]), case["num_standby"], case["rack_aware_assignment_tags"]
    )
    assert told.by_task(holders) == {name: who for name, who in expected["standby_by_task"].items() if who}
    assert told.by_client(holders) == expected["standby_by_client"]
    for name, allowed in (case["accept_by_task"] or {}).items():
        assert told.by_task(holders)[name] in allowed


@pytest.mark.parametrize("case", VECTORS["default_standby"], ids=lambda case: case["name"])
def test_without_tags_the_least_loaded_are_taken(case: dict[str, Any]) -> None:
    told = Numbered(case, case["stateful_tasks"])
    holders = place(told.clients, told.order(case["task_order"]), case["num_standby"], [])
    assert told.by_client(holders) == case["expected_standby_by_client"]


@pytest.mark.parametrize("case", VECTORS["high_availability"], ids=lambda case: case["name"])
def test_standbys_of_a_whole_run_are_java_s(case: dict[str, Any]) -> None:
    for client, told in case["expected"].items():
        case["clients"][client]["active"] = told["active"]
    told = Numbered(case, case["stateful_tasks"])
    placed = place(told.clients, range(len(told.tasks)), case["num_standby"], case["rack_aware_assignment_tags"])
    by_client = told.by_client(balance(told.clients, placed))
    assert by_client == {client: said["standby"] for client, said in case["expected"].items()}


@pytest.mark.parametrize("case", VECTORS["task_movement"], ids=lambda case: case["name"])
def test_a_standby_moves_where_java_lets_it(case: dict[str, Any]) -> None:
    clients = case["clients"]
    source, target = clients[str(case["move_from"])], clients[str(case["move_to"])]
    holders = [each for each in clients.values() if case["task"] in (*each["active"], *each["standby"])]
    tags = [each["tags"] for each in holders]
    assert preserves_tags(source["tags"], target["tags"]) == case["allowed_balance_move"]
    assert preserves_diversity(tags, holders.index(source), target["tags"]) == case["allowed_task_move"]


@pytest.mark.parametrize("case", VECTORS["client_tag_config"], ids=lambda case: case["name"])
def test_tags_are_allowed_and_refused_with_java_s_words(case: dict[str, Any]) -> None:
    if case["ok"]:
        validate_client_tags(case["client_tags"], case["rack_aware_assignment_tags"])
        return
    with pytest.raises(ConfigError) as refused:
        validate_client_tags(case["client_tags"], case["rack_aware_assignment_tags"])
    assert str(refused.value) == case.get("message", str(refused.value))
    assert case.get("message_contains", "") in str(refused.value)


def test_lengths_are_counted_as_java_counts_them() -> None:
    validate_client_tags({"x": "😀" * 15}, [])
    with pytest.raises(ConfigError, match="Tag value exceeds maximum length of 30"):
        validate_client_tags({"x": "😀" * 16}, [])


def test_no_standbys_are_none() -> None:
    clients = Clients((1, 1), ({}, {}), (frozenset({0}), frozenset()))
    assert place(clients, [0], 0, []) == [[]]
    assert place(clients, [0], 5, ["zone"]) == [[1]]


def test_clients_with_even_loads_are_not_compared_two_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    evens = client_tag_aware._evens

    def noted(board: Any, source: int, target: int) -> bool:
        compared.append((source, target))
        return evens(board, source, target)

    monkeypatch.setattr(client_tag_aware, "_evens", noted)
    count = 300
    clients = Clients((1,) * count, ({},) * count, tuple(frozenset({task}) for task in range(count)))
    placed = place(clients, range(count), 1, ())
    assert balance(clients, placed) == placed
    assert len(compared) <= 2 * count
