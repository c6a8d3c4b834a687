"""Shows kafka-python's defects on real brokers, without and with the patches."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.tables import Sheet, show, write_markdown
from rackassign.testing import LocalCluster

from . import joins, reads
from .environment import Row, ScenarioCluster

SCENES: Mapping[str, tuple[str, Callable[[ScenarioCluster], list[Row]]]] = {
    "members": (
        "A member that sends malformed metadata (left: all patches but tolerate_malformed_metadata)",
        joins.broken_members,
    ),
    "claims": ("Unowned partitions in a stable group", joins.claims),
    "joins": ("Joins that complete between two polls", joins.joins_between_polls),
    "added": ("Joins that a metadata change starts", joins.partitions_added),
    "pauses": ("Cooperative rebalances (left: all patches but fetch_during_rebalance)", joins.pauses),
    "followers": ("Fetching from followers", reads.followers),
    "watch": ("Monitoring replica racks: naive, and rackassign", reads.watching),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.defects", description=__doc__)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"{', '.join(SCENES)}; all if left out")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="the document to write the tables into")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.scenes if name not in SCENES]
    if unknown:
        parser.error(f"no scene {', '.join(unknown)}; there are {', '.join(SCENES)}")
    # What kafka-python logs about its defects is not counted here.
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    logging.getLogger("rackassign").setLevel(logging.ERROR)
    stock = f"kafka-python {version('kafka-python')}"
    sheets = []
    with LocalCluster(["a", "b", "c"]) as cluster:
        scene = ScenarioCluster(cluster)
        for name in chosen.scenes or SCENES:
            title, play = SCENES[name]
            sheets.append(Sheet(title, ("", stock, "rackassign"), play(scene)))
            show(sheets[-1:])
    if chosen.markdown is not None:
        write_markdown(chosen.markdown, "defects", sheets)


if __name__ == "__main__":
    main()
