"""Planning time beside franz-go's cooperative-sticky balancer, in one run: `python -m benchmarks.peers`.

Both sides get the same groups, and are timed in blocks that take turns. franz-go is built from `benchmarks/franz_go/`,
which needs Go. Its balancer counts a partition as local if its leader is in the rack of its reader, so rackassign plans
with `locality="leader"`. The run fails if franz-go's assignment is better in balance, locality or moves, in this order.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import OWNERS, Shape, shapes_by_owners
from benchmarks.tables import Sheet, show, write_markdown
from rackassign.model import Group
from rackassign.strategies import Options
from rackassign.strategies.sticky import plan_cooperative

SOURCE = Path(__file__).with_name("franz_go")
_LEADER = Options(locality="leader")
_BLOCKS = 5
_BLOCK_S = 0.1
"""Calls that take together so long are a block: at least one call, and at most so many."""
_MOST_CALLS = 10

SIZES = (
    *((3, 12, 2), (10, 100, 5), (30, 300, 10), (100, 5_000, 10)),
    *((100, 160_000, 160), (1_000, 50_000, 100), (10_000, 50_000, 1_000)),
)

Target = Mapping[str, Mapping[str, Any]]
"""Partitions by topic by member."""


class Peer:
    """A process of franz-go with a group."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def take(self, group: Group) -> Target:
        """Take a group; return franz-go's assignment of it after two rebalances."""
        rack_of = {broker.id: broker.rack for broker in group.topology.brokers}
        leaders = {
            topic: [rack_of[each.leader] for each in row if each.leader is not None]
            for topic, row in group.topology.topics.items()
        }
        members = [
            {"id": m.id, "rack": m.rack, "topics": sorted(m.topics), "owned": m.owned, "generation": m.generation}
            for m in group.members
        ]
        found: Target = self._ask({"members": members, "leaders": leaders})
        return found

    def time(self, calls: int) -> list[float]:
        """Return the seconds of some calls."""
        return [took / 1e9 for took in self._ask({"calls": calls})]


@contextmanager
def franz_go(go: str) -> Iterator[Peer]:
    """Build and start franz-go."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peer"
        if subprocess.run([go, "build", "-o", program, "."], cwd=SOURCE, check=False).returncode:
            raise SystemExit(f"Go does not build {SOURCE}; the reason is above")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([program], **pipes) as process:
            yield Peer(process)


@dataclass(frozen=True, slots=True, order=True)
class Quality:
    """How good an assignment is; less is better, in this order."""

    loads: int
    cross: int
    moves: int

    @classmethod
    def of(cls, group: Group, target: Target) -> Quality:
        """Return the quality of an assignment."""
        rack_of = {broker.id: broker.rack for broker in group.topology.brokers}
        owner = {(topic, i): m.id for m in group.members for topic, ids in (m.owned or {}).items() for i in ids}
        cross, moves, loads = 0, 0, Counter[str]()
        for member in group.members:
            for topic, ids in target.get(member.id, {}).items():
                row = group.topology.topics[topic]
                loads[member.id] += len(ids)
                for i in ids:
                    leader = row[i].leader
                    cross += leader is not None and rack_of[leader] != member.rack
                    moves += owner.get((topic, i), member.id) != member.id
        assert loads.total() == sum(map(len, group.topology.topics.values())), "not all partitions are assigned"
        return cls(sum(load**2 for load in loads.values()), cross, moves)


def measured(shape: Shape, peer: Peer) -> tuple[str, ...]:
    """Compare one group; return the row of it."""
    group = shape.group(lambda each: plan_cooperative(each, _LEADER))
    ours, theirs = (Quality.of(group, target) for target in (plan_cooperative(group, _LEADER).target, peer.take(group)))
    if theirs < ours:
        raise SystemExit(f"{shape}, {shape.owners}: franz-go has {theirs}, rackassign {ours}")

    def plan(calls: int) -> list[float]:
        return [_seconds(lambda: plan_cooperative(group, _LEADER)) for _ in range(calls)]

    own_s, peer_s = _in_turns(plan, peer.time)
    figures = (f"{own_s * 1e3:,.2f}", f"{peer_s * 1e3:,.2f}", f"{peer_s / own_s:.2g}")
    worse = (
        "" if ours == theirs else f"; franz-go: {theirs.cross:,} / {theirs.moves:,}, squares of loads {theirs.loads}"
    )
    return (str(shape), OWNERS[shape.owners], *figures, f"{ours.cross:,} / {ours.moves:,}{worse}")


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    made = call()
    took = time.perf_counter() - begin
    del made
    return took


def _in_turns(*sides: Callable[[int], list[float]]) -> tuple[float, ...]:
    """Return the median of each side, timed in blocks that take turns."""
    calls = [min(_MOST_CALLS, max(1, int(_BLOCK_S / max(side(1)[0], 1e-6)))) for side in sides]
    taken: list[list[float]] = [[] for _ in sides]
    for _ in range(_BLOCKS):
        for side, count, found in zip(sides, calls, taken, strict=True):
            found.extend(side(count))
    return tuple(map(median, taken))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="groups whose name has this in it")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="the document to write the table into")
    options = parser.parse_args()
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        print("Nothing is measured beside franz-go: there is no Go on the PATH. See https://go.dev/dl/")
        return
    rows = []
    with franz_go(go) as peer:
        for shape in shapes_by_owners(SIZES, options.only):
            rows.append(measured(shape, peer))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    headings = ("members / partitions / topics", "owners", "ours, ms", "franz-go, ms", "franz-go / ours")
    about = f"Python {platform.python_version()}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}"
    title = f"cooperative-sticky by leaders, RF 1, beside franz-go {_version()}: {about}"
    sheet = Sheet(title, (*headings, "cross / moves"), rows)
    show([sheet])
    if options.markdown is not None:
        write_markdown(options.markdown, "peers", [sheet])


def _version() -> str:
    lines = (SOURCE / "go.mod").read_text("utf-8").split()
    return lines[lines.index("github.com/twmb/franz-go") + 1]


if __name__ == "__main__":
    main()
