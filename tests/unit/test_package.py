"""What importing costs, and what the package promises by its names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rackassign


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return {name.partition(".")[0] for name in run.stdout.split()}


@pytest.mark.parametrize("statement", ["import rackassign", "import rackassign.scenario"])
def test_the_core_imports_no_client_and_no_numpy(statement: str) -> None:
    assert not modules_after(statement) & {"kafka", "numpy", "typer", "rich", "jgo"}


NEEDED_BY_PLANS = {"numpy", "scipy", "pyarrow", "jinja2", "rich", "prometheus_client"}


@pytest.mark.parametrize(
    "statement",
    [
        "import rackassign; from rackassign import RackAwareConsumer, attach",
        "import rackassign; rackassign.RackAwareRangeAssignor(); rackassign.RackAwareCooperativeStickyAssignor('a')",
        "import rackassign as r; r.RackAwareStickyAssignor(rack='a', weights={'t': [1, 2]}, costs={'a': {'b': 2}})",
        "from rackassign import ByteRates; ByteRates(bootstrap_servers='localhost:9092')",
        "import rackassign.stateful; from rackassign import StandbyAwareAssignor; StandbyAwareAssignor(rack='a')",
        "from rackassign.strategies import Options, strategy; Options(max_skew=1); strategy('sticky')",
        "from rackassign.strategies.standby import StandbyOptions; StandbyOptions()",
        "from rackassign.clients.aiokafka import RackAwareConsumer, RackAwareStickyAssignor as S; S('a')",
        "from rackassign.clients.confluent import RackAwareConsumer, StatsMeter",
    ],
)
def test_what_only_a_leader_needs_is_not_loaded_for_a_member(statement: str) -> None:
    assert not modules_after(statement) & NEEDED_BY_PLANS


@pytest.mark.parametrize(
    "package", ["rackassign.clients.kafka_python", "rackassign.testing", "rackassign.testing._docker_cluster"]
)
def test_names_that_are_resolved_later_are_listed(package: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import {package} as it; print(set(it.__all__) <= set(dir(it)))"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert run.stdout == "True\n"


def test_public_names_are_resolved_when_used() -> None:
    for name in rackassign.__all__:
        assert getattr(rackassign, name).__name__ == name
        assert name in dir(rackassign)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = rackassign.Nothing


@pytest.mark.parametrize(
    ("package", "extra", "missing"),
    [
        ("rackassign.clients.aiokafka", "aiokafka", "aiokafka"),
        ("rackassign.clients.confluent", "confluent", "confluent_kafka"),
        ("rackassign.clients.confluent", "confluent", "msgspec"),
        ("rackassign.bill.snapshots", "bill", "pyarrow"),
        ("rackassign.integrations.faust", "faust", "faust, aiokafka"),
        ("rackassign.integrations.quix", "quix", "quixstreams, confluent_kafka"),
        ("rackassign.monitoring.opentelemetry", "opentelemetry", "opentelemetry"),
        ("rackassign.monitoring.prometheus", "prometheus", "prometheus_client"),
    ],
)
def test_a_package_without_its_extra_names_the_extra(package: str, extra: str, missing: str) -> None:
    code = f"""
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing.split(", ")}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from rackassign.errors import MissingExtraError
try:
    import {package}
except MissingExtraError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert f"pip install 'rackassign[{extra}]'" in run.stdout


def test_the_pytest_plugin_loads_no_client() -> None:
    # pytest loads it in each run where it is installed.
    loaded = modules_after("import rackassign.testing.pytest_plugin")
    assert "pytest" in loaded
    assert not loaded & {"kafka", "numpy", "confluent_kafka", "jgo", "docker", "testcontainers"}


@pytest.mark.parametrize("enabled", [["-p", "rackassign.testing.pytest_plugin"], []], ids=["by name", "by itself"])
def test_with_the_pytest_plugin_warnings_can_be_errors(tmp_path: Path, enabled: list[str]) -> None:
    # What Python 3.11 and 3.12 deprecate is used by kafka-python while it is imported.
    (tmp_path / "test_it.py").write_text(
        "def test_it(unique_name):\n    import kafka\n    assert unique_name()\n", "utf-8"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *enabled, "--rootdir", str(tmp_path)]
    run = subprocess.run([*command, "test_it.py"], cwd=tmp_path, capture_output=True, check=False, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("extra", ["testing", "docker"])
def test_an_extra_with_clusters_has_pytest_for_the_plugin(extra: str) -> None:
    lines = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8").splitlines()
    assert ['"pytest>=' in line for line in lines if line.startswith(f"{extra} = [")] == [True]


def test_tests_can_run_in_the_source_distribution() -> None:
    root = Path(__file__).parents[2]
    text = (root / "pyproject.toml").read_text("utf-8")
    included = set(re.findall(r'"([^"]+)"', text.partition("[tool.hatch.build.targets.sdist]")[2].partition("\n]")[0]))
    read = {
        name
        for file in (root / "tests").rglob("*.py")
        for name in re.findall(r'(?:ROOT|parents\[\d\]\)?) / "([\w.-]+)"', file.read_text("utf-8"))
        if (root / name).exists()
    }
    assert {".github", "broker-plugin"} <= read
    assert read - included <= {"pyproject.toml"}, "these are in no source distribution"
