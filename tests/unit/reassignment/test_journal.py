"""The plan file of a reassignment, and what the command line says of it."""

from __future__ import annotations

import io
import json
import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console
from rich.progress import Progress as Display

from rackassign.cli.app import run
from rackassign.cli.commands import reassign as cli_repair
from rackassign.cli.terminal import ProgressDisplay, stop_requested
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.reassignment import Journal, ReassignmentRequest, ReplicaMove, operations
from rackassign.reassignment.journal import archive, begin, open_exclusive, read, write
from rackassign.reassignment.partition_execution import PartitionStatus
from rackassign.reassignment.throttle import LEADING, SavedConfigs
from tests.helpers.json_schemas import parsed


def place(number: int) -> TopicPartition:
    return TopicPartition("t", number)


MOVES = {
    place(0): ReplicaMove((1, 2, 3), (1, 2, 4)),
    place(1): ReplicaMove((1, 2, 3), (5, 6, 4)),
    place(2): ReplicaMove((1, 2), (2, 1, 3)),
    place(3): ReplicaMove((3, 2, 1), (3,)),
    place(4): ReplicaMove((4, 5, 6), (6, 5, 4)),
}
IN_SYNC = PartitionStatus((1, 2), frozenset({1, 2}), 1)


def test_a_journal_reads_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(
        "c",
        ReassignmentRequest(
            ("t",), 3, frozenset({5}), rebalance=True, group="g", rules={"leaders": "rack", "weights": {"1": 2}}
        ),
        {place(0): ReplicaMove((1, 2), (2, 3), ((1, 3),))},
        {place(1): (1, -1)},
        "begun",
        SavedConfigs({RATES[0]: "1"}, {"t": {LEADING: "0:1"}}),
    )
    write(tmp_path / "j", journal)
    assert read(tmp_path / "j") == journal


def test_lists_as_they_were_are_not_written_over(tmp_path: Path) -> None:
    file, later = tmp_path / "plan.json", Journal("c", moves={place(0): ReplicaMove((1,), (2,))})
    assert begin(file, Journal("c", moves=MOVES)) is None
    assert begin(file, Journal("c", moves=MOVES, phase="applied")) is None
    assert begin(file, later) == tmp_path / "plan.1.json"
    assert read(tmp_path / "plan.1.json").moves == MOVES
    write(file, replace(later, phase="begun"))
    with pytest.raises(ConfigError, match="is a plan in progress"):
        begin(file, later)
    with open_exclusive(file), pytest.raises(ConfigError, match="another process is using"), open_exclusive(file):
        pass


GOOD: dict[str, Any] = {
    "format": "rackassign-repair/1",
    "cluster": "c",
    "phase": "planned",
    "wish": None,
    "moves": {"t": {"0": {"before": [1], "after": [2]}}},
    "waiting": {},
    "throttled": None,
}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"format": "rackassign-repair/2"}, r'format: expected "rackassign-repair/1", got "rackassign-repair/2"'),
        ({"phase": "over"}, 'phase: expected planned, begun, .*, got "over"'),
        ({"cluster": 7}, "expected text, got 7"),
        ({"wish": {"group": 5}}, "group"),
        ({"wish": {"no": 1}}, "no"),
        ({"throttled": 5}, "throttled: expected an object, got 5"),
        ({"throttled": {"brokers": {}, "topics": {"t": 5}}}, r"throttled\.topics\.t: expected an object, got 5"),
        ({"throttled": {"brokers": {}}}, 'throttled: the field "topics" is missing'),
        ({"more": 1}, "more: unknown field; known are cluster, format"),
        ({"moves": []}, "moves: expected an object, got an array of 0"),
        ({"moves": {"t": {"0": {"before": [1]}}}}, r'moves\.t\.0: the field "after" is missing'),
        ({"moves": {"t": {"0": {"before": [1], "after": [2], "then": []}}}}, r"moves\.t\.0\.then: unknown field"),
        ({"moves": {"t": {"0": {"before": 1, "after": [2]}}}}, r"moves\.t\.0\.before: expected an array, got 1"),
        (
            {"moves": {"t": {"0": {"before": [[1]], "after": [2]}}}},
            r"moves\.t\.0\.before: .* is not a list of replicas",
        ),
        (
            {"moves": {"t": {"0": {"before": [1], "after": [2]}, "00": {"before": [1], "after": [2]}}}},
            "the partition is listed twice",
        ),
        ({"wish": {"topics": "t"}}, "wish.topics: expected an array"),
        ({"wish": {"rf": "3"}}, 'wish.rf: expected an integer, got "3"'),
        ({"wish": []}, "wish: expected an object, got an array of 0"),
        ({"throttled": {"brokers": {"rate": 5}, "topics": {}}}, "expected text, got 5"),
        ({"moves": {"t": {"0": {"before": [1], "after": [2**40]}}}}, "is not a list of replicas"),
        ({"moves": {"t": {"0": {"before": [1], "after": [-1]}}}}, "is not a list of replicas"),
        ({"moves": {"t": {"-1": {"before": [1], "after": [2]}}}}, "invalid partition"),
        ({"moves": {"\ud800": {"0": {"before": [1], "after": [2]}}}}, "invalid partition"),
        ({"moves": {"t": {"0": {"before": [], "after": [2]}}}}, "is not a list of replicas"),
    ],
)
def test_a_plan_that_somebody_has_spoilt_is_refused(tmp_path: Path, wrong: dict[str, Any], problem: str) -> None:
    (tmp_path / "j").write_text(json.dumps(GOOD))
    assert read(tmp_path / "j").moves == {place(0): ReplicaMove((1,), (2,))}
    (tmp_path / "j").write_text(json.dumps({**GOOD, **wrong}))
    with pytest.raises(ConfigError, match=problem) as caught:
        read(tmp_path / "j")
    assert "\n" not in str(caught.value)


def test_a_plan_says_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "j").write_text(json.dumps(GOOD).replace('"phase":', '"phase": "begun", "phase":'))
    with pytest.raises(ConfigError, match="phase"):
        read(tmp_path / "j")


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[" * 100_000])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "j").write_text(text)
    with pytest.raises(ConfigError, match="is not a plan file of rackassign"):
        read(tmp_path / "j")


def test_a_plan_that_nobody_wants_any_more_is_put_by(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert archive(file) is None
    write(file, Journal("c", moves=MOVES))
    assert archive(file) == tmp_path / "plan.1.json"
    assert not file.exists()
    write(file, Journal("c", moves=MOVES, phase="applied"))
    assert archive(file) is None


def test_a_repair_that_goes_on_still_knows_the_first_lists() -> None:
    first = Journal(
        "c", moves={place(0): ReplicaMove((1, 2), (1, 3)), place(1): ReplicaMove((1,), (2,))}, phase="applied"
    )
    later = first.joined(Journal("c", moves={place(0): ReplicaMove((1, 3), (1, 4)), place(2): ReplicaMove((5,), (6,))}))
    assert later.moves == {
        place(0): ReplicaMove((1, 2), (1, 4), ((1, 3),)),
        place(1): ReplicaMove((1,), (2,)),
        place(2): ReplicaMove((5,), (6,)),
    }
    assert later.phase == "begun"


def test_what_is_abandoned_is_left_as_it_is_and_its_throttle_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clusters, seen = {"c": "c"}, {tp: replace(IN_SYNC, replicas=move.before) for tp, move in MOVES.items()}
    seen[place(2)] = replace(IN_SYNC, replicas=(3, 6))
    stage = Mock(now=time.monotonic)
    stage.describe.return_value, stage.serving_brokers.return_value = seen, frozenset()
    monkeypatch.setattr(operations, "ReassignmentCluster", lambda _: stage)
    monkeypatch.setattr(operations, "cluster_id", lambda _: clusters["c"])
    monkeypatch.setattr(cli_repair, "admin_client", lambda *_: nullcontext())
    file = tmp_path / "rackassign-reassignment.json"
    write(file, Journal("c", moves=MOVES, phase="begun", throttled=SavedConfigs({}, {"t": {}})))
    assert run(["reassign", "status", "--bootstrap-server", "b:1"]) == 1
    said = capsys.readouterr().out
    assert "1 with replicas that the plan does not know: changed by another tool or user: t-2 (3, 6)" in said
    assert "the throttle is still set" in said
    assert "`reassign abandon` leaves all as it is" in said
    clusters["c"] = "another"
    for command in ("status", "abandon", "apply", "rollback"):
        assert run(["reassign", command, "--bootstrap-server", "b:1"]) == 2
        assert capsys.readouterr().err == 'rackassign: plan: it is for cluster "c", but this is "another"\n'
    clusters["c"] = "c"
    assert run(["reassign", "abandon", "--bootstrap-server", "b:1", "--output", "json"]) == 0
    told = parsed("reassign abandon", capsys.readouterr().out)
    assert (told["phase"], told["throttled"]) == ("abandoned", False)
    assert told["changed-by-others"] == {"t": {"2": [3, 6]}}
    assert sorted(told["as-before"]["t"]) == ["0", "1", "3", "4"]
    stage.alter_cluster_configs.assert_called_once_with(dict.fromkeys(RATES))
    stage.alter_topic_configs.assert_called_once_with({"t": dict.fromkeys(THROTTLED)})
    assert run(["reassign", "status", "--bootstrap-server", "b:1"]) == 0
    for command in ("apply", "rollback", "abandon"):
        capsys.readouterr()
        assert run(["reassign", command, "--bootstrap-server", "b:1"]) == 2
        assert "abandoned" in capsys.readouterr().err
    # It alone knows the lists as they were.
    assert begin(file, Journal("c", moves=MOVES)) == tmp_path / "rackassign-reassignment.1.json"


def test_a_second_signal_tells_what_is_done_and_a_third_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    with stop_requested("lists are being put back") as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert not capfd.readouterr().err
        signal.raise_signal(signal.SIGTERM)
        assert capfd.readouterr().err == "rackassign: lists are being put back; once more ends it at once\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_ends_it_in_the_middle_is_told_what_that_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), cli_repair.explain_interruption(Path("p.json")):
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for words in (
        "ended in the middle",
        "`reassign status --plan-file p.json`",
        "`reassign rollback --plan-file p.json` goes back",
    ):
        assert words in said


def test_without_a_terminal_it_is_said_now_and_then_how_far_it_is() -> None:
    out, now = io.StringIO(), [0.0]
    with Display(console=Console(file=out), disable=True) as display:
        steps = ProgressDisplay(display, lambda: now[0])
        for at in range(100):
            now[0] = float(at)
            steps.copied("Reassigning", 1, 9, 2_000_000, 5_000_000)
        steps.copied("Reassigning", 9, 9, 0, 0)
    assert out.getvalue().splitlines() == [
        "Reassigning",
        *["Reassigning: 1 of 9, 2 of 5 MB"] * 3,
        "Reassigning: 9 of 9",
    ]


def test_without_a_terminal_a_download_is_no_minute_of_silence() -> None:
    out, now = io.StringIO(), [0.0]
    with Display(console=Console(file=out), disable=True) as display:
        steps = ProgressDisplay(display, lambda: now[0])
        for at in range(0, 61, 20):
            now[0] = float(at)
            steps.show_step("Fetching", at * 1_000_000, 60_000_000)
    assert out.getvalue().splitlines() == ["Fetching", "Fetching: 40 of 60 MB"]


@pytest.mark.parametrize("text", ["0", "0M", "-1", "1.5M", "M", "5T", "9" * 5000])
def test_a_throttle_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="throttle: expected bytes a second, as 50M, got"):
        cli_repair.rate(text)
