"""Sizes of state in the table and the JSON of `state describe`."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rackassign.cli.app import run
from rackassign.cli.commands.state import StateSizes, show_state, state_as_json
from rackassign.model import TopicPartition
from rackassign.monitoring import GroupState, MemberDescription, PartitionState, StateCopy
from rackassign.stateful.local_files import LocalFile
from tests.helpers.builders import group

LOGS = [TopicPartition("g-t-changelog", i) for i in range(3)]
MEMBER = MemberDescription("m", "client", "host")


def state(partitions: int = 2) -> GroupState:
    rows = tuple(
        PartitionState(TopicPartition("t", i), LOGS[i], MEMBER, (StateCopy(MEMBER, 3),)) for i in range(partitions)
    )
    return GroupState(group(MEMBER, name="g"), rows, {"m": {}})


def local_file(topic: str, partition: int, size: int, changelog_id: str = "id") -> LocalFile:
    name = f"{topic}-{partition}@{changelog_id}.sqlite"
    return LocalFile(name, topic, partition, changelog_id, {name: size, f"{name}-wal": 1}, 0)


def printed(found: GroupState, sizes: StateSizes) -> str:
    out = StringIO()
    show_state(found, sizes, Console(file=out, width=200, highlight=False, markup=False))
    return out.getvalue()


FILES = {
    "/a": (local_file("t", 0, 1_999), local_file("t", 0, 2_999, "former"), local_file("u", 0, 4_999)),
    "/b": (local_file("t", 9, 99),),
}


def test_copies_have_their_positions_and_a_size_that_is_unknown_is_a_question_mark() -> None:
    text = printed(state(), StateSizes({LOGS[0]: 5_000}, {LOGS[0]: 1_500_000}))
    assert "copies (position at the last rebalance)" in text
    assert "copies have read on since" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert rows == [
        ["t-0", "client on host", "client on host (3)", "1.5 MB"],
        ["t-1", "client on host", "client on host (3)", "?"],
    ]


def test_local_files_are_shown_with_their_partitions_and_the_others_below() -> None:
    text = printed(state(), StateSizes({}, {}, FILES))
    assert "│ /a: 2 kB " in text
    assert "│ /a: 3 kB " in text
    assert "/a: 3 local files, 10 kB\n" in text
    assert "/b: 1 local file, 100 B\n" in text
    assert "2 local files, 5.1 kB, of partitions that the group does not have now" in text


def test_the_json_has_the_sizes_and_the_files() -> None:
    found: Any = state_as_json(state(), StateSizes({}, {LOGS[1]: 7}, FILES))
    assert [row["changelog_bytes"] for row in found["partitions"]] == [None, 7]
    first, second = (row["local_files"] for row in found["partitions"])
    shared = {"state_dir": "/a", "changelog_id": "id"}
    assert first == [
        {**shared, "file": "t-0@id.sqlite", "bytes": 2000},
        {**shared, "file": "t-0@former.sqlite", "bytes": 3000, "changelog_id": "former"},
    ]
    assert second == []
    assert [(row["state_dir"], row["file"]) for row in found["other_local_files"]] == [
        ("/a", "u-0@id.sqlite"),
        ("/b", "t-9@id.sqlite"),
    ]


def test_a_directory_of_others_is_refused_before_kafka_is_connected_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["state", "describe", "--bootstrap-server", "localhost:1", "--group", "g", "--state-dir", str(tmp_path)]
    assert run(words) == 2
    assert capsys.readouterr().err == (
        f"rackassign: state-dir: {tmp_path} is not the state_dir of a StatefulConsumer: it has no file 'lock'\n"
    )
