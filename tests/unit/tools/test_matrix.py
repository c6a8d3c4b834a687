"""The matrix of client versions: what is run, how its reports are read, what is recorded, and the page."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import matrix
from tools.matrix import (
    CLIENTS,
    PYTHON_OF_CLIENTS,
    PYTHONS,
    ROOT,
    SUITES,
    Environment,
    Result,
    environments,
    find_interpreter,
    read_report,
    result_of,
    sheets,
)

OLDEST = environments()[0]
ALONE = Environment("pyspark-4.1.4", "3.12", {"pyspark": "4.1.4"}, ("pyspark",))
PASSED = '<testcase classname="a" name="b"/>'


def result(*, of: Environment = ALONE, kafka: str = "4.4.0") -> Result:
    return Result("yes", "", 5, 10, "2026-11-23", of.versions, kafka)


def report(path: Path, *cases: str) -> Path:
    file = path / "report.xml"
    file.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>", encoding="utf-8")
    return file


def skipped(reason: str) -> str:
    return f'<testcase classname="a" name="c"><skipped type="pytest.skip" message="{reason}">x</skipped></testcase>'


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
    assert f">={CLIENTS[client][0].removesuffix('.0')}" in {str(bound) for bound in allowed}


def test_each_version_of_a_client_runs_once_beside_the_newest_ones() -> None:
    newest = {client: pinned[-1] for client, pinned in CLIENTS.items()}
    ran = [(client, version) for e in environments() for client, version in e.pins.items() if version != newest[client]]
    assert sorted(ran) == sorted((c, v) for c, pinned in CLIENTS.items() for v in pinned[:-1])


def test_the_corners_run_all_suites() -> None:
    everything = [e for e in environments() if e.suites == tuple(SUITES)]
    assert [e.python for e in everything] == ["3.10", "3.14", "3.13", "3.12", "3.11"]
    assert everything[0].pins == {client: pinned[0] for client, pinned in CLIENTS.items()}
    assert everything[1].pins == {client: pinned[-1] for client, pinned in CLIENTS.items()}
    assert PYTHON_OF_CLIENTS in PYTHONS


def test_names_of_environments_are_unique() -> None:
    names = [e.name for e in environments()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("test", sorted({test for suite in SUITES.values() for test in suite.tests}))
def test_each_test_of_a_suite_exists(test: str) -> None:
    path, _, function = test.partition("::")
    assert (ROOT / path).exists()
    if function:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert function.partition("[")[0] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_requirements_have_the_extras_and_the_exact_versions() -> None:
    assert OLDEST.requirements[:2] == ["--editable", ".[aiokafka,cli,confluent,msk,spark,testing]"]
    assert {"kafka-python[crc32c]==3.0.9", "aiokafka==0.14.0", "pyspark==4.0.0"} <= {*OLDEST.requirements}
    assert ALONE.requirements[1] == ".[cli,msk,spark,testing]"


def test_a_report_without_failures_is_yes(tmp_path: Path) -> None:
    assert read_report(report(tmp_path, PASSED, PASSED)) == Result("yes", "", 2)


def test_a_report_names_the_first_failure_in_one_line(tmp_path: Path) -> None:
    failed = '<testcase classname="t.test_x" name="test_y"><failure message="AttributeError: no&#10;x">y</failure>'
    error = '<testcase classname="t.test_x" name="test_z"><error message="OSError: no space">y</error></testcase>'
    found = read_report(report(tmp_path, failed + "</testcase>", error, PASSED, skipped("no Java")))
    assert found == Result("no", "2 failed, the first: t.test_x::test_y - AttributeError: no x", 1)


def test_a_module_that_cannot_be_imported_is_named_with_the_error(tmp_path: Path) -> None:
    text = "import typer\nE   ModuleNotFoundError: No module named 'typer'"
    case = f'<testcase classname="" name="t.test_x"><error message="collection failure">{text}</error></testcase>'
    reason = "1 failed, the first: t.test_x - ModuleNotFoundError: No module named 'typer'"
    assert read_report(report(tmp_path, case)) == Result("no", reason, 0)


def test_a_skipped_test_is_no_proof_unless_it_needs_a_later_version(tmp_path: Path) -> None:
    assert read_report(report(tmp_path, PASSED, skipped("no Java 17"))) == Result("not run", "skipped: no Java 17", 1)
    later = skipped("needs pyspark 4.1")
    assert read_report(report(tmp_path, PASSED, later)) == Result(
        "yes", "skipped, since they need pyspark 4.1: 1 tests", 1
    )
    assert read_report(report(tmp_path, PASSED, later, skipped("no Java 17"))).verdict == "not run"


def test_a_run_without_a_test_is_no_and_one_without_a_report_an_error(tmp_path: Path) -> None:
    assert read_report(report(tmp_path)) == Result("no", "no test ran")
    with pytest.raises(FileNotFoundError):
        read_report(tmp_path / "absent.xml")


def test_a_reason_fits_into_a_table(tmp_path: Path) -> None:
    long = f'<testcase classname="a" name="b"><failure message="{"x" * 1000}"/></testcase>'
    assert len(read_report(report(tmp_path, long)).reason) == 160
    assert Result("no", "int | None").text == "no: int \\| None"


def test_a_report_is_read_as_pytest_writes_it(tmp_path: Path) -> None:
    tests = [
        "import pytest",
        "def test_passed(): pass",
        "def test_skipped(): pytest.skip('needs pyspark 4.1')",
        "@pytest.mark.xfail",
        "def test_expected(): assert False",
    ]
    (tmp_path / "test_x.py").write_text("\n".join(tests), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "--junitxml=r.xml", "test_x.py"], cwd=tmp_path, check=True)
    assert read_report(tmp_path / "r.xml") == Result("yes", "skipped, since they need pyspark 4.1: 1 tests", 1)


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


def test_results_are_added_to_those_of_earlier_runs(tmp_path: Path) -> None:
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    file.write_text("[]", encoding="utf-8")
    page.write_text("<!-- begin matrix -->\n<!-- end matrix -->\n", encoding="utf-8")
    failed = Result("no", "1 failed", 1, 1, "2026-11-23", OLDEST.versions, "4.4.0")
    matrix.record(("oldest", "core"), result(of=OLDEST), file)
    matrix.record(("oldest", "aiokafka"), failed, file)
    matrix.record(("oldest", "core"), Result("not run", "no Java", versions=OLDEST.versions), file)
    known = matrix.read(file)
    assert known == {("oldest", "core"): result(of=OLDEST), ("oldest", "aiokafka"): failed}
    matrix.write_page(known, page)
    row = next(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| 3.10 |"))
    assert "| yes |" in row
    assert "| 0.14.0 no: 1 failed |" in row
    assert "`make matrix ONLY=oldest`" in row


def test_only_what_is_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin matrix -->\nold\n<!-- end matrix -->\nafter\n", encoding="utf-8")
    matrix.write_page({}, page)
    found = page.read_text(encoding="utf-8")
    assert found.startswith(f"before\n<!-- begin matrix -->\n\n{matrix.COVERS}")
    assert found.endswith("\n<!-- end matrix -->\nafter\n")
    assert "old\n" not in found
    page.write_text("no marks\n", encoding="utf-8")
    with pytest.raises(ValueError, match="marks"):
        matrix.write_page({}, page)
    assert page.read_text(encoding="utf-8") == "no marks\n"


def test_a_result_of_other_versions_does_not_count() -> None:
    assert result_of(OLDEST, "core", {}).text == "not run: no run yet"
    older = Result("yes", "", 5, 10, "2026-01-01", OLDEST.versions.replace("3.0.9", "3.0.4"), "4.4.0")
    expected = "not run: last run on 2026-01-01 with kafka-python 3.0.4"
    assert result_of(OLDEST, "core", {("oldest", "core"): older}).text == expected


def test_a_version_is_proven_by_an_environment_that_ran() -> None:
    ran = next(e for e in environments() if e.name == "python-3.12")
    sheet = next(sheet for sheet in sheets({(ran.name, "aiokafka"): result(of=ran)}) if sheet.title == "aiokafka")
    assert sheet.rows[-1][:5] == ("0.14.0", "3.12", "4.4.0", "yes", "5")


def test_a_row_has_the_versions_of_kafka_that_its_results_are_from() -> None:
    found = {("oldest", "aiokafka"): result(of=OLDEST), ("oldest", "kafka-python"): result(of=OLDEST, kafka="4.3.0")}
    pythons, *clients = sheets(found)
    assert dict(zip(pythons.headings, pythons.rows[0], strict=True))["Kafka"] == "4.3.0, 4.4.0"
    rows = {sheet.title: dict(zip(sheet.headings, sheet.rows[0], strict=True)) for sheet in clients}
    assert {title: row["Kafka"] for title, row in rows.items()} == {
        "kafka-python": "4.3.0",
        "aiokafka": "4.4.0",
        "confluent-kafka": "",
        "pyspark": "",
    }


def test_the_documentation_has_the_recorded_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(matrix.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    matrix.write_page(matrix.read(), page)
    assert page.read_text(encoding="utf-8") == matrix.PAGE.read_text(encoding="utf-8")
    assert f"<!-- begin matrix -->\n\n{matrix.COVERS}\n**Python versions" in page.read_text(encoding="utf-8")


def test_the_package_names_the_pythons_of_the_matrix_and_none_that_failed() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'"Programming Language :: Python :: (\d\.\d+)"', project) == [*PYTHONS]
    assert f'requires-python = ">={PYTHONS[0]}"' in project
    known = matrix.read()
    cells = [(e, suite) for e in environments() for suite in e.suites if len(e.suites) > 1]
    assert [(e.name, suite) for e, suite in cells if result_of(e, suite, known).verdict == "no"] == []


def test_the_weekly_job_installs_each_python_and_starts_with_that_of_the_clients() -> None:
    job = (ROOT / ".github" / "workflows" / "matrix.yml").read_text(encoding="utf-8")
    installed = re.findall(r"^ {12}(\d\.\d+)$", job, re.MULTILINE)
    assert sorted(installed) == sorted(PYTHONS)
    assert installed[-1] == PYTHON_OF_CLIENTS
    for kept in (matrix.RESULTS, matrix.PAGE):
        assert f"            {kept.relative_to(ROOT)}\n" in job


def test_what_is_mutated_and_its_tests_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("\n[tool.mutmut]\n")[2].partition("\n[")[0]
    named = re.findall(r'^  "(rackassign[^"*]*|tests/[^"]*)', section, re.MULTILINE)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
