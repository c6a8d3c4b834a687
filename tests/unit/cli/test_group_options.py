"""Commands that look at live groups refuse what cannot work before they look, in one line.

What the exporter writes while it cannot see the cluster.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rackassign.cli.app import run
from rackassign.cli.commands import exporter
from rackassign.errors import ConfigError
from rackassign.monitoring import ClusterReport, GroupCollector, Price, SkippedGroup, Throughput, collect_repeatedly
from rackassign.monitoring.report_metrics import ReportMetrics
from tests.helpers.builders import cluster, group, inspected, member, rates

NOWHERE = ["--bootstrap-server", "127.0.0.1:1"]
"""Nobody answers there, and nobody is asked: exit 3 would say so."""

TOO_LONG = "interval: expected seconds, at most 86400 (a day), got inf"


@pytest.mark.parametrize("command", ["inspect", "snapshot", "top"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "either --group or --all-groups is needed"),
        (["--all-groups", "--group", "g"], "give either --group or --all-groups, not both"),
        (["--group", ""], "group: expected the name of a group"),
        (
            ["--all-groups", "--rack-map", "/nowhere/map.json"],
            "cannot read /nowhere/map.json: No such file or directory",
        ),
        (["--all-groups", "--rack-map", "wrong.json"], "wrong.json: hosts.h: expected the name of a rack, got 7"),
        (["--all-groups", "--rack-map", "none.json"], "none.json: not JSON: Expecting value at line 1 column 1"),
        (["--all-groups", "--rack-map", "latin.json"], "latin.json is not UTF-8"),
    ],
)
def test_what_all_refuse(
    command: str,
    words: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.json").write_text('{"hosts": {"h": 7}}', "utf-8")
    Path("none.json").write_text("x", "utf-8")
    Path("latin.json").write_bytes(b"\xff")
    assert run([command, *NOWHERE, *words]) == 2
    assert capsys.readouterr().err == f"rackassign: {problem}\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["snapshot", "--all-groups", "--parquet", "x", "--output", "json"],
            "--output is for scenarios: --parquet writes none",
        ),
        (["inspect", "--all-groups", "--fail-under", "most"], "fail-under: expected a percentage like 95%, got 'most'"),
        (["inspect", "--all-groups", "--fail-under", "101%"], "fail-under: expected a percentage like 95%, got '101%'"),
        (["inspect", "--all-groups", "--fail-under", "nan"], "fail-under: expected a percentage like 95%, got 'nan'"),
        (["inspect", "--all-groups", "--fail-under", "0.95"], "fail-under: 0.95 is ambiguous: give 95% or 0.95%"),
        (["inspect", "--all-groups", "--fail-under", "1"], "fail-under: 1 is ambiguous: give 100% or 1%"),
        (["inspect", "--all-groups", "--price-per-gb", "-1"], "price must be from 0 to 1000000 USD/GB, got -1.0"),
        (
            ["inspect", "--all-groups", "--cloud", "AWS"],
            'cloud must be one of aws, msk, gcp, google, azure, none, got "AWS"',
        ),
        (["top", "--all-groups", "--cloud", ""], 'cloud must be one of aws, msk, gcp, google, azure, none, got ""'),
        (
            ["exporter", "--cloud", "aws", "--price-per-gb", "0.01"],
            "give either the price (--price-per-gb) or a cloud (--cloud)",
        ),
        (
            ["inspect", "--all-groups", "--html", "/nowhere/x.html"],
            "html: cannot write /nowhere/x.html: there is no such folder",
        ),
        (["inspect", "--all-groups", "--html", "/"], "html: cannot write /: it is a folder"),
        (
            ["inspect", "--all-groups", "--interval", "inf"],
            TOO_LONG,
        ),
        (["top", "--all-groups", "--interval", "inf"], TOO_LONG),
        (["exporter", "--interval", "inf"], TOO_LONG),
        (["inspect", "--all-groups", "--output", "xml"], "output must be one of table, json, got 'xml'"),
        (["top", "--all-groups", "--price-per-gb", "nan"], "price must be from 0 to 1000000 USD/GB, got nan"),
        (["snapshot", "--all-groups", "--output", "table"], "output must be one of json, jsonl, got 'table'"),
        (["exporter", "--listen", "127.0.0.1"], 'listen: expected ADDRESS:PORT, got "127.0.0.1"'),
        (
            ["exporter", "--listen", f"h:{'1' * 5000}"],
            f'listen: expected ADDRESS:PORT, got "h:{"1" * 37}...{"1" * 39}"',
        ),
        (
            ["exporter", "--listen", "127.0.0.1:70000"],
            'listen: expected ADDRESS:PORT with a port from 0 to 65535, got "127.0.0.1:70000"',
        ),
        (
            ["exporter", "--listen", "a..b:9108"],
            'listen: cannot serve on a..b:9108: "a..b" is no host name',
        ),
        (
            ["exporter", "--listen", "192.0.2.1:0"],
            "listen: cannot serve on 192.0.2.1:0: Cannot assign requested address",
        ),
    ],
)
def test_what_each_refuses(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, *NOWHERE]) == 2
    assert capsys.readouterr().err == f"rackassign: {problem}\n"


class Seen:
    """Stands for an inspector that sees the same again and again, at once."""

    def __init__(self, survey: ClusterReport) -> None:
        self._survey = survey

    def report(self, *_: object, **__: object) -> ClusterReport:
        return self._survey


def answer(monkeypatch: pytest.MonkeyPatch, survey: ClusterReport) -> None:
    monkeypatch.setattr("rackassign.cli.commands.inspect.GroupCollector", lambda *_: Seen(survey))
    monkeypatch.setattr("rackassign.cli.commands.inspect.admin_client", lambda *_: nullcontext())


@pytest.mark.parametrize(
    ("odd", "least", "code"),
    [
        ((), "50", 0),
        ((), "51", 1),
        ((), "0", 0),
        ((SkippedGroup("", "broker 3 does not list its groups"),), "50", 3),
        ((SkippedGroup("", "broker 3 does not list its groups"),), "51", 1),
        ((SkippedGroup("", "broker 3 does not list its groups"),), None, 0),
        # As of a variable of the shell that is not set.
        ((), "", 2),
        ((SkippedGroup("c", "of Connect", unseen=False),), "50", 0),
    ],
)
def test_groups_that_were_not_seen_may_not_be_local_enough(
    odd: tuple[SkippedGroup, ...],
    least: str | None,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = cluster({"t": [[1], [2]]})
    seen = inspected(group(member("m", "a", {"t": [0, 1]})), there)
    answer(monkeypatch, ClusterReport(there, (seen,), odd, Throughput()))
    wanted = [] if least is None else ["--fail-under", least]
    assert run(["inspect", "--all-groups", *NOWHERE, *wanted]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_topics_that_were_not_seen_may_not_be_local_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    there = replace(cluster({"t": [[1], [2]]}), missing={"u": "not allowed: DESCRIBE on topic u"})
    seen = inspected(group(member("m", "a", {"t": [0]}, "t", "u")), there)
    answer(monkeypatch, ClusterReport(there, (seen,), (), Throughput()))
    assert run(["inspect", "--all-groups", *NOWHERE, "--fail-under", "50%"]) == 3
    assert run(["inspect", "--all-groups", *NOWHERE]) == 0


def test_a_topic_that_does_not_exist_has_nothing_that_is_not_local(monkeypatch: pytest.MonkeyPatch) -> None:
    there = replace(cluster({"t": [[1], [2]]}), missing={"u": "UnknownTopicOrPartitionError"})
    seen = inspected(group(member("m", "a", {"t": [0]}, "t", "u")), there)
    answer(monkeypatch, ClusterReport(there, (seen,), (), Throughput()))
    assert run(["inspect", "--all-groups", *NOWHERE, "--fail-under", "50%"]) == 0


def test_groups_that_are_not_local_enough_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster({"t": [[1], [2], [1]]})
    half = inspected(group(member("m", "a", {"t": [0, 1]}), name="half"), there)
    silent = inspected(group(member("m", "a", {"t": [0]}), member("n", None, {"t": [1, 2]}), name="silent"), there)
    good = inspected(group(member("m", "a", {"t": [0, 2]}), name="good"), there)
    answer(monkeypatch, ClusterReport(there, (half, silent, good), (), Throughput()))
    assert run(["inspect", "--all-groups", *NOWHERE, "--fail-under", "66.5%"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "rackassign: silent: 33.3 % of its partitions are local, and of 66.7 % it is unknown; --fail-under is 66.5 %",
        "rackassign: half: 50.0 % of its partitions are local; --fail-under is 66.5 %",
    ]


def test_a_replica_in_each_rack_is_local_enough_and_client_rack_has_to_be_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster({"t": [[1, 2, 3], [2, 3, 1]]})
    stock = inspected(group(member("m", None, {"t": [0, 1]}), name="stock"), there)
    answer(monkeypatch, ClusterReport(there, (stock,), (), Throughput()))
    assert run(["inspect", "--all-groups", *NOWHERE, "--fail-under", "95%"]) == 0
    assert capsys.readouterr().err == (
        "rackassign: stock: 2 partitions of readers without a rack count as local: client.rack alone makes them local;"
        " check that each consumer sets it\n"
    )


@pytest.mark.parametrize(
    ("local", "least", "shown"),
    [(9496, "95%", "94.9 %"), (9999, "100", "99.9 %"), (6, "0.1%", "<0.1 %"), (9494, "95%", "94.9 %")],
)
def test_a_share_below_the_limit_does_not_look_like_the_limit(
    local: int, least: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = cluster({"t": [[1]] * local + [[2]] * (10_000 - local)})
    seen = inspected(group(member("m", "a", {"t": range(10_000)}), name="near"), there)
    answer(monkeypatch, ClusterReport(there, (seen,), (), Throughput()))
    assert run(["inspect", "--all-groups", *NOWHERE, "--fail-under", least]) == 1
    limit = least.removesuffix("%")
    assert capsys.readouterr().err == (
        f"rackassign: near: {shown} of its partitions are local; --fail-under is {limit} %\n"
    )


def test_surveys_of_nothing_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("rackassign.monitoring.collector.time.sleep", slept.append)
    collector = cast("GroupCollector", Seen(ClusterReport(cluster({}), (), (), Throughput())))
    assert len(list(collect_repeatedly(collector, None, interval_s=7.0, looks=3))) == 3
    assert [round(seconds) for seconds in slept] == [7, 7]


def test_without_a_measurement_reports_are_repeated_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, measured = list[float](), list[object]()
    monkeypatch.setattr("rackassign.monitoring.collector.time.sleep", slept.append)

    class Noting(Seen):
        def report(self, *_: object, **how: object) -> ClusterReport:
            measured.append(how["interval_s"])
            return super().report()

    collector = cast("GroupCollector", Noting(ClusterReport(cluster({}), (), (), Throughput())))
    assert len(list(collect_repeatedly(collector, None, interval_s=0.0, looks=2))) == 2
    assert (measured, [round(seconds) for seconds in slept]) == ([0.0, 0.0], [10])


def test_a_reason_is_written_once_until_there_is_a_report_again(capsys: pytest.CaptureFixture[str]) -> None:
    report = ClusterReport(cluster({"t": [[1]]}), (), (), rates({}))
    metrics = ReportMetrics(Price(0.0))
    exporter._publish(["away", "away", "refused", "away", report, "away", "away"], metrics)
    assert capsys.readouterr().err.splitlines() == [f"rackassign: {it}" for it in ("away", "refused", "away", "away")]
    assert metrics.not_ready() == "away"


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("9108", "ADDRESS:PORT"),
        (":9108", "ADDRESS:PORT"),
        ("h:x", "ADDRESS:PORT"),
        ("h:65536", "ADDRESS:PORT with a port from 0 to 65535"),
    ],
)
def test_an_address_to_listen_on_names_what_is_wrong(listen: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f'^listen: expected {expected}, got "{listen}"$'):
        exporter._address(listen)
