"""`rackassign repair` and `rackassign leaders`, as far as they get without a cluster."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rackassign.cli.app import run
from rackassign.cli.commands import reassign as reassign_status
from rackassign.model import TopicPartition
from rackassign.reassignment import Journal, ReassignmentRequest, ReplicaMove, journal, operations
from rackassign.reassignment.journal import Phase, read_reassignment
from rackassign.reassignment.operations import PartitionState, PlanStatus
from rackassign.reassignment.throttle import SavedConfigs

MOVES = {
    TopicPartition("orders", 0): ReplicaMove((1, 2), (3, 1)),
    TopicPartition("orders", 10): ReplicaMove((2, 1), (2, 3, 1)),
    TopicPartition("clicks", 2): ReplicaMove((4,), (5,)),
}
NOBODY = ["--bootstrap-server", "127.0.0.1:1"]
"""Where no cluster is: whoever asks it ends with 3, and late."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that commands are run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kept(
    name: str = "rackassign-reassignment.json", phase: Phase = "planned", throttled: SavedConfigs | None = None
) -> bytes:
    file = Path(name)
    journal.write(
        file, Journal("some-cluster", ReassignmentRequest(("orders",)), MOVES, phase=phase, throttled=throttled)
    )
    return file.read_bytes()


def one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that has a problem of its user's own; return what it says."""
    capsys.readouterr()
    assert run(words) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith("rackassign: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("command", ["apply", "rollback"])
@pytest.mark.parametrize("rate", ["0", "0M", "-1", "1.5M", "M", "50T", "50MB", "50 M", "fast", "٣"])
def test_a_throttle_that_is_none_is_refused(
    command: str, rate: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept()
    said = one_line(["reassign", command, *NOBODY, f"--throttle={rate}"], capsys)
    assert "throttle: expected bytes a second, as 50M, got" in said
    assert (home / "rackassign-reassignment.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot read rules.json: No such file or directory"),
        (b"\xff", "rules.json is not UTF-8"),
        (b"{", "rules.json: not JSON: "),
        (b'{"min_racks": 1, "min_racks": 2}', "min_racks"),
        (b"5", "expected an object, got 5"),
        (b"null", "expected an object, got null"),
        (b"[]", "expected an object, got an array of 0"),
        (b'{"leader_rack": ["a"]}', 'unknown setting "leader_rack"; known are '),
        (b'{"leader_racks": "a"}', 'leader_racks: expected a list, got "a"'),
        (b'{"max_per_rack": 0}', "max_per_rack: expected 1 or more, got 0"),
        (b'{"min_racks": 3, "max_racks": 2}', "min_racks is 3, more than max_racks, 2"),
        (b'{"exclude": [1]}', "exclude cannot be set for a reassignment"),
        (b'{"on_shortage": "relax"}', "on_shortage cannot be set for a reassignment"),
    ],
)
@pytest.mark.usefixtures("home")
def test_rules_that_cannot_be_are_refused(text: bytes | None, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    if text is not None:
        Path("rules.json").write_bytes(text)
    assert problem in one_line(["reassign", "plan", *NOBODY, "--constraints", "rules.json"], capsys)
    assert not Path("rackassign-reassignment.json").exists()


@pytest.mark.parametrize("words", [["apply", *NOBODY], ["rollback", *NOBODY], ["export"]])
@pytest.mark.usefixtures("home")
def test_without_a_plan_it_is_said_how_to_make_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = one_line(["reassign", *words], capsys)
    assert said == "rackassign: plan file rackassign-reassignment.json does not exist; create it with `reassign plan`\n"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "rackassign-repair/9"}', '{"version": 1}'])
@pytest.mark.parametrize("words", [["plan", *NOBODY], ["apply", *NOBODY], ["rollback", *NOBODY], ["export"]])
def test_another_file_is_not_taken_for_a_plan_nor_written_over(
    words: list[str], text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "p.json").write_text(text)
    assert "p.json is not a plan file of rackassign: " in one_line(
        ["reassign", *words, "--plan-file", "p.json"], capsys
    )
    assert (home / "p.json").read_text() == text


SLOWED = SavedConfigs({}, {"orders": {}})


@pytest.mark.parametrize(("phase", "throttled"), [("begun", None), ("begun", SLOWED), ("applied", SLOWED)])
@pytest.mark.parametrize(
    ("words", "name"),
    [(["reassign", "plan"], "rackassign-reassignment.json"), (["balance-leaders"], "rackassign-leaders.json")],
)
def test_a_repair_that_is_not_over_is_not_written_over(
    words: list[str],
    name: str,
    phase: Phase,
    throttled: SavedConfigs | None,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = kept(name, phase, throttled)
    said = one_line([*words, *NOBODY], capsys)
    assert f"{name} is a plan in progress" in said
    # Without the name it might be another plan that goes on.
    assert (
        f"`reassign apply --plan-file {name}` resumes it, `reassign rollback --plan-file {name}` rolls it back" in said
    )
    assert (home / name).read_bytes() == before


def row(**fields: Any) -> dict[str, Any]:
    return {"topic": "orders", "partition": 0, "replicas": [1], **fields}


def lists(*rows: Any) -> dict[str, Any]:
    return {"version": 1, "partitions": list(rows)}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "expected an object, got an array of 0"),
        ({}, "version: expected 1, got null"),
        ({"version": "1", "partitions": []}, 'version: expected 1, got "1"'),
        ({"version": 1}, "partitions: expected an array, got null"),
        (lists(7), "partitions[0]: expected an object, got 7"),
        (lists(row(), row(topic="")), 'partitions[1].topic: expected the name of a topic, got ""'),
        (lists(row(partition=True)), "partitions[0].partition: expected 0 or more, got true"),
        (lists(row(replicas=[])), "partitions[0].replicas: expected broker IDs, got an array of 0"),
        (lists(row(replicas=[2, 2])), "partitions[0].replicas: a broker is listed twice"),
        (lists(row(), row(replicas=[2])), "partitions[1]: orders-0 is listed twice"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_is_wrong_with_lists_to_import_is_named(
    value: Any, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("given.json").write_text(json.dumps(value), "utf-8")
    assert problem in one_line(["reassign", "plan", *NOBODY, "--reassignment-json-file", "given.json"], capsys)
    assert not Path("rackassign-reassignment.json").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--topic", "t"],
        ["--replication-factor", "2"],
        ["--remove-broker", "1"],
        ["--rebalance"],
        ["--near-group", "g"],
        ["--near-producers", "metrics.txt"],
        ["--max-skew", "1"],
        ["--constraints", "rules.json"],
        ["--disable-rack-aware"],
        ["--allow-placeholders"],
    ],
)
@pytest.mark.usefixtures("home")
def test_lists_to_import_leave_nothing_to_be_wished_for(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("given.json").write_text(json.dumps(lists(row())), "utf-8")
    Path("rules.json").write_text('{"min_racks": 1}', "utf-8")
    assert words[0] in one_line(["reassign", "plan", *NOBODY, "--reassignment-json-file", "given.json", *words], capsys)


@pytest.mark.parametrize(("more", "part"), [([], 1), (["--original"], 0)])
@pytest.mark.usefixtures("home")
def test_lists_are_exported_as_they_can_be_imported(
    more: list[str], part: int, capsys: pytest.CaptureFixture[str]
) -> None:
    kept()
    assert run(["reassign", "export", *more]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(each["topic"], each["partition"]) for each in printed["partitions"]] == sorted(MOVES)
    assert read_reassignment(printed) == {place: (move.before, move.after)[part] for place, move in MOVES.items()}


@pytest.mark.parametrize(
    "words", [["reassign", "plan"], ["reassign", "apply"], ["reassign", "rollback"], ["balance-leaders"]]
)
def test_an_output_that_there_is_not_is_refused(
    words: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = one_line([*words, *NOBODY, "--output", "yaml"], capsys)
    assert said == "rackassign: output must be one of table, json, got 'yaml'\n"
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("home")
def test_leaders_cannot_be_evened_over_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    said = one_line(["balance-leaders", *NOBODY, "--balance-by", "topic"], capsys)
    assert "broker, rack, mixed" in said


PRODUCERS = ["--near-producers", "metrics.txt"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["balance-leaders", "--max-skew", "1"], "--max-skew bounds the leaders that --near-producers moves; it needs"),
        (
            ["reassign", "plan", "--max-skew", "1"],
            "--max-skew bounds the leaders that --near-producers moves; it needs",
        ),
        (["balance-leaders", "--near-group", "g"], "--near-group counts the bytes of --near-producers; it needs"),
        (["balance-leaders", "--balance-by", "rack", *PRODUCERS], "cannot be combined with --balance-by"),
        (["reassign", "plan", "--disable-rack-aware", *PRODUCERS], "--near-producers needs racks; leave out"),
        (["balance-leaders", *PRODUCERS], "metrics.txt: No such file or directory"),
        (["reassign", "plan", *PRODUCERS], "metrics.txt: No such file or directory"),
        (
            ["reassign", "plan", "--near-producers", "ftp://h/m"],
            "ftp://h/m: expected a file, or an address that begins",
        ),
        (["balance-leaders", *PRODUCERS, "--max-skew", "-1"], "--max-skew"),
    ],
)
def test_what_near_producers_cannot_do_is_refused(
    words: list[str], problem: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in one_line([*words, *NOBODY], capsys)
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("home")
def test_metrics_are_read_before_a_cluster_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("metrics.txt").write_text("up 1\n", "utf-8")
    for words in (["balance-leaders"], ["reassign", "plan"]):
        assert "has no rackassign_written_bytes_total" in one_line([*words, *NOBODY, *PRODUCERS], capsys)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_folder_is_no_plan_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = one_line(["reassign", "plan", *NOBODY, "--plan-file", name], capsys)
    assert said == f"rackassign: plan file: expected the name of a file, got the folder {name or '.'}\n"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", [["balance-leaders"], ["reassign", "plan"]])
def test_a_plan_file_whose_name_is_too_long_is_reported(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "File name too long" in one_line([*command, *NOBODY, "--plan-file", "a" * 300], capsys)


@pytest.mark.parametrize(
    ("states", "throttled", "advice"),
    [
        (("as-planned", "changed-by-others"), False, "`reassign rollback --plan-file p.json` takes back the rest, and"),
        (("as-before", "changed-by-others"), False, "`reassign apply --plan-file p.json` goes on, "),
        (("on-its-way", "changed-by-others"), False, "`reassign apply --plan-file p.json` goes on, "),
        # A run that has nothing to do removes the throttle.
        (("as-planned", "changed-by-others"), True, "`reassign apply --plan-file p.json` goes on, "),
        # A run that ended before it wrote that all is done is resumed.
        (("as-planned", "as-planned"), False, "`reassign apply --plan-file p.json` goes on, "),
    ],
)
@pytest.mark.usefixtures("home")
def test_status_advises_what_ends_a_plan(
    *,
    states: tuple[PartitionState, ...],
    throttled: bool,
    advice: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept("p.json", "begun", SavedConfigs() if throttled else None)
    found = PlanStatus(dict(zip(MOVES, states, strict=False)), dict.fromkeys(MOVES, (1, 2)), throttled)
    monkeypatch.setattr(reassign_status, "admin_client", lambda *_: nullcontext())
    monkeypatch.setattr(reassign_status, "look", lambda *_: found)
    assert run(["reassign", "status", *NOBODY, "--plan-file", "p.json"]) == 1
    assert f"not over: {advice}" in capsys.readouterr().out
    monkeypatch.setattr(operations, "abandon", lambda _admin, kept, _keep: (kept, found))
    assert run(["reassign", "abandon", *NOBODY, "--plan-file", "p.json"]) == 0
    assert "`reassign export --original --plan-file p.json` prints them" in capsys.readouterr().out
