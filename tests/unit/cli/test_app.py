"""The command line, as a user meets it: what it prints, where, and how it ends.

`rackassign plan` with input that is valid and odd.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackassign.cli import ExitCode
from rackassign.cli.app import run
from tests.helpers.json_schemas import parsed
from tests.unit.cli.conftest import SCENARIO, Cli

ASSIGNMENT = {"m1": {"t": [1]}, "m2": {"t": [0]}}
RANGE = "--strategy range, the default, has no use for"
LINE = json.dumps(SCENARIO)
TOO_MANY = "Invalid value for '--replication-factor': Input should be less than or equal to 1000"


def assignments(out: str) -> list[Any]:
    return [json.loads(line).get("assignment", json.loads(line)) for line in out.splitlines()]


def test_one_scenario_gives_one_json_plan(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "group.json"
    file.write_text(json.dumps(SCENARIO, indent=2))
    for words in (("plan", str(file)), ("plan", str(file), "--strategy", "range", "--locality", "leader")):
        code, out, err = cli(*words)
        assert (code, err) == (0, "")
        assert json.loads(out)["assignment"] == ASSIGNMENT


@pytest.mark.parametrize("command", ["plan", "simulate-placement"])
def test_a_closed_stdin_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run([command, "-"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err == "rackassign: standard input is closed\n"


def test_what_range_has_no_use_for_is_named_once(cli: Cli) -> None:
    line = LINE.replace('"members"', '"copartition": [["t", "u"]], "weights": {"t": [1, 2]}, "members"')
    code, _, err = cli("plan", given=f"{line}\n{line}\n")
    assert (code, err.count(f"{RANGE} copartition and weights of the scenario")) == (0, 1)
    assert "scenario" not in cli("plan", "--strategy", "sticky", given=LINE).err


PRETTY = json.dumps(SCENARIO, indent=2)


@pytest.mark.parametrize(
    ("words", "given", "plans"),
    [
        pytest.param(("plan",), LINE, 1, id="one line"),
        pytest.param(("plan", "-"), LINE, 1, id="stdin by its name"),
        pytest.param(("plan",), f"{LINE}\n\n{LINE}\n", 2, id="lines"),
        pytest.param(("plan",), f"{PRETTY}\n{PRETTY}\n", 2, id="values over many lines"),
    ],
)
def test_stdin_is_read(cli: Cli, words: tuple[str, ...], given: str, plans: int) -> None:
    code, out, err = cli(*words, given=given)
    assert (code, err) == (0, "")
    assert (assignments(out) if plans > 1 else [json.loads(out)["assignment"]]) == [ASSIGNMENT] * plans


@pytest.mark.parametrize("bad", ["nonsense", '{"format": "rackassign/1"}', "[]"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_bad_line_is_answered_in_its_place_and_the_rest_goes_on(cli: Cli, bad: str, place: int) -> None:
    lines = [LINE, LINE]
    lines.insert(place, bad)
    code, out, err = cli("plan", given="\n".join(lines))
    assert (code, err) == (2, "")
    answers = assignments(out)
    problem = answers.pop(place)
    assert problem["line"] == place + 1
    assert "\n" not in problem["error"]
    assert answers == [ASSIGNMENT] * 2


def test_a_line_that_is_not_utf_8_is_answered_in_its_place(cli: Cli) -> None:
    code, out, _ = cli("plan", given=LINE.encode() + b"\n\xff\n" + LINE.encode())
    assert code == 2
    assert assignments(out)[1] == {"line": 2, "error": "not UTF-8: invalid start byte at byte 0"}


CROWDED = json.dumps(SCENARIO | {"topics": {"t": [[1], [1], [1], [1]]}})


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_each_topic_is_balanced_first_if_that_is_asked_for(cli: Cli, strategy: str) -> None:
    # In total balance m1 can read all of s, and m2 all of t: that is local.
    local = json.dumps(SCENARIO | {"topics": {"s": [[1], [1]], "t": [[2], [2]]}}).replace('["t"]', '["s", "t"]')
    code, out, _ = cli("plan", "--strategy", strategy, given=local)
    assert (code, json.loads(out)["target"]) == (0, {"m1": {"s": [0, 1]}, "m2": {"t": [0, 1]}})
    code, out, _ = cli("plan", "--strategy", strategy, "--balance", "topic", given=local)
    assert code == 0
    assert [{topic: len(ids) for topic, ids in owned.items()} for owned in json.loads(out)["target"].values()] == [
        {"s": 1, "t": 1}
    ] * 2


def test_topics_are_kept_together_by_an_option_or_by_the_scenario(cli: Cli) -> None:
    apart = SCENARIO | {"topics": {"s": [[1], [2]], "t": [[2], [1]]}, "copartition": [["s", "t"]]}
    for words, given in (((), apart), (("--copartition", "t,s"), apart | {"copartition": []})):
        both = json.dumps(given).replace('"topics": ["t"]', '"topics": ["s", "t"]')
        code, out, err = cli("plan", "--strategy", "sticky", *words, given=both)
        assert (code, err) == (0, "")
        assert all(owned["s"] == owned["t"] for owned in json.loads(out)["target"].values())
    code, _, err = cli("plan", "--strategy", "sticky", given=json.dumps(apart))
    assert (code, err.count("\n")) == (0, 1)
    assert "s, t are not kept together, because no member subscribes to s\n" in err


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_skew_makes_more_local(cli: Cli, strategy: str) -> None:
    counts = []
    for skew in ("0", "1", "9"):
        code, out, _ = cli("plan", "--strategy", strategy, "--max-skew", skew, given=CROWDED)
        assert code == 0
        counts.append(json.loads(out)["partitions"]["local"])
    assert counts == [2, 3, 4]


@pytest.mark.parametrize("strategy", ["sticky", "standby"])
def test_an_explained_plan_says_why_and_what_would_help(cli: Cli, strategy: str) -> None:
    code, out, _ = cli("plan", "--strategy", strategy, "--explain", given=CROWDED)
    plan = json.loads(out)
    assert code == 0
    assert plan["not_local"] == [
        {"topic": "t", "partition": p, "member": "m2", "reason": "members-full"} for p in plan["target"]["m2"]["t"]
    ]
    skew = {"change": "max-skew", "max_skew": 1, "gain": 1, "cost_gain": 1.0}
    assert skew in plan["advice"]
    assert "not_local" not in json.loads(cli("plan", "--strategy", "sticky", given=CROWDED).out)


def test_moves_that_wait_for_a_copy_are_explained_and_are_no_gain_of_a_change(cli: Cli) -> None:
    members = [{"id": "m1", "rack": "b", "topics": ["t"], "owned": {"t": [0, 1]}}]
    members.append({"id": "m2", "rack": "a", "topics": ["t"], "owned": {"t": [2, 3]}})
    swapped = {**SCENARIO, "brokers": [{"id": 1, "rack": "a"}, {"id": 2, "rack": "b"}], "members": members}
    swapped["topics"] = {"t": [[1], [1], [2], [2]]}
    plan = parsed("plan", cli("plan", "--strategy", "standby", "--explain", given=json.dumps(swapped)).out)
    assert (plan["partitions"]["cross"], len(plan["not_local"]), plan["advice"]) == (4, 4, [])


def test_an_explained_table(cli: Cli) -> None:
    code, out, _ = cli("plan", "--strategy", "sticky", "--explain", "--output", "table", given=CROWDED)
    assert code == 0
    assert "not local, members-full: 2" in out
    assert "--max-skew 1: 1 fewer across racks" in out
    assert "one more member in rack a" in out
    assert "a replica of 2 partitions in rack b: 2 fewer across racks" in out


def test_weights_are_shown_with_their_gap(cli: Cli) -> None:
    weighted = json.dumps(json.loads(CROWDED) | {"weights": {"t": [3, 1, 1, 1]}})
    code, out, err = cli("plan", "--strategy", "sticky", "--max-skew", "1", given=f"{weighted}\n{CROWDED}")
    assert (code, err) == (2, "")
    first, second = map(json.loads, out.splitlines())
    assert first["line"] == 1
    assert first["error"].startswith("max_skew counts partitions: it cannot be used together with weights")
    assert second["partitions"]["local"] == 3
    plan = json.loads(cli("plan", "--strategy", "sticky", given=weighted).out)
    assert (plan["weight_gap"], plan["weight_loads"], plan["optimal"]) == (0, {"min": 3, "max": 3}, False)


UNLISTED = SCENARIO | {
    "topics": {"t": [[2, 9], [1, 8]]},
    "members": [
        {"id": "m1", "rack": "a", "topics": ["t", "gone"], "owned": {"t": [1], "left": [0]}},
        {"id": "m2", "rack": "b", "topics": ["t", "new\nline"]},
    ],
}


@pytest.mark.parametrize("output", ["json", "jsonl", "table"])
def test_names_that_a_scenario_does_not_list_are_warned_of_once_and_change_nothing(cli: Cli, output: str) -> None:
    listed = json.loads(json.dumps(UNLISTED))
    for member in listed["members"]:
        member["topics"] = ["t"]
    del listed["members"][0]["owned"]["left"]
    listed["brokers"] += [{"id": 8}, {"id": 9}]
    expected = cli("plan", "--output", output, given=json.dumps(listed))
    code, out, err = cli("plan", "--output", output, given=json.dumps(UNLISTED))
    assert expected.err == ""
    assert (code, [*map(_timeless, out.splitlines())]) == (0, [*map(_timeless, expected.out.splitlines())])
    assert err.splitlines() == [
        "rackassign: replicas are on brokers that are not in brokers, so their racks are unknown: 8, 9",
        r"rackassign: members subscribe to topics that are not in topics, which are left out: gone, new\nline",
        "rackassign: members own partitions of topics that are not in topics, which are ignored: left",
    ]
    many = cli("plan", "--output", "jsonl", given="\n".join([json.dumps(UNLISTED), "[]"] * 50))
    assert (many.code, many.err) == (2, err)


def _timeless(line: str) -> str:
    return re.sub(r'"seconds": ?[\d.e-]+', "", line)


def test_tags_that_no_member_has_are_warned_of(cli: Cli) -> None:
    # An empty group has no tags either, and nothing to spread.
    given = "\n".join([LINE, json.dumps({**SCENARIO, "members": []})])
    tagged = json.dumps({**SCENARIO, "members": [{"id": "m1", "topics": ["t"], "tags": {"zone": "a"}}]})
    words = ("plan", "--strategy", "standby", "--rack-aware-assignment-tags", "zone,zoen")
    no_effect = "no member has these tags of --rack-aware-assignment-tags, which have no effect"
    assert cli(*words, given=given).err == f"rackassign: {no_effect}: zone, zoen\n"
    code, _, err = cli(*words, given=tagged)
    assert (code, err) == (0, f"rackassign: {no_effect}: zoen\n")


def test_many_names_are_counted(cli: Cli) -> None:
    topics = {"t": [[1, *range(100, 120)], [2]]}
    _, _, err = cli("plan", given=json.dumps(SCENARIO | {"topics": topics}))
    assert err.endswith("racks are unknown: 100, 101, 102, 103, 104 and 15 more\n")


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_a_claim_on_a_partition_beyond_all_numbers_is_ignored(cli: Cli, strategy: str) -> None:
    claiming = LINE.replace('"rack": "a", "topics"', f'"rack": "a", "owned": {{"t": [{10**20}, 1]}}, "topics"')
    code, out, _ = cli("plan", "--strategy", strategy, given=claiming)
    assert (code, json.loads(out)["assignment"]) == (0, ASSIGNMENT)


def test_what_is_not_proven_is_said_on_stderr(cli: Cli) -> None:
    code, out, err = cli("plan", "--strategy", "sticky", "--time-limit", "0", given=CROWDED)
    assert (code, json.loads(out)["optimal"]) == (0, False)
    assert err == "rackassign: proven optimal in balance only: the time limit of the plan is exceeded\n"


def test_standbys_are_planned_with_active_members(cli: Cli) -> None:
    zone = {"m1": "a", "m2": "a", "m3": "b", "m4": "b"}
    members = [{"id": name, "topics": ["t"], "tags": {"zone": of}} for name, of in zone.items()]
    tagged = json.dumps({**SCENARIO, "topics": {"t": [[1]] * 8}, "members": members})
    words = ("plan", "--strategy", "standby", "--rack-aware-assignment-tags", "zone")
    code, out, err = cli(*words, given=tagged)
    plan = parsed("plan", out)
    assert (code, err, plan["collisions"], plan["missing_standbys"], plan["standbys_proven"]) == (0, "", 0, {}, True)
    at = {kind: {p: m for m, own in plan[kind].items() for p in own.get("t", ())} for kind in ("target", "standbys")}
    assert len(at["target"]) == len(at["standbys"]) == 8
    assert plan["seconds"] > 0
    assert all(zone[at["target"][p]] != zone[at["standbys"][p]] for p in range(8))
    assert "standbys: collisions 0, missing 0, to warm up first 0" in cli(*words, "--output", "table", given=tagged).out
    # Five members would be needed.
    code, out, _ = cli(*words, "--num-standby-replicas", "4", "--standby-rule", "strict", given=tagged)
    assert json.loads(out)["missing_standbys"] == {"t": {str(p): 3 for p in range(8)}}
    assert json.loads(cli("plan", "--strategy", "standby", given=LINE).out)["standbys"] == {
        "m1": {"t": [0]},
        "m2": {"t": [1]},
    }


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (("plan",), "", "the input is empty"),
        (("plan",), "nonsense", "not JSON: Expecting value at line 1 column 1"),
        (("plan",), "{", "not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        (("plan",), b"\xff\xfe", "not UTF-8: "),
        (("plan",), LINE.replace('"a", "topics"', '7, "topics"'), "members[0].rack: expected a string, got 7"),
        (
            ("plan",),
            LINE.replace("rackassign/1", "rackassign/9"),
            "format: expected 'rackassign/1', got \"rackassign/9\"",
        ),
        (("plan", "no/such/file"), "", "cannot read no/such/file: No such file or directory"),
        (("plan", "."), "", "cannot read .: Is a directory"),
        (
            ("plan", "--strategy", "rang"),
            LINE,
            "strategy must be one of range, sticky, cooperative-sticky, consumer-protocol, standby, got 'rang'",
        ),
        (
            ("plan", "--strategy", "sticky", "--num-standby-replicas", "2"),
            LINE,
            "options of standbys need --strategy standby, got sticky",
        ),
        (("plan", "--strategy", "standby", "--standby-rule", "odd"), LINE, "rule must be one of even, strict, hadoop"),
        (
            ("plan", "--strategy", "standby", "--num-standby-replicas", "-1"),
            LINE,
            "num_standby_replicas must be an integer, 0 or more, got -1",
        ),
        (("plan", "--locality", "near"), LINE, "locality must be one of any-replica, leader, got 'near'"),
        (
            ("plan", "--strategy", "sticky"),
            LINE.replace('"rack": "a", "topics"', f'"generation": {2**70}, "topics"'),
            "members[0].generation: expected at most 2147483647",
        ),
        (
            ("plan", "--strategy", "sticky"),
            LINE.replace('"members"', f'"weights": {{"t": [{10**400}]}}, "members"'),
            "weights.t[0]: expected a finite number, 0 or more",
        ),
        (("plan", "--strategy", "range", "--max-skew", "1"), LINE, f"{RANGE} --max-skew"),
        (
            ("plan", "--strategy", "consumer-protocol", "--max-skew", "1"),
            LINE,
            "--strategy consumer-protocol has no use for --max-skew",
        ),
        (
            ("plan", "--strategy", "consumer-protocol", "--locality", "leader"),
            LINE,
            "locality=leader cannot be used with consumer-protocol",
        ),
        (("plan", "--balance", "topic"), LINE, f"{RANGE} --balance"),
        (("plan", "--copartition", "a,b"), LINE, f"{RANGE} --copartition"),
        (("plan", "--balance", "topics", "--strategy", "sticky"), LINE, "balance must be one of total, topic, got"),
        (("plan", "--copartition", "t", "--strategy", "sticky"), LINE, "copartition[0]: expected two topics or more"),
        (
            ("plan",),
            LINE.replace('"members"', '"copartition": [["t", 7]], "members"'),
            "copartition[0][1]: expected a string, got 7",
        ),
        (("plan", "--max-skew", "-1", "--strategy", "sticky"), LINE, "max_skew must be an integer, 0 or more, got -1"),
        (("plan", "--weight-tolerance", "0.1"), LINE, f"{RANGE} --weight-tolerance"),
        (("plan", "--time-limit", "0"), LINE, f"{RANGE} --time-limit"),
        (("plan", "--time-limit", "-1"), LINE, "--time-limit: expected seconds, 0 or more, got -1"),
        (("simulate-placement", "-"), b"\xff\xfe", "standard input is not UTF-8"),
        (("cluster",), "", "cluster: expected one of its commands: up, down, kill-rack, start-rack"),
        (("reassign",), "", "reassign: expected one of its commands: plan, apply"),
        (("state",), "", "state: expected one of its commands: describe, clean, reset"),
        (("cluster", "up", "--create-topic", "a b:3"), "", 'create-topic: "a b" is not the name of a topic'),
        (
            ("create-topic", "t", "--bootstrap-server", "k:1", "--partitions", str(2**31)),
            "",
            "Invalid value for '--",
        ),
        (
            ("create-topic", "t", "--bootstrap-server", "k:1", "--add-partitions", str(2**31)),
            "",
            "Invalid value for '--",
        ),
        (("create-topic", "t", "--bootstrap-server", "k:1", "--replication-factor", "1001"), "", TOO_MANY),
        (("reassign", "plan", "--bootstrap-server", "k:1", "--replication-factor", "1001"), "", TOO_MANY),
        (("simulate-placement", "--replication-factor", "1001"), "", TOO_MANY),
        (("estimate", "--gb-per-day", "1", "--price-per-gb", "1e308"), "", "price must be from 0 to 1000000 USD/GB"),
        (("inspect", "--bootstrap-server", "k:1", "--all-groups", "--interval", "1e300"), "", "interval: expected sec"),
        (
            ("plan", "--weight-tolerance", "0.1", "--strategy", "sticky"),
            LINE,
            "--weight-tolerance cannot be used without weights, and the scenario has none",
        ),
        (
            ("plan", "--weight-tolerance", "nan", "--strategy", "sticky"),
            LINE,
            "weight_tolerance must be a number from 0 to 1000, got NaN",
        ),
        (("plan", "--output", "xml"), LINE, "output must be one of json, jsonl, table, got 'xml'"),
        (("plan", "--strat", "range"), LINE, "No such option: --strat"),
        (("paln",), "", "No such command 'paln'. Did you mean 'plan'?"),
        (("cluster", "up", "--output", "xml"), "", "output must be one of table, json, got 'xml'"),
        (
            ("cluster", "up", "--name", "../x"),
            "",
            "name must be letters, digits and _, and begin with no digit, got '../x'",
        ),
        (
            ("cluster", "down", "--name", "../x"),
            "",
            "name must be letters, digits and _, and begin with no digit, got '../x'",
        ),
        (
            ("cluster", "kill-rack", "a", "--name", "../x"),
            "",
            "name must be letters, digits and _, and begin with no digit, got '../x'",
        ),
        (("cluster", "start-rack", "a", "--output", "xml"), "", "output must be one of table, json, got 'xml'"),
        (("cluster", "up", "--port", "65534"), "", "port: 65534 leaves too few ports for 3 brokers"),
        (("cluster", "up", "--kafka-version", "2.8"), "", "kafka_version: expected one of 3.5.2, "),
        (("cluster", "up", "--kafka-version", ""), "", "kafka_version: expected one of 3.5.2, "),
        (("cluster", "up", "--kafka-version", "4.4,3.9"), "", "kafka_version: expected a version or a list of 3"),
        (("cluster", "up", "--port", "0"), "", "Invalid value for '--port'"),
        (("cluster", "up", "--create-topic", ":1"), "", "create-topic: expected NAME:PARTITIONS:REPLICAS, got"),
        (("cluster", "up", "--create-topic", "t:0"), "", "create-topic: expected NAME:PARTITIONS:REPLICAS, got"),
        (("cluster", "up", "--create-topic", f"t:{'9' * 5000}"), "", "create-topic: expected NAME:PARTITIONS:REPLICAS"),
        (("cluster", "up", "--create-topic", "t:10001"), "", "create-topic: t:10001 has more than 10000 partitions"),
        (
            ("cluster", "up", "--create-topic", "t", "--create-topic", "t:2"),
            "",
            "create-topic: the topic t is given twice",
        ),
        (("cluster", "up", "--create-topic", "t:x"), "", "create-topic: expected NAME:PARTITIONS:REPLICAS, got"),
        (("cluster", "up", "--create-topic", "t:1:1:1"), "", "create-topic: expected NAME:PARTITIONS:REPLICAS, got"),
        (("cluster", "up", "--create-topic", "t:1:4"), "", "create-topic: t:1:4 has more replicas than the cluster"),
        (("cluster", "up", "--racks", ",", "--with-demo-group"), "", "--with-demo-group needs a rack"),
        (
            ("cluster", "up", "--with-demo-group", "--create-topic", "orders"),
            "",
            "--with-demo-group creates the topic orders itself",
        ),
        (("state", "clean", "--execute", "--state-dir", ""), "", "--state-dir: expected a folder, got an empty name"),
        (("demo", "--price-per-gb", "-1"), "", "price must be from 0 to 1000000 USD/GB, got -1.0"),
        (("demo", "--cloud", "moon"), "", 'cloud must be one of aws, msk, gcp, google, azure, none, got "moon"'),
    ],
)
def test_what_is_wrong_is_one_line_on_stderr(cli: Cli, words: tuple[str, ...], given: str, message: str) -> None:
    code, out, err = cli(*words, given=given)
    assert (code, out) == (2, "")
    assert err.startswith(f"rackassign: {message}")
    assert err.count("\n") == 1


def test_an_empty_throttle_is_none(cli: Cli, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan")
    code, _, err = cli("reassign", "apply", "--bootstrap-server", "k:1", "--throttle", "", "--plan-file", plan)
    assert code == 2
    assert "does not exist; create it with `reassign plan`" in err


def test_a_hundred_megabytes_of_nonsense_are_one_line(cli: Cli) -> None:
    code, out, err = cli("plan", given=b"x" * 100_000_000)
    assert (code, out, err) == (2, "", "rackassign: not JSON: Expecting value at line 1 column 1\n")


def test_a_table_shows_members_and_counts(cli: Cli) -> None:
    odd = LINE.replace("m1", "[red]m1[/red]")
    code, out, _ = cli("plan", "--output", "table", given=odd)
    assert code == 0
    assert "[red]m1[/red]" in out
    assert "local 2, cross 0, unknown 0" in out


@pytest.mark.parametrize("words", [("down",), ("kill-rack", "a"), ("start-rack", "a", "--output", "json")])
def test_what_is_not_up_is_a_no_and_leaves_no_file(
    cli: Cli, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKASSIGN_CACHE", str(tmp_path))
    assert cli("cluster", *words) == (1, "", "rackassign: no cluster 'default' is up\n")
    assert list(tmp_path.iterdir()) == []


def test_a_thousand_groups_take_one_process() -> None:
    lines = "\n".join([LINE] * 1000)
    done = subprocess.run(
        [sys.executable, "-m", "rackassign", "plan"], input=lines, capture_output=True, check=True, text=True
    )
    assert assignments(done.stdout) == [ASSIGNMENT] * 1000


def test_answers_come_while_the_input_is_still_open() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "rackassign", "plan", "--output", "jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(LINE + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["assignment"] == ASSIGNMENT
        process.stdin.close()
        assert process.wait() == 0


def test_without_the_extra_the_script_says_so_in_one_line() -> None:
    block = "import sys; sys.modules['typer'] = None; from rackassign.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", block], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": "."}
    )
    assert done.returncode == 2
    assert done.stderr == "rackassign: the command line needs an extra: pip install 'rackassign[cli]'\n"


@pytest.mark.parametrize("command", ["demo", "cluster up", "cluster down"])
def test_a_command_that_needs_another_extra_says_which(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACKASSIGN_CACHE", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    code, out, err = cli(*command.split())
    assert (code, out) == (2, "")
    assert err.endswith("rackassign: platformdirs is missing: pip install 'rackassign[testing]'\n")


def test_names_of_commands_are_completed_without_importing_any() -> None:
    shown = subprocess.run(
        [
            *(sys.executable, "-X", "importtime", "-c"),
            "import sys; from rackassign.cli import main; sys.argv[0] = 'rackassign'; main()",
        ],
        env=os.environ | {"_RACKASSIGN_COMPLETE": "complete_bash", "COMP_WORDS": "rackassign ins", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == ["inspect"]
    assert "rackassign.cli.app" in shown.stderr
    assert "rackassign.cli.commands." not in shown.stderr
    assert "kafka" not in shown.stderr


def test_costs_of_racks_that_no_broker_and_no_member_has_are_named(cli: Cli) -> None:
    racks = sorted(broker["rack"] for broker in SCENARIO["brokers"])
    line = LINE.replace('"members"', json.dumps({"costs": {racks[0]: {racks[1]: 2, "typo": 3}}})[1:-1] + ', "members"')
    code, _, err = cli("plan", "--strategy", "sticky", given=line)
    assert (code, err) == (
        0,
        "rackassign: costs are of racks that no broker and no member has, which have no effect: typo\n",
    )


@pytest.mark.parametrize("output", ["json", "jsonl", "table"])
def test_a_byte_order_mark_is_no_mistake(cli: Cli, output: str) -> None:
    text = json.dumps(SCENARIO).encode()
    plain = cli("plan", "--output", output, given=text)
    marked = cli("plan", "--output", output, given=b"\xef\xbb\xbf" + text)
    assert plain.code == marked.code == 0
    assert len(plain.out.splitlines()) == len(marked.out.splitlines())
    assert marked.err == ""


def weighted(**weights: list[float]) -> str:
    return json.dumps(SCENARIO | {"topics": {"t": [[1], [2], [1]]}, "weights": weights})


@pytest.mark.parametrize(
    ("weights", "warnings"),
    [
        ({"t": [1.0, 2.0, 3.0]}, []),
        ({"t": [1.0]}, ["t has 3 partitions and 1 weights"]),
        ({"t": [1.0] * 4}, ["t has 3 partitions and 4 weights"]),
        ({"tt": [1.0] * 3}, ["not in topics, which are ignored: tt", "t has 3 partitions and 0 weights"]),
    ],
)
def test_weights_that_do_not_fit_the_topics_are_warned_of_once(
    cli: Cli, weights: dict[str, Any], warnings: list[str]
) -> None:
    lines = "\n".join([weighted(**weights)] * 3)
    code, out, err = cli("plan", "--strategy", "sticky", "--output", "jsonl", given=lines)
    assert (code, len(out.splitlines())) == (0, 3)
    found = [line for line in err.splitlines() if "weight" in line and "proven" not in line]
    assert len(found) == len(warnings)
    assert all(warning in line for warning, line in zip(warnings, found, strict=True))
