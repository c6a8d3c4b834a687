"""The matrix of client versions: what is run, how its output is read, what is recorded and what fails."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rackassign.testing._broker_config import KAFKA_VERSION
from tools.matrix import __main__ as program
from tools.matrix import newer as index
from tools.matrix import results
from tools.matrix.environments import SUITES, Environment, environments
from tools.matrix.interpreters import find_interpreter
from tools.matrix.newer import newer
from tools.matrix.results import Result, Verdict, result_of, sheets, versions
from tools.matrix.runner import ROOT, Report, Runner, one_line, read_report
from tools.matrix.versions import BELOW, CLIENTS, PYTHON_OF_CLIENTS, PYTHONS, UNSUPPORTED

OLDEST = environments()[0]
ALONE = Environment("aiokafka-0.13.0", "3.12", (("aiokafka", "0.13.0"),), ("aiokafka",))

PASSED = """\
.................                                                        [100%]
17 passed in 3.21s
"""
FAILED = """\
..F.                                                                     [100%]
=================================== FAILURES ===================================
=========================== short test summary info ============================
FAILED tests/unit/test_x.py::test_y - AttributeError: 'Fetcher' has no
ERROR tests/unit/test_x.py::test_z - OSError: no space
1 failed, 3 passed, 1 error in 61.20s (0:01:01)
"""
SKIPPED = """\
..s                                                                      [100%]
=========================== short test summary info ============================
SKIPPED [1] tests/helpers/java.py:12: no Java of version 17
2 passed, 1 skipped in 1.00s
"""


def result(verdict: Verdict = Verdict.YES, reason: str = "", *, of: Environment = ALONE) -> Result:
    return Result(verdict, reason, 5, 10, "2026-11-23", versions(of), "4.4.0")


class Recorded:
    """Runs nothing and answers always the same."""

    def __init__(self, answer: Result) -> None:
        self.answer = answer
        self.ran: list[tuple[str, tuple[str, ...]]] = []

    def run(self, environment: Environment, interpreter: Path, suites: tuple[str, ...]) -> list[tuple[str, Result]]:
        assert interpreter == Path(sys.executable)
        self.ran.append((environment.name, suites))
        return [(suite, self.answer) for suite in suites]


def here(version: str) -> Path:
    assert version
    return Path(sys.executable)


def absent(version: str) -> None:
    assert version


def declared() -> dict[str, set[str]]:
    """Return the version ranges of pyproject.toml by client: each is one that all extras agree on."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = [
        Requirement(line)
        for line in re.findall(r'"((?:kafka-python|aiokafka|confluent-kafka|pyspark)\b[^"]*)"', text)
        if ">=" in line
    ]
    return {client: {str(r.specifier) for r in found if r.name == client} for client in CLIENTS}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_pinned_versions_are_those_that_the_package_admits(client: str) -> None:
    (declared_range,) = declared()[client]
    allowed = Requirement(f"{client}{declared_range}").specifier
    assert [version for version in CLIENTS[client] if version not in allowed] == []
    lower = CLIENTS[client][0].removesuffix(".0")
    assert {str(bound) for bound in allowed} == {f">={lower}", f"<{BELOW[client]}"}


def test_each_version_of_a_client_runs_once_beside_the_newest_ones() -> None:
    newest = {client: pinned[-1] for client, pinned in CLIENTS.items()}
    ran = [(client, version) for e in environments() for client, version in e.pins if version != newest[client]]
    assert sorted(ran) == sorted((c, v) for c, pinned in CLIENTS.items() for v in pinned[:-1])


def test_the_corners_run_all_suites() -> None:
    everything = [e for e in environments() if e.suites == tuple(SUITES)]
    assert [e.python for e in everything] == ["3.10", "3.14", "3.13", "3.12", "3.11"]
    assert dict(everything[0].pins) == {client: pinned[0] for client, pinned in CLIENTS.items()}
    assert dict(everything[1].pins) == {client: pinned[-1] for client, pinned in CLIENTS.items()}
    assert PYTHON_OF_CLIENTS in PYTHONS


def test_names_of_environments_are_unique_and_unsupported_cells_exist() -> None:
    names = [e.name for e in environments()]
    assert len(names) == len(set(names))
    assert {(e.name, suite) for e in environments() for suite in e.suites}.issuperset(UNSUPPORTED)


@pytest.mark.parametrize("test", sorted({test for suite in SUITES.values() for test in suite.tests}))
def test_each_test_of_a_suite_exists(test: str) -> None:
    path, _, function = test.partition("::")
    assert (ROOT / path).exists()
    if function:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_requirements_have_the_extras_and_the_exact_versions() -> None:
    requirements = OLDEST.requirements("/clone")
    assert requirements[:2] == ["--editable", "/clone[aiokafka,cli,confluent,msk,spark,testing]"]
    assert {"kafka-python[crc32c]==3.0.9", "aiokafka==0.12.0", "pyspark==4.0.0"} <= {*requirements}
    assert ALONE.requirements("/clone")[1] == "/clone[aiokafka,testing]"


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown suites: kafka"):
        Environment("x", "3.12", (), ("kafka",))


def test_a_report_without_failures_is_yes() -> None:
    assert read_report(PASSED, 0) == Report(17, Verdict.YES, "")


def test_a_report_names_the_first_failure_in_one_line() -> None:
    first = "tests/unit/test_x.py::test_y - AttributeError: 'Fetcher' has no"
    assert read_report(FAILED, 1) == Report(3, Verdict.NO, f"2 failed, the first: {first}")


def test_a_module_that_cannot_be_imported_is_named_with_the_error() -> None:
    output = """\
==================================== ERRORS ====================================
tests/unit/test_x.py:9: in <module>
    import typer
E   ModuleNotFoundError: No module named 'typer'
ERROR tests/unit/test_x.py
1 error in 1.00s
"""
    reason = "1 failed, the first: tests/unit/test_x.py - ModuleNotFoundError: No module named 'typer'"
    assert read_report(output, 2) == Report(0, Verdict.NO, reason)


def test_a_skipped_test_is_no_proof() -> None:
    reason = "skipped: tests/helpers/java.py:12: no Java of version 17"
    assert read_report(SKIPPED, 0) == Report(2, Verdict.NOT_RUN, reason)


def test_tests_of_later_versions_are_counted_and_no_gap() -> None:
    output = SKIPPED.replace("tests/helpers/java.py:12: no Java of version 17", "a/test_x.py:1: needs aiokafka 0.14")
    assert read_report(output, 0) == Report(2, Verdict.YES, "skipped, since they need aiokafka 0.14: 1 tests")
    assert (
        read_report(SKIPPED.replace("\n2 passed", "\nSKIPPED [2] b.py:1: needs aiokafka 0.14\n2 passed"), 0).verdict
        is Verdict.NOT_RUN
    )


@pytest.mark.parametrize(
    ("output", "code", "reason"),
    [
        ("ImportError: no module named kafka.x\n", 4, "ImportError: no module named kafka.x"),
        ("..\nFatal Python error: Segmentation fault\n\n", -11, "Fatal Python error: Segmentation fault"),
        ("", -9, "pytest exits with -9"),
        ("2 passed in 1.00s\nstopped after 1800 s\n", 1, "stopped after 1800 s"),
        ("no tests ran in 0.01s\n", 0, "no test ran"),
    ],
)
def test_a_run_without_a_good_end_is_no(output: str, code: int, reason: str) -> None:
    report = read_report(output, code)
    assert (report.verdict, report.reason) == (Verdict.NO, reason)


def test_a_reason_fits_into_a_table() -> None:
    assert one_line("a\n  b") == "a b"
    assert len(one_line("x" * 1000)) == 160
    assert result(Verdict.NO, "int | None").text() == "no: int \\| None"


@pytest.mark.parametrize(("verdict", "reason"), [(Verdict.NO, ""), (Verdict.NOT_RUN, ""), (Verdict.NO, "a\nb")])
def test_a_result_needs_a_reason_of_one_line_unless_it_is_yes(verdict: Verdict, reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        result(verdict, reason)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_an_interpreter_is_found_behind_a_shim_that_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "shims" / "python3.14", "echo 'not installed' >&2; exit 127")
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_interpreter("3.14") is None
    good = executable(tmp_path / "versions" / "3.14.2" / "bin" / "python3.14", "echo 3.14")
    executable(tmp_path / "versions" / "3.14.3" / "bin" / "python3.14", "echo 3.13")
    assert find_interpreter("3.14") == good


def test_a_missing_interpreter_is_one_line_and_a_failure_only_when_strict(capsys: pytest.CaptureFixture[str]) -> None:
    runner = Recorded(result())
    found = program.run_environment(OLDEST, ("core", "aiokafka"), runner, absent)
    assert capsys.readouterr().out == "oldest: not run: no interpreter of Python 3.10\n"
    assert runner.ran == []
    assert [r.verdict for r in found.values()] == [Verdict.NOT_RUN] * 2
    assert program.exit_code(found, strict=False) == 0
    assert program.exit_code(found, strict=True) == 1


@pytest.mark.parametrize(("answer", "code"), [(result(), 0), (result(Verdict.NO, "1 failed"), 1)])
def test_a_supported_cell_that_fails_is_a_failure(answer: Result, code: int) -> None:
    found = program.run_environment(ALONE, ALONE.suites, Recorded(answer), here)
    assert found == {("aiokafka-0.13.0", "aiokafka"): answer}
    assert program.exit_code(found, strict=False) == code


def test_an_unsupported_cell_is_not_run_and_shown_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UNSUPPORTED, ("aiokafka-0.13.0", "aiokafka"), "no wheel")
    runner = Recorded(result())
    assert program.run_environment(ALONE, ALONE.suites, runner, here) == {}
    assert runner.ran == []
    assert result_of(ALONE, "aiokafka", {}).text() == "no: no wheel"


def test_a_python_that_makes_no_environment_is_no(tmp_path: Path) -> None:
    broken = executable(tmp_path / "python", "echo 'ERROR: no matching distribution'; exit 1")
    found = dict(Runner(tmp_path / "cache").run(ALONE, broken, ("aiokafka",)))
    assert found["aiokafka"].text() == "no: not installable: no matching distribution"
    assert found["aiokafka"].kafka == ""
    assert (tmp_path / "cache" / "logs" / "aiokafka-0.13.0-install.log").exists()


FAKE_VENV = """\
mkdir -p "$3/bin"
cat > "$3/bin/python" <<'END'
#!/bin/sh
case "$*" in "-m pytest "*) echo "3 passed in 0.10s"; echo "$PYTHONPATH" >> ran;; esac
END
chmod +x "$3/bin/python"
"""


@pytest.mark.parametrize("keep", [False, True])
def test_the_environment_of_a_cell_that_works_is_removed_unless_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool
) -> None:
    monkeypatch.setattr("tools.matrix.runner.ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    (tmp_path / "pyproject.toml").touch()
    interpreter = executable(tmp_path / "python", FAKE_VENV)
    found = dict(Runner(tmp_path / "cache", keep=keep).run(ALONE, interpreter, ("aiokafka",)))
    assert (found["aiokafka"].verdict, found["aiokafka"].passed) == (Verdict.YES, 3)
    assert found["aiokafka"].kafka == KAFKA_VERSION
    assert (tmp_path / "ran").read_text(encoding="utf-8") == "\n"
    assert (tmp_path / "cache" / "venvs" / ALONE.name).exists() == keep


def test_results_are_added_to_those_of_earlier_runs(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    program.record({("oldest", "core"): result(of=OLDEST)}, file, page)
    program.record({("oldest", "aiokafka"): result(Verdict.NO, "1 failed", of=OLDEST)}, file, page)
    known = results.read(file)
    assert known["oldest", "core"] == result(of=OLDEST)
    assert known["oldest", "aiokafka"] == result(Verdict.NO, "1 failed", of=OLDEST)
    row = next(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| 3.10 |"))
    assert "| yes |" in row
    assert "| 0.12.0 no: 1 failed |" in row
    assert "`make matrix ONLY=oldest`" in row


def test_a_cell_that_is_not_run_keeps_its_earlier_result(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    cell = ("oldest", "core")
    program.record({cell: result(of=OLDEST)}, file, page)
    program.record({cell: result(Verdict.NOT_RUN, "no interpreter", of=OLDEST)}, file, page)
    assert results.read(file)[cell].verdict is Verdict.YES


def test_a_result_of_other_versions_does_not_count() -> None:
    older = Result(Verdict.YES, "", 5, 10, "2026-01-01", "Python 3.10, kafka-python 3.0.4", "4.4.0")
    assert result_of(OLDEST, "core", {("oldest", "core"): older}).text() == "not run: no run yet"


def test_a_version_is_proven_by_an_environment_that_ran() -> None:
    ran = next(e for e in environments() if e.name == "python-3.12")
    known = {(ran.name, "aiokafka"): result(of=ran)}
    sheet = next(sheet for sheet in sheets(environments(), known) if sheet.title == "aiokafka")
    assert sheet.rows[-1][:5] == ("0.14.0", "3.12", "4.4.0", "yes", "5")


def test_a_row_has_the_versions_of_kafka_that_its_results_are_from() -> None:
    old = Result(Verdict.YES, "", 5, 10, "2026-11-23", versions(OLDEST), "4.3.0")
    found = {("oldest", "aiokafka"): result(of=OLDEST), ("oldest", "kafka-python"): old}
    pythons, *clients = sheets(environments(), found)
    assert dict(zip(pythons.headings, pythons.rows[0], strict=True))["Kafka"] == "4.3.0, 4.4.0"
    rows = {sheet.title: dict(zip(sheet.headings, sheet.rows[0], strict=True)) for sheet in clients}
    assert {title: row["Kafka"] for title, row in rows.items()} == {
        "kafka-python": "4.3.0",
        "aiokafka": "4.4.0",
        "confluent-kafka": "",
        "pyspark": "",
    }


def test_the_page_links_to_that_of_kafka_versions_whenever_it_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    program.write_page({}, page)
    fixed = f"<!-- begin matrix -->\n\n{program.COVERS}\n**Python versions"
    assert "[Compatibility](compatibility.md)" in program.COVERS
    assert (program.PAGE.parent / "compatibility.md").exists()
    assert fixed in page.read_text(encoding="utf-8")
    assert fixed in program.PAGE.read_text(encoding="utf-8")


def test_the_documentation_has_the_recorded_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(program.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert program.main(["--table", "--page", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == program.PAGE.read_text(encoding="utf-8")


def test_the_package_names_the_pythons_of_the_matrix_and_none_that_failed() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'"Programming Language :: Python :: (\d\.\d+)"', project) == [*PYTHONS]
    assert f'requires-python = ">={PYTHONS[0]}"' in project
    known = results.read(program.RESULTS)
    cells = [(e, suite) for e in environments() for suite in e.suites if len(e.suites) > 1]
    assert [(e.name, suite) for e, suite in cells if result_of(e, suite, known).verdict is Verdict.NO] == []


def test_the_weekly_job_installs_each_python_and_starts_with_that_of_the_clients() -> None:
    job = (ROOT / ".github" / "workflows" / "matrix.yml").read_text(encoding="utf-8")
    installed = re.findall(r"^ {12}(\d\.\d+)$", job, re.MULTILINE)
    assert sorted(installed) == sorted(PYTHONS)
    assert installed[-1] == PYTHON_OF_CLIENTS
    for kept in (program.RESULTS, program.PAGE):
        assert f"            {kept.relative_to(ROOT)}\n" in job


def test_newer_versions_are_later_patches_and_later_minors_within_the_range() -> None:
    found = ["4.4.0", "3.0.0", "2.17.0", "2.16.2", "2.16.1", "2.9.3", "2.9.0", "2.8.2", "2.8.0", "2.7.0"]
    assert newer(("2.8.0", "2.9.0", "2.16.1"), found, "3") == (["2.9.3", "2.16.2", "2.17.0"], ["3.0.0", "4.4.0"])


def test_newer_versions_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(index, "available", lambda client: [*CLIENTS[client], "99.0"])
    assert program.main(["--newer"]) == 0
    assert "aiokafka 0.14.0: newer: none; not supported: 99.0\n" in capsys.readouterr().out


def test_an_unknown_environment_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--only", "python-2.7"]) == 2
    assert "no such environment: python-2.7" in capsys.readouterr().err


def test_all_environments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(environments())


def test_a_run_of_one_cell_writes_its_results_and_returns_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "find_interpreter", absent)
    monkeypatch.delenv("CI", raising=False)
    files = ["--results", str(tmp_path / "results.json"), "--page", str(tmp_path / "page.md")]
    arguments = ["--only", "oldest", "--suite", "core", "--cache", str(tmp_path), *files]
    assert program.main(arguments) == 0
    assert program.main([*arguments, "--strict"]) == 1
    monkeypatch.setenv("CI", "true")
    assert program.main(arguments) == 1
    assert [*results.read(tmp_path / "results.json")] == [("oldest", "core")]
    assert "oldest: not run" in capsys.readouterr().out
