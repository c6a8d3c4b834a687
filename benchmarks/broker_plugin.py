"""Planning time of the broker plug-in beside Kafka's `uniform`, in one JVM: `python -m benchmarks.broker_plugin`.

Both get the same groups from the classes of Kafka's coordinator, and are timed in blocks that take turns: the processor
time of a call. It needs a JDK 17 or later.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from statistics import median

from benchmarks.cases import OWNERS, Shape, shapes_by_owners
from benchmarks.tables import Sheet, show, write_markdown
from rackassign.model import BalanceMode, Group, Plan
from rackassign.testing import KAFKA_VERSION
from tests.helpers.java.plan_server import UNIFORM, PlanServer, plan_server

SIZES = ((100, 5_000, 10), (1_000, 10_000, 100), (1_000, 50_000, 100))

_BLOCKS = 8
_CALLS = 40
_WARM = 20
"""Calls of each block that are not counted: the JVM compiles what it has not yet, and caches have the other side."""


def measured(shape: Shape, server: PlanServer) -> tuple[str, ...]:
    """Compare one group; return the row of it."""

    def planned(group: Group) -> Plan:
        """What the others own when one member joins is what the plug-in has given them: mostly in runs."""
        target = server.plan(group).assignment
        return Plan("consumer-protocol", "any-replica", target, target, {}, 0, None, 0.0)

    group = shape.group(planned)
    ours, uniform = _Side(server, group), _Side(server, group, assignor=UNIFORM)
    changed, topics = _Side(server, group, changes=True), _Side(server, group, balance="topic")
    for _ in range(_BLOCKS):
        for side in (ours, uniform, changed):
            side.run(_CALLS, _WARM)
    # Its network has a node for each pair of a topic and a member: seconds for large groups, which the limit ends.
    topics.run(3, 1)
    own, peer = ours.median_ms(), uniform.median_ms()
    memory = f"{ours.allocated / 1e6:.1f} / {uniform.allocated / 1e6:.1f}"
    return (
        *(str(shape), OWNERS[shape.owners], f"{own:.2f}", f"{peer:.2f}", f"{own / peer:.1f}", memory),
        f"{changed.median_ms():.2f}",
        f"{topics.median_ms():.0f}",
    )


class _Side:
    """Calls of one assignor for one group."""

    def __init__(
        self,
        server: PlanServer,
        group: Group,
        *,
        assignor: str = "",
        balance: BalanceMode = "total",
        changes: bool = False,
    ) -> None:
        self._server = server
        self._group = group
        self._assignor = assignor
        self._balance = balance
        self._changes = changes
        self._nanos: list[int] = []
        self.allocated = 0

    def run(self, calls: int, warm: int) -> None:
        """Let it plan so many times, of which the first ones are not counted."""
        plan = self._server.plan(
            self._group, assignor=self._assignor, balance=self._balance, repeat=calls, changes=self._changes
        )
        self._nanos += plan.nanos[warm:]
        self.allocated = plan.allocated

    def median_ms(self) -> float:
        """Return the median of a call."""
        return median(self._nanos) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_plugin", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="groups whose name has this in it")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="the document to write the table into")
    options = parser.parse_args()
    rows = []
    with plan_server() as server:
        for shape in shapes_by_owners(SIZES, options.only):
            rows.append(measured(shape, server))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    headings = ("members / partitions / topics", "owners", "ours, ms", "uniform, ms", "ours / uniform")
    title = f"broker plug-in, RF 1, beside uniform of Kafka {KAFKA_VERSION}: {os.cpu_count()} cores, load"
    more = ("MB a call", "after other metadata, ms", "with balance=topic, ms")
    sheet = Sheet(f"{title} {os.getloadavg()[0]:.2f}", (*headings, *more), rows)
    show([sheet])
    if options.markdown is not None:
        write_markdown(options.markdown, "broker-plugin", [sheet])


if __name__ == "__main__":
    main()
