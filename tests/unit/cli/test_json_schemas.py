"""The published schemas: there is one for each command that writes JSON, and they describe what is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from rackassign import scenario
from rackassign.errors import InputError
from rackassign.fleet import schema as fleet_schema
from rackassign.model import TopicPartition
from rackassign.monitoring.live_groups import RackMap
from rackassign.placement import state_file
from rackassign.placement.layout import Layout
from rackassign.placement.state_file import PlacementState
from rackassign.reassignment import Journal, ReassignmentRequest, ReplicaMove, journal
from rackassign.reassignment.throttle import SavedConfigs
from tests.helpers.json_schemas import FOLDER, OF_COMMAND, check, schema
from tests.unit.cli.conftest import SCENARIO
from tools.reference import walk_commands

PAGE = (FOLDER.parent / "json-formats.md").read_text("utf-8")
NAMES = sorted(file.stem for file in FOLDER.iterdir())
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_and_the_page_has_it(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert f"](schemas/{name}.json)" in PAGE


def test_each_command_that_writes_json_has_a_schema_and_no_other() -> None:
    writing = {
        " ".join(path[1:])
        for path, command, _ in walk_commands()
        if any("--output" in parameter.opts for parameter in command.params)
    }
    assert writing == OF_COMMAND.keys()
    assert [name for name in writing if f"`{name}`" not in PAGE] == []


def test_what_is_not_documented_is_found() -> None:
    good = {"rack": "a", "changed": [1], "running": []}
    check("cluster-rack", good)
    for bad in ({**good, "more": 1}, {"rack": "a", "changed": [1]}, {**good, "running": ["1"]}):
        with pytest.raises(ValidationError):
            check("cluster-rack", bad)
    # A later version may write more: the published schema accepts that.
    Draft202012Validator(schema("cluster-rack")).validate({**good, "more": 1})


def test_the_plan_file_is_what_its_schema_documents(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    bare = Journal("c", None, {T0: ReplicaMove((1,), (2,))})
    full = Journal(
        "c",
        ReassignmentRequest(("t",), 3, frozenset({5}), rebalance=True, group="g", rules={"leaders": "rack"}),
        {T0: ReplicaMove((1, 2), (2, 3), ((1, 3),))},
        {T1: (1, -1)},
        "begun",
        SavedConfigs(
            {"leader.replication.throttled.rate": "1"}, {"t": {"leader.replication.throttled.replicas": "0:1"}}
        ),
    )
    for each in (bare, full):
        journal.write(file, each)
        check("plan-file", json.loads(file.read_text("utf-8")))


def test_the_state_file_is_what_its_schema_documents(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for each in (PlacementState(), PlacementState({1: "a", 2: None}, {T0: (1, -1)}, "c")):
        state_file.write(file, each)
        check("state-file", json.loads(file.read_text("utf-8")))


NO_LAYOUTS = [{"brokers": []}, {"brokers": [{"id": -1}], "topics": {}}, {"brokers": [], "topics": {}, "more": 1}]
NO_RACK_MAPS = [{"racks": {}}, {"hosts": {"h": ""}}, {"hosts": []}, {"follower_fetchers": {}}]
LAYOUT = {"brokers": [{"id": 1, "rack": "a", "weight": 2.0}, {"id": 2, "fenced": True}], "topics": {"t": [[1, 2]]}}
RACKS = {"client_ids": {"x-*": "a"}, "hosts": {"h": "b"}, "subnets": {"10.0.0.0/8": "c"}, "follower_fetchers": ["x-*"]}


@pytest.mark.parametrize(
    ("name", "read", "good", "bad"),
    [
        ("scenario", scenario.read_group, SCENARIO, [{**SCENARIO, "more": 1}, {**SCENARIO, "members": {}}]),
        (
            "layout",
            Layout.read,
            LAYOUT,
            [{**LAYOUT, "more": 1}, {"brokers": []}, {"brokers": [{"id": -1}], "topics": {}}],
        ),
        ("layout", Layout.read, SCENARIO, []),
        (
            "rack-map",
            RackMap.read,
            RACKS,
            [{"racks": {}}, {"hosts": {"h": ""}}, {"hosts": []}, {"follower_fetchers": {}}],
        ),
        ("rack-map", RackMap.read, {}, []),
    ],
)
def test_what_is_read_is_what_the_schema_accepts(
    name: str, read: Callable[[Any], Any], good: dict[str, Any], bad: list[Any]
) -> None:
    published = Draft202012Validator(schema(name))
    published.validate(good)
    read(good)
    for each in bad:
        assert not published.is_valid(each)
        with pytest.raises(InputError):
            read(each)


def test_the_columns_of_fleet_snapshots_are_documented() -> None:
    sentence = PAGE.split("each group and the columns ")[1].split(".")[0]
    assert re.findall(r"`(\w+)`", sentence) == fleet_schema.SCHEMA.names
