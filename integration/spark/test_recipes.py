"""The files of examples/spark give executors their rack, as far as that can be tried on one machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark
import pytest

from tests.helpers.kafka.spark_harness import check_java

pytestmark = [pytest.mark.spark, pytest.mark.local]

RECIPES = Path(__file__).parents[2] / "examples" / "spark"
JOB = """
import os
from pyspark.sql import SparkSession
with SparkSession.builder.getOrCreate() as spark:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("RACKASSIGN_RACK")).collect()
    print("rack of the executor:", found)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without a rack, on a machine whose labels have one."""
    labels = tmp_path / "labels"
    labels.write_text('topology.kubernetes.io/zone="zone-7"\n', "ascii")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RACKASSIGN_", "SPARK_"))}
    return {
        **inherited,
        "RACKASSIGN_RACK_FILE": str(labels),
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}",
    }


def run(words: list[str], environment: dict[str, str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


def job(tmp_path: Path, environment: dict[str, str], *words: str) -> str:
    """Submit a job to a Spark with an executor in a process of its own, and return what it prints."""
    check_java()
    file = tmp_path / "job.py"
    file.write_text(JOB, "ascii")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    cluster = [
        "--master",
        "local-cluster[1,1,512]",
        "--conf",
        "spark.executor.memory=512m",
        "--conf",
        "spark.ui.enabled=false",
    ]
    done = run(
        [str(submit), *cluster, *words, str(file)], {**environment, "SPARK_HOME": str(submit.parents[1])}, RECIPES
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_executors_inherit_what_spark_env_exports(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "spark-env.sh").write_text((RECIPES / "spark-env.sh").read_text("utf-8"), "utf-8")
    assert "['zone-7']" in job(tmp_path, {**environment, "SPARK_CONF_DIR": str(tmp_path)})


def test_the_python_of_executors_sets_their_rack(tmp_path: Path, environment: dict[str, str]) -> None:
    environment["RACKASSIGN_PYTHON"] = sys.executable
    executors = ("--files", "python-with-rack.sh", "--conf", "spark.pyspark.python=./python-with-rack.sh")
    driver = ("--conf", f"spark.pyspark.driver.python={sys.executable}")
    assert "['zone-7']" in job(tmp_path, environment, *executors, *driver)


def test_what_is_set_already_wins(environment: dict[str, str]) -> None:
    environment["RACKASSIGN_RACK"] = "mine"
    sourced = run(["sh", "-c", f". {RECIPES / 'spark-env.sh'}; echo $RACKASSIGN_RACK"], environment)
    program = "import os; print(os.environ['RACKASSIGN_RACK'])"
    wrapped = run([str(RECIPES / "python-with-rack.sh"), "-c", program], environment)
    assert (sourced.stdout, wrapped.stdout) == ("mine\n", "mine\n")


def test_a_cluster_in_one_zone_gets_its_rack_with_the_job(tmp_path: Path, environment: dict[str, str]) -> None:
    stand_in = tmp_path / "spark-submit"
    stand_in.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n', "ascii")
    stand_in.chmod(0o755)
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    submit = [str(RECIPES / "submit-in-one-zone.sh"), "--name", "two words", "job.py"]
    assert run(submit, environment).stdout.splitlines() == [
        *("--conf", "spark.executorEnv.RACKASSIGN_RACK=zone-7"),
        *("--conf", "spark.yarn.appMasterEnv.RACKASSIGN_RACK=zone-7"),
        *("--name", "two words", "job.py"),
    ]
    environment["PYSPARK_PYTHON"] = str(tmp_path / "silent")
    (tmp_path / "silent").write_text("#!/bin/sh\n", "ascii")
    (tmp_path / "silent").chmod(0o755)
    unknown = run(submit, environment)
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "submit-in-one-zone.sh: the zone of this machine is not known: set RACKASSIGN_RACK\n"


def test_an_init_script_writes_what_spark_reads_at_its_start(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "databricks" / "spark" / "conf").mkdir(parents=True)
    python = tmp_path / "databricks" / "python" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # Nothing is installed in a test.
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] && echo "$@" || exec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    script, settings = str(RECIPES / "databricks-init.sh"), {**environment, "DATABRICKS_ROOT": str(tmp_path)}
    without = run(["bash", script], settings)
    assert (without.returncode, without.stdout) == (1, "")
    assert "WHEEL: set it to the path of rackassign's wheel" in without.stderr
    done = run(["bash", script], {**settings, "WHEEL": "/Volumes/a/rackassign.whl"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "-m pip install --quiet /Volumes/a/rackassign.whl[spark-platform]\n"
    written = (tmp_path / "databricks" / "spark" / "conf" / "spark-env.sh").read_text("utf-8")
    assert written == "export RACKASSIGN_RACK=zone-7\n"


@pytest.mark.parametrize(
    ("wheel", "copied"),
    [
        ("s3://bucket/rackassign-0.1-py3-none-any.whl", "aws s3 cp"),
        ("gs://bucket/rackassign-0.1-py3-none-any.whl", "gcloud storage cp"),
    ],
)
def test_nodes_of_a_cluster_install_a_wheel_and_keep_their_pyspark(
    tmp_path: Path, environment: dict[str, str], wheel: str, copied: str
) -> None:
    for name in ("aws", "gcloud", "sudo"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n', "ascii")
        (tmp_path / name).chmod(0o755)
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    script = str(RECIPES / "cluster-init.sh")
    first, second = run(["bash", script, wheel], environment).stdout.splitlines()
    assert first.startswith(f"{copied} {wheel} ")
    # `sudo` may have another path.
    assert second.startswith(f"sudo {shutil.which('python3', path=environment['PATH'])} -m pip install --quiet ")
    assert second.endswith("/rackassign-0.1-py3-none-any.whl[spark-platform]")
    without = run(["bash", script], environment)
    assert (without.returncode, without.stdout) == (1, "")
    assert "pass the address of rackassign's wheel" in without.stderr


def test_a_python_that_is_too_old_is_named_before_anything_is_installed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    old = tmp_path / "python3.9"
    old.write_text(
        f"#!/bin/sh\nshift\nprogram=$1\nshift\nexec {sys.executable} -c"
        ' "import sys; sys.version_info = (3, 9, 25)\n$program" "$@"\n',
        "utf-8",
    )
    old.chmod(0o755)
    found = run(["bash", str(RECIPES / "cluster-init.sh"), "s3://bucket/WHEEL", str(old)], environment)
    assert (found.returncode, found.stdout) == (1, "")
    assert f"cluster-init.sh: {old} is Python 3.9, and rackassign needs 3.10 or newer: " in found.stderr


def test_the_list_of_yarn_has_the_variable() -> None:
    root = ET.parse(RECIPES / "yarn-site.xml").getroot()  # noqa: S314 - our own file
    properties = {each.findtext("name"): each.findtext("value") for each in root.iter("property")}
    assert (properties["yarn.nodemanager.env-whitelist"] or "").split(",")[-1] == "RACKASSIGN_RACK"
