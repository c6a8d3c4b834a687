"""The JSON doors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from rackassign import scenario
from rackassign.errors import InputError
from rackassign.model import Group, Partition, StrategyName
from rackassign.strategies import STRATEGIES, Options, plan_range
from tests.helpers.generators.groups import groups
from tests.helpers.json_schemas import check

DATA = Path(__file__).parents[1] / "data"
EXAMPLES: list[dict[str, Any]] = json.loads((DATA / "contract_examples.json").read_text())

GOOD = {
    "format": "rackassign/1",
    "brokers": [{"id": 1, "rack": "a"}, {"id": 2, "rack": None}],
    "topics": {"orders": [[1, 2], {"replicas": [2, 3], "leader": 3}]},
    "members": [
        {
            "id": "m-1",
            "rack": "a",
            "topics": ["orders"],
            "instance_id": None,
            "owned": {"orders": [0]},
            "generation": 4,
        }
    ],
    "weights": {"orders": [1.0, 2.5]},
    "costs": {"a": {"b": 1.0}},
}

MISSING = object()


def changed(path: list[Any], value: object) -> dict[str, Any]:
    """Return the good scenario with one value replaced, or taken out."""
    made: dict[str, Any] = json.loads(json.dumps(GOOD))
    at: Any = made
    for step in path[:-1]:
        at = at[step]
    if value is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "rackassign/2", "format: expected 'rackassign/1', got \"rackassign/2\""),
        (["format"], MISSING, "the key 'format' is missing"),
        (
            ["topicz"],
            {},
            'unknown key "topicz"; known are brokers, copartition, costs, format, members, name, topics, weights',
        ),
        (["brokers"], {}, "brokers: expected an array, got an object of 0"),
        (["brokers", 1, "id"], 1, "brokers[1].id: broker 1 is listed twice"),
        (["brokers", 1, "id"], MISSING, "brokers[1]: the key 'id' is missing"),
        (["brokers", 0, "id"], -1, "brokers[0].id: expected 0 or more, got -1"),
        (["brokers", 0, "id"], 1.5, "brokers[0].id: expected an integer, got 1.5"),
        (["brokers", 0, "fenced"], "no", 'brokers[0].fenced: expected true or false, got "no"'),
        (["topics"], [], "topics: expected an object, got an array of 0"),
        (["topics", "orders"], None, "topics.orders: expected an array, got null"),
        (["topics", "orders", 0], 7, "topics.orders[0]: expected an array of broker ids or an object, got 7"),
        (["topics", "orders", 0, 1], "2", 'topics.orders[0].replicas[1]: expected an integer, got "2"'),
        (["topics", "orders", 1, "leader"], -2, "topics.orders[1].leader: expected 0 or more, got -2"),
        (["topics", "orders", 1, "isr"], [], 'topics.orders[1]: unknown key "isr"; known are leader, replicas'),
        (["members", 0, "rack"], 7, "members[0].rack: expected a string, got 7"),
        (["members", 0, "id"], "", "members[0].id: expected a member id, got an empty string"),
        (["members", 0, "topics"], "orders", 'members[0].topics: expected an array, got "orders"'),
        (["members", 0, "topics", 0], 1, "members[0].topics[0]: expected a string, got 1"),
        (["members", 0, "owned", "orders"], [0, 0], "members[0].owned.orders[1]: partition 0 is listed twice"),
        (["members", 0, "owned", "orders"], [-1], "members[0].owned.orders[0]: expected 0 or more, got -1"),
        (["members", 0, "owned"], [], "members[0].owned: expected an object, got an array of 0"),
        (["members", 0, "generation"], "4", 'members[0].generation: expected an integer, got "4"'),
        (["members", 0, "tags"], {"zone": 1}, "members[0].tags.zone: expected a string, got 1"),
        (["members", 0], [], "members[0]: expected an object, got an array of 0"),
        (["weights", "orders", 1], -1, "weights.orders[1]: expected a finite number, 0 or more, got -1"),
        (["weights", "orders", 1], True, "weights.orders[1]: expected a number, got true"),
        (["costs", "a"], 1, "costs.a: expected an object, got 1"),
        (["costs", "a", "b"], "x", 'costs.a.b: expected a number, got "x"'),
        (["name"], 1, "name: expected a string, got 1"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_field(path: list[Any], value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario.read_group(changed(path, value))
    assert str(caught.value) == message


def test_a_member_listed_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r'^members\[1\].id: member "m-1" is listed twice$'):
        scenario.read_group(changed(["members"], GOOD["members"] * 2))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: there is nothing"),
        ("{", "not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        ("[1, NaN]", "not JSON: NaN is no number in JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', 'the key "c" occurs twice in one object'),
        ("[" * 100_000, "not a scenario: nested too deeply"),
        ("{} {}", "expected one JSON value, got 2"),
    ],
)
def test_what_is_no_json_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario.parse(text)
    assert str(caught.value) == message


def test_an_absurd_number_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^not JSON: Exceeds the limit"):
        scenario.parse("9" * 5000)


def test_what_is_normal_in_a_live_cluster_is_no_error() -> None:
    normal = changed(["topics", "orders", 0], [1, 1, 77])
    normal["members"][0] |= {"rack": "", "topics": ["orders", "orders", "gone"], "owned": {"gone": [99]}}
    normal["members"][0]["generation"] = -1
    group = scenario.read_group(normal)
    assert group.members[0].rack is None
    assert group.members[0].generation is None
    assert plan_range(group).assignment == {"m-1": {"orders": (0, 1)}}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([2, 3], Partition((2, 3), leader=2)),
        ([], Partition((), leader=None)),
        ({"replicas": [2, 3]}, Partition((2, 3), leader=2)),
        ({"replicas": [2, 3], "leader": 3}, Partition((2, 3), leader=3)),
        ({"replicas": [2, 3], "leader": None}, Partition((2, 3), leader=None)),
        ({"replicas": [2, 3], "leader": -1}, Partition((2, 3), leader=None)),
    ],
)
def test_forms_of_a_partition(written: object, expected: Partition) -> None:
    assert scenario.read_group(changed(["topics", "orders", 0], written)).topology.topics["orders"][0] == expected


@given(groups())
def test_a_written_group_reads_back_equal_and_fits_the_schema(group: Group) -> None:
    written = json.loads(json.dumps(scenario.write_group(group)))
    check("scenario", written)
    read = scenario.read_group(written)
    assert read == group
    assert plan_range(read).assignment == plan_range(group).assignment


@given(groups())
def test_a_written_plan_fits_the_schema(group: Group) -> None:
    written = json.loads(json.dumps(scenario.write_plan(group, plan_range(group))))
    check("plan", written)
    assert written["assignment"].keys() == {member.id for member in group.members}


@pytest.mark.parametrize(
    ("example", "strategy"),
    [(example, name) for example in EXAMPLES for name in STRATEGIES if name in example],
    ids=lambda value: value if isinstance(value, str) else value["scenario"]["name"],
)
def test_contract_examples(example: dict[str, Any], strategy: StrategyName) -> None:
    group = scenario.read_group(example["scenario"])
    plan = scenario.write_plan(group, STRATEGIES[strategy](group, Options()))
    assert {key: plan[key] for key in example[strategy]} == example[strategy]
    assert plan["name"] == example["scenario"]["name"]


class Key(str):
    """A key that counts its comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Key.compared += 1
        return str.__eq__(self, str(other))

    __hash__ = str.__hash__


def test_a_key_that_occurs_twice_behind_many_others_is_found_in_linear_time() -> None:
    keys = [Key(f"k{i}") for i in range(1000)]
    pairs: list[tuple[str, Any]] = [(key, 1) for key in [*keys, Key("k999")]]
    with pytest.raises(InputError, match='the key "k999" occurs twice'):
        scenario._object(pairs)
    assert Key.compared < 10 * len(keys)
