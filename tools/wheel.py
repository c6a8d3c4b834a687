"""The wheel and the source distribution, built and checked, and what an environment with the wheel must have.

`make release-check` builds both as they are published, and with a tag checks that it is that of a release.

`noxfile.py` installs the wheel alone and with each extra alone, into environments of their own. Each must import what
it is for, and nothing that another extra brings.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageMetadata, distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "build" / "dist"

_NOT_IN_SDIST = (".gitignore",)
"""What only the repository needs."""


@dataclass(frozen=True, slots=True)
class Extra:
    """What an environment is for."""

    # The extra, or several; empty for none.
    name: str
    # Statements that must run.
    imports: tuple[str, ...]
    # Modules that it must not bring.
    absent: tuple[str, ...] = ()


_PLUGIN_IS_FOUND = (
    "from importlib.metadata import entry_points; "
    "entry_points(group='pytest11')['rackassign.testing.pytest_plugin'].load()"
)

EXTRAS = (
    Extra(
        "",
        ("from rackassign import RackAwareConsumer, attach", "from rackassign.strategies import strategy"),
        ("typer", "rich", "aiokafka", "confluent_kafka", "pyspark", "pytest", "prometheus_client", "jgo"),
    ),
    Extra("cli", ("from rackassign.cli.app import run",), ("aiokafka", "confluent_kafka", "pyspark", "pytest", "jgo")),
    Extra("aiokafka", ("from rackassign.clients.aiokafka import RackAwareConsumer",), ("confluent_kafka", "typer")),
    Extra("confluent", ("from rackassign.clients.confluent import RackAwareConsumer",), ("aiokafka", "typer")),
    Extra("faust", ("from rackassign.integrations.faust import RackAwareApp",), ("confluent_kafka", "typer")),
    Extra("quix", ("from rackassign.integrations.quix import RackAwareApplication",), ("aiokafka", "pyspark")),
    Extra("prometheus", ("from rackassign.monitoring.prometheus import ConsumerMetrics",), ("typer", "pyspark")),
    Extra("opentelemetry", ("from rackassign.monitoring.opentelemetry import OpenTelemetryMetrics",), ("typer",)),
    Extra("msgpack", ("from rackassign.stateful import msgpack; msgpack()",), ("typer",)),
    Extra(
        "testing",
        ("from rackassign.testing import LocalCluster", _PLUGIN_IS_FOUND),
        ("typer", "pyspark", "aiokafka"),
    ),
    Extra("docker", ("import rackassign.testing._docker_cluster",), ("typer", "pyspark", "jgo")),
    Extra(
        "bill",
        ("from rackassign.bill.invoice import read_invoice", "from rackassign.monitoring.metrics_text import *"),
        ("typer", "pyspark", "aiokafka"),
    ),
    Extra("spark", ("import pyspark_rackassign",), ("typer", "pytest", "aiokafka")),
    Extra("spark-platform", ("import pyarrow, confluent_kafka",), ("pyspark", "typer", "pytest", "aiokafka")),
    Extra("msk", ("from rackassign.spark.msk import *",), ("typer", "pyspark")),
    Extra("docs", ("import mkdocs, mkdocstrings",), ("typer", "pyspark")),
    Extra("cli,testing", ("from rackassign.cli.commands.cluster import up",), ("pyspark", "aiokafka")),
)

READ_WITH_SPARK = """
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from rackassign.testing import LocalCluster, create_topic

with LocalCluster(["a"]) as cluster:
    create_topic(cluster.bootstrap, "t", [[1]] * 2)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    for number in range(100):
        producer.send("t", b"%d" % number)
    producer.close()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    reader = spark.read.format("rackassign").option("kafka.bootstrap.servers", cluster.bootstrap)
    assert reader.option("subscribe", "t").load().count() == 100
    spark.stop()
"""


@cache
def build() -> Path:
    """Build and check both; return the wheel."""
    for old in DIST.glob("*"):
        old.unlink()
    _run("build", "--outdir", DIST)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    _run("twine", "check", "--strict", wheel, source)
    # pyspark_rackassign is a module beside the package, where Spark looks for it.
    _run("check_wheel_contents", "--toplevel", "rackassign,pyspark_rackassign.py", wheel)
    if missing := missing_from(source):
        raise SystemExit(f"{source.name} lacks {', '.join(missing[:10])}")
    if relative := relative_links(metadata(wheel)["Description"]):
        raise SystemExit(f"on a package index the README would have links to {', '.join(relative)}")
    print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB; {source.name}: {source.stat().st_size // 1024} KiB")
    return wheel


def _run(module: str, *words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", module, *words], check=True, cwd=ROOT)


def missing_from(source: Path) -> list[str]:
    """Return the files of the repository that a source distribution lacks."""
    with tarfile.open(source) as packed:
        found = {name.partition("/")[2] for name in packed.getnames()}
    git = ["git", "ls-files"]
    listed = subprocess.run(git, capture_output=True, check=True, cwd=ROOT, text=True).stdout.splitlines()
    return sorted(name for name in listed if name not in found and not name.startswith(_NOT_IN_SDIST))


def metadata(wheel: Path) -> PackageMetadata:
    """Return what a package index knows of a wheel."""
    (built,) = distributions(path=[str(wheel)])
    return built.metadata


def relative_links(markdown: str) -> list[str]:
    """Return the targets of links and pictures that depend on where the text is."""
    return re.findall(r"\]\((?!https://)([^)\s]*)\)", markdown)


def not_ready(tag: str, version: str, description: str, changelog: str) -> list[str]:
    """Return what has to change before a tag is published."""
    checks = {
        f"version {version} has the tag v{version}, not {tag}": tag == f"v{version}",
        f"CHANGELOG.md has no section {version}": f"\n## {version} " in changelog,
        "README.md installs from a clone": "not on a package index" not in " ".join(description.split()),
    }
    return [problem for problem, passed in checks.items() if not passed]


def main() -> None:
    """Build and check both, and the tag of a release if there is one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tag", default="")
    tag = parser.parse_args().tag
    built = metadata(build())
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    if tag and (problems := not_ready(tag, built["Version"], built["Description"], changelog)):
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
