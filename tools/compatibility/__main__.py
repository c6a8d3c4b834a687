"""Runs the checks on a cluster of each version, and writes what works into the documentation."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from rackassign.testing import VERSIONS, LocalCluster
from rackassign.testing._broker_config import resolve_version
from rackassign.testing.spark import session

from . import checks
from .cells import Cell, Check, Place, markdown, result, write

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"

CHECKS = (
    Check("range", "`RackAwareRangeAssignor`", checks.range_assignor),
    Check("optimal", "`RackAwareCooperativeStickyAssignor`", checks.optimal_assignor),
    Check("monitor", "rack monitor", checks.rack_monitor),
    Check("follower", "fetching from followers (KIP-392)", checks.follower_fetching),
    Check("inspect", "`inspect`", checks.inspect),
    Check("doctor", "`doctor`", checks.doctor),
    Check("doctor-848", "`doctor` of groups with server-side assignment (KIP-848)", checks.doctor_of_server_group),
    Check("audit", "`audit`", checks.audit),
    Check("create-topic", "`create-topic`", checks.create_topic),
    Check("reassign", "`reassign`", checks.reassign),
    Check("throttle", "`reassign apply --throttle`", checks.throttle),
    Check("leaders", "`balance-leaders`", checks.balance_leaders),
    Check("stateful", "`StatefulConsumer`", checks.stateful),
    Check("spark", "Spark source", checks.spark),
    Check("elr", "eligible leader replicas (KIP-966)", checks.eligible_leader_replicas),
    # Last: they stop a broker.
    Check("audit-outage", "`audit` while a broker is down", checks.audit_in_outage),
    Check("create-outage", "`create-topic` with replicas on a broker that is down", checks.create_in_outage),
)


def last_patches() -> list[str]:
    """Return the last patch release of each minor version."""
    return list(dict.fromkeys(resolve_version(version.rpartition(".")[0]) for version in VERSIONS))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; the exit code is 1 if a check failed for another reason than a missing feature of Kafka."""
    parser = argparse.ArgumentParser(prog="python -m tools.compatibility", description=__doc__)
    parser.add_argument(
        "--kafka-version", nargs="*", default=last_patches(), help="versions; the last patches if left out"
    )
    parser.add_argument("--check", nargs="*", choices=[check.name for check in CHECKS], help="checks; all if left out")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}, which needs all checks")
    chosen = parser.parse_args(arguments)
    if chosen.write and chosen.check:
        parser.error("--write needs all checks")
    checks = [check for check in CHECKS if not chosen.check or check.name in chosen.check]
    # What kafka-python logs about brokers that stop is not of interest here.
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    results: dict[str, Mapping[str, Cell]] = {}
    with ExitStack() as opened:
        # One session for all versions, from the first check that needs it.
        spark = cache(lambda: opened.enter_context(session("local[2]")))
        for version in chosen.kafka_version:
            results[resolve_version(version)] = checked(version, checks, spark)
    text = markdown(checks, results)
    if chosen.write:
        write(DOCUMENT, text)
    return int(any(cell.is_defect for cells in results.values() for cell in cells.values()))


def checked(version: str, checks: Sequence[Check], spark: Callable[[], Any]) -> dict[str, Cell]:
    """Run checks on a cluster of a version and show each result."""
    found = {}
    with LocalCluster(["a", "b", "c"], kafka_version=version) as cluster:
        for check in checks:
            begun = time.monotonic()
            found[check.name] = cell = result(check, _place(cluster, check, spark))
            took = time.monotonic() - begun
            sys.stdout.write(f"{version} {check.name}: {'yes' if cell.works else 'no'}, {cell.reason} ({took:.1f} s)\n")
            sys.stdout.flush()
    return found


@contextmanager
def _place(cluster: LocalCluster, check: Check, spark: Callable[[], Any]) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="rackassign-") as home:
        yield Place(cluster, check.name, Path(home), spark)


if __name__ == "__main__":
    sys.exit(main())
