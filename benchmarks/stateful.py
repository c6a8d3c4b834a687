"""Time until the next record of each partition after a zone is killed: with a warm standby, and without.

Six members in three zones and two clusters, with state of the given size in each partition. One zone is killed while
records are written. The time until the brokers have noticed is shown separately. Times are comparable only as a ratio
of the two, in one run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tables import Sheet, show
from rackassign.stateful._stores import DEFAULT
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing.harness import wait_until
from tests.helpers.kafka.stateful_group import PARTITIONS, SIX, SPREAD, Fleet, fill_changelog

TIMEOUT_S = 600.0
VALUE = bytes(range(256)) * 4


def stand_still(cluster: LocalCluster, standbys: int, records: int, folder: Path) -> tuple[list[float], float]:
    """Kill a zone; return when the next record of each of its partitions was processed, and when others took over.

    In seconds from the kill.
    """
    topic, group = f"input-{standbys}", f"group-{standbys}"
    create_topic(cluster.bootstrap, topic, SPREAD)
    log = f"{group}-{topic}-changelog"
    create_topic(cluster.bootstrap, log, SPREAD, config={"cleanup.policy": "compact"})
    for partition in range(PARTITIONS):
        changes = ((DEFAULT + b"%d" % number, VALUE) for number in range(records))
        fill_changelog(cluster.bootstrap, log, partition, changes)
    fleet = Fleet(cluster.bootstrap, group, topic, folder, standbys)
    try:
        for name in SIX:
            fleet.start(name)
        wait_until(lambda: fleet.settled(standbys), "six members", timeout_s=TIMEOUT_S)
        fleet.write(600)
        before = fleet.now()
        killed = time.time()
        fleet.kill("ax", "ay")
        gone = [partition for name in ("ax", "ay") for partition in before[name][0]]

        def said() -> Iterator[dict[str, Any]]:
            return (line for name in fleet.running for line in fleet.output_lines(name) if line["at"] > killed)

        def processed() -> dict[int, float]:
            """When a record of each of those partitions was first processed."""
            found: dict[int, float] = {}
            for line in said():
                for partition in set(gone).intersection(line.get("of", ())):
                    found[partition] = min(found.get(partition, line["at"]), line["at"])
            return found

        def all_go_on() -> bool:
            fleet.write(60)
            return len(processed()) == len(gone)

        wait_until(all_go_on, "records of all partitions", timeout_s=TIMEOUT_S)
        taken = min(
            line["at"]
            for line in said()
            if set(gone).intersection([*line.get("runs", ()), *line.get("restored", ())[:1]])
        )
        return [at - killed for at in processed().values()], taken - killed
    finally:
        fleet.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[1_000, 20_000, 60_000], help="of 1 kB, a partition")
    options = parser.parse_args(arguments)
    rows = []
    for records in options.records:
        found = {}
        with LocalCluster(["a", "b", "c"]) as cluster, tempfile.TemporaryDirectory() as folder:
            for standbys in (1, 0):
                place = Path(folder) / str(standbys)
                place.mkdir()
                found[standbys] = stand_still(cluster, standbys, records, place)
        (warm, noticed), (cold, noticed_cold) = found[1], found[0]
        longest = (max(cold) - noticed_cold) / max(0.001, max(warm) - noticed)
        rows.append((
            f"{records:,}",
            f"{noticed:.1f}",
            f"{median(warm) - noticed:.1f} ({max(warm) - noticed:.1f})",
            f"{median(cold) - noticed_cold:.1f} ({max(cold) - noticed_cold:.1f})",
            f"{longest:.1f}",
            f"{max(cold) / max(warm):.1f}",
        ))  # fmt: skip
    headings = (
        "records of 1 kB in each partition",
        "s until others take over",
        "then to the next record, with standbys: median (longest)",
        "without",
        "without / with",
        "with the time to notice",
    )
    show([Sheet("From the death of a zone to the next record of its partitions", headings, rows)])


if __name__ == "__main__":
    main()
