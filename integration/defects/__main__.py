"""Shows all of it: `python -m integration.defects [SCENE ...]`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version

from benchmarks.show import Sheet, show
from rackassign.testing import LocalCluster

from . import joins, reads
from .scene import Row, Scene

SCENES: Mapping[str, tuple[str, Callable[[Scene], list[Row]]]] = {
    "members": ("A member that sends broken bytes (left: all remedies but guard_members)", joins.broken_members),
    "claims": ("Partitions that nobody owns, in a stable group", joins.claims),
    "joins": ("Joins that finish between two polls", joins.joins_between_polls),
    "added": ("Joins that a change of the metadata starts", joins.partitions_added),
    "pauses": ("Cooperative rebalances (left: all remedies but fetch_while_joining)", joins.pauses),
    "followers": ("Fetching from followers", reads.followers),
    "watch": ("Watching replica racks: naive, and rackassign", reads.watching),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        print(f"no scene {', '.join(unknown)}; there are {', '.join(SCENES)}", file=sys.stderr)
        return 2
    # What the host logs of its defects is not what is counted here.
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    logging.getLogger("rackassign").setLevel(logging.ERROR)
    stock = f"kafka-python {version('kafka-python')}"
    with LocalCluster(["a", "b", "c"]) as cluster:
        scene = Scene(cluster)
        for name in names or SCENES:
            title, play = SCENES[name]
            show([Sheet(title, ("", stock, "rackassign"), play(scene))])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
