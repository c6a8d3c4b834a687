"""The whole of it: a cluster of three racks, two groups, two jobs, one page. Ends by itself.

make pipeline        or        python -m examples.pipeline --out build/pipeline
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipeline import page
from examples.pipeline.groups import RACKS
from examples.pipeline.page import Saving
from examples.pipeline.readings import WINDOW_SCHEMA, WINDOWS, read_all
from examples.pipeline.results import CONFIG, ResultTopic
from examples.pipeline.savings import bad_records, savings
from examples.pipeline.traffic import REPLICAS, SNAPSHOTS, Names, traffic
from rackassign.errors import RackassignError
from rackassign.monitoring import Price
from rackassign.rack_sources import RACK_VARIABLE
from rackassign.spark import doctor
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing.spark import SparkCluster, check_java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARK = ".pipeline"
"""A file that marks a folder as one of ours, which may be emptied."""


def evaluate(spark: SparkSession, names: Names) -> tuple[Path, list[Saving]]:
    """Run both jobs and write the page; return where it is, and what is on it."""
    read_all(spark, names.counters, ResultTopic(names.bootstrap, names.results), names.folder)
    found = savings(spark, names.folder, names.folder / SNAPSHOTS, Price())
    file = names.folder / "page.html"
    file.write_text(page.page(found, bad_records(spark, names.folder)), "utf-8")
    return file, found


def windows_kept(spark: SparkSession, names: Names) -> tuple[int, int]:
    """Return how many windows are in Parquet, and how many of them are in the topic with the same figures."""
    sent = ResultTopic(names.bootstrap, names.results).read(spark, WINDOW_SCHEMA)
    kept = spark.read.parquet(str(names.folder / WINDOWS)).select(*sent.columns)
    return kept.count(), kept.intersect(sent).count()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all of it, and print the path of the page and its figures."""
    parser = argparse.ArgumentParser(prog="pipeline", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/pipeline"), help="folder for the results, made anew")
    parser.add_argument("--seconds", type=float, default=20, help="of traffic, before and after")
    parser.add_argument("--local", action="store_true", help="Spark in one process and one rack, without workers")
    options = parser.parse_args(arguments)
    # Errors are raised. Libraries log them besides, with tracebacks, also where they are just closed or interrupted.
    logging.basicConfig(level=logging.CRITICAL)
    # What a service is stopped with ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    check_java()
    folder = options.out.resolve()
    make_anew(folder)
    with ExitStack() as running:
        _say("Starting three brokers in racks a, b and c")
        cluster = running.enter_context(LocalCluster(RACKS))
        names = Names(cluster.bootstrap, "orders", "rackassign.locality", "rackassign.windows", folder)
        create_topic(cluster.bootstrap, names.topic, REPLICAS)
        create_topic(cluster.bootstrap, names.counters, REPLICAS[:3])
        create_topic(cluster.bootstrap, names.results, REPLICAS[:3], config=CONFIG)
        _say(f"Two groups read, {options.seconds:.0f} s as they are and {options.seconds:.0f} s with rackassign")
        bad = traffic(names, options.seconds)
        _say(f"Published what they read, and {bad} bad messages; starting Spark")
        if options.local:
            os.environ[RACK_VARIABLE] = RACKS[0]
        master = "local[2]" if options.local else running.enter_context(SparkCluster(RACKS)).master
        spark = running.enter_context(session(master))
        seen = doctor(spark, cluster.bootstrap, names.counters)
        _say(f"Executors stand in racks {', '.join(sorted(str(each.rack) for each in seen.executors))}; two jobs")
        file, found = evaluate(spark, names)
        kept, sent = windows_kept(spark, names)
    before, after = page.costs(found)
    predicted, measured = page.headline(found)
    print(
        f"{file}\n"
        f"windows: {kept} in Parquet, {sent} of them equal in topic {names.results}\n"
        f"across racks in a month, measured: {before} before, {after} with rackassign\n"
        f"saving in a month: predicted {predicted}, measured {measured}"
    )


def make_anew(folder: Path) -> None:
    """Empty the folder of the results, if it is one."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise SystemExit(f"{folder} is not empty, and not of an earlier run")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()


def _say(step: str) -> None:
    print(step, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except RackassignError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        # All has been ended on the way here.
        sys.exit(130)
