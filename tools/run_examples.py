"""The examples with frameworks, each in an environment of its own, with rackassign and without: a table.

python -m tools.run_examples [--only fastapi] [--write]

Each runs in three racks, a member in each, and reads a topic of one replica. Then a member is killed while records are
written, and starts again. Bytes are those that the kernel has received on the connections to each broker.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaProducer

from benchmarks.tables import Sheet, write_markdown
from rackassign.testing import Cluster, LocalCluster, create_topic
from rackassign.testing._machine import reserve_ports
from rackassign.testing.harness import wait_until
from tests.helpers.kernel_traffic import ConnectionBytes
from tests.helpers.threads import meanwhile

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "frameworks.md"
RACKS = ("a", "b", "c")
TIMEOUT_S = 600.0
_RECORDS, _SIZE = 270, 4000
"""Of each partition; so much that metadata and heartbeats do not count beside it."""
_LOCAL = 0.95
"""The rest are metadata, and what is read before a follower is known."""
_LOOK_S = 0.2
_SETTLE_S = 15.0
"""Members that start at once join in several rebalances."""
_REPLICAS = [[1 + (p // 3 + p % 3) % 3] for p in range(9)]
"""All racks are in each third of the partitions, and in each third partition: whatever the order of the members, ranges
and round-robin read a third of them locally."""


@dataclass(frozen=True, slots=True)
class Example:
    """An example with a framework."""

    module: str
    framework: str
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its folder."""
        return self.module.split(".")[1]

    @property
    def python(self) -> Path:
        """Python of its environment."""
        return ROOT / ".venv-examples" / self.name / "bin" / "python"

    def install(self) -> None:
        """Create its environment, unless it is there."""
        requirements = ROOT / "examples" / self.name / "requirements.txt"
        home = self.python.parents[1]
        stamp = home / "requirements.txt"
        if stamp.exists() and stamp.read_text("utf-8") == requirements.read_text("utf-8"):
            return
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        readme = requirements.with_name("README.md").read_text("utf-8")
        found = re.search(r"pip install 'CLONE\[(.*)\]' -r requirements.txt", readme)
        assert found is not None
        ours = ["--editable", f"{ROOT}[{found[1]}]"]
        quiet = ["--disable-pip-version-check", "--quiet", "install", "--no-compile"]
        subprocess.run([self.python, "-m", "pip", *quiet, *ours, "-r", requirements], check=True)
        stamp.write_text(requirements.read_text("utf-8"), "utf-8")

    def version(self) -> str:
        """Return the version of the framework."""
        code = f"from importlib.metadata import version; print(version({self.framework!r}))"
        return subprocess.run([self.python, "-c", code], capture_output=True, check=True, text=True).stdout.strip()


EXAMPLES = (
    Example("examples.fastapi.app", "fastapi"),
    Example("examples.faststream.app", "faststream"),
    Example("examples.faust.app", "faust-streaming", ("worker", "--loglevel", "info")),
    Example("examples.quix.app", "quixstreams"),
    Example("examples.worker_pool.pool", "confluent-kafka"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has shown."""

    # Share of the bytes that came from the rack of the reader, before the fault.
    local: float
    # Records that were not handled.
    lost: int
    # Records that were handled again after the fault.
    twice: int


class Member:
    """A process of an example in a rack."""

    def __init__(self, example: Example, rack: str, variables: Mapping[str, str], folder: Path, *, ours: bool) -> None:
        words = [example.module, *example.arguments]
        words = ["-m", *words] if ours else ["-m", "tests.helpers.kafka.without_rackassign", *words]
        self.rack = rack
        self.output = folder / f"{rack}-{time.monotonic_ns()}.out"
        self._ports = reserve_ports(1)
        (port,) = self._ports.numbers
        environment = {**os.environ, **variables, "RACKASSIGN_RACK": rack, "PORT": str(port)}
        # What Faust and Quix Streams keep of their state is in a folder for each member.
        environment |= {"APP_DATADIR": str(folder / rack), "STATE_DIR": str(folder / rack)}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [example.python, *words], cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        self.received = ConnectionBytes(self.process.pid)

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self.received.close()
        self._ports.close()


def handled(folder: Path) -> Counter[str]:
    """Return how often each record was handled."""
    found: Counter[str] = Counter()
    for file in folder.glob("*.out"):
        found.update(re.findall(r"record-\d+", file.read_text("utf-8")))
    return found


@contextmanager
def watched(members: Sequence[Member]) -> Iterator[None]:
    """Look at the connections of members while the block runs."""

    def look(over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            for member in members:
                member.received.look()

    with meanwhile(look):
        yield
    for member in members:
        member.received.look()


def run(cluster: Cluster, example: Example, name: str, folder: Path, *, ours: bool) -> Outcome:
    """Run an example in three racks, and kill one of its members."""
    create_topic(cluster.bootstrap, name, _REPLICAS)
    variables = {"KAFKA_BOOTSTRAP": cluster.bootstrap, "TOPIC": name, "GROUP": name, "PYTHONUNBUFFERED": "1"}
    written = 0
    with ExitStack() as opened:
        producer = opened.enter_context(closing(KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")))

        def write(records: int) -> None:
            nonlocal written
            for _ in range(records):
                for partition in range(len(_REPLICAS)):
                    # As most records are: JSON, which some frameworks decode by themselves.
                    value = b'{"id": "record-%d"}' % written
                    producer.send(name, value.ljust(_SIZE, b" "), key=b"%d" % partition, partition=partition)
                    written += 1
            producer.flush()

        def start(rack: str) -> Member:
            member = Member(example, rack, variables, folder, ours=ours)
            opened.callback(member.close)
            return member

        def wait_for_all(what: str) -> None:
            wait_until(lambda: len(handled(folder)) == written or dead(), f"{what} in {folder}", timeout_s=TIMEOUT_S)
            assert not dead(), output_of(members)

        def dead() -> bool:
            return any(member.process.poll() is not None for member in members)

        members = [start(rack) for rack in RACKS]
        # Until each partition has its reader for good, the first member reads all of them.
        write(1)
        wait_for_all("the first records")
        time.sleep(_SETTLE_S)
        write(1)
        wait_for_all("records of a settled group")
        before = {member.rack: dict(member.received.look()) for member in members}
        with watched(members):
            write(_RECORDS)
            wait_for_all("all records")
        local = share_since(cluster, members, before)
        members[0].process.kill()
        members[0].process.wait()
        write(_RECORDS // 4)
        members[0] = start(RACKS[0])
        write(_RECORDS // 4)
        wait_for_all("all records, also after a member was killed")
        found = handled(folder)
    return Outcome(local, written - len(found), found.total() - len(found))


def share_since(cluster: Cluster, members: Sequence[Member], before: Mapping[str, Mapping[int, int]]) -> float:
    """Return the share of the bytes since then that came from the rack of the reader."""
    rack_of = {broker.port: broker.rack for broker in cluster.brokers}
    found: Counter[bool] = Counter()
    for member in members:
        for port, size in member.received.by_port().items():
            if port in rack_of:
                found[rack_of[port] == member.rack] += size - before[member.rack].get(port, 0)
    return found[True] / found.total()


def output_of(members: Sequence[Member]) -> str:
    """Return the last lines of all members."""
    lines = [f"{m.rack} ended with {m.process.poll()}: {m.output.read_text('utf-8')[-1500:]}" for m in members]
    return "\n".join(lines)


def row(example: Example, without: Outcome, ours: Outcome) -> tuple[str, ...]:
    """Return a line of the table."""
    name, shares = f"[{example.name}](../../examples/{example.name}/)", (f"{without.local:.0%}", f"{ours.local:.0%}")
    return (name, f"{example.framework} {example.version()}", *shares, str(ours.lost), str(ours.twice))


HEADINGS = ("example", "framework", "local without rackassign", "local with it", "records lost", "handled twice")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.run_examples", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=[example.name for example in EXAMPLES], help="only this one (default: all)")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    chosen = parser.parse_args(arguments)
    rows, failed = [], []
    with LocalCluster(list(RACKS)) as cluster:
        for example in [each for each in EXAMPLES if chosen.only in {None, each.name}]:
            example.install()
            found = []
            for ours in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    name = f"{example.name}-{'with' if ours else 'without'}"
                    found.append(run(cluster, example, name, Path(folder), ours=ours))
            rows.append(row(example, *found))
            print(f"{example.name}: without {found[0]}, with {found[1]}", flush=True)
            if found[1].lost or found[1].local < _LOCAL:
                failed.append(example.name)
    sheet = Sheet("Examples in three racks", HEADINGS, rows)
    print(sheet.markdown())
    if failed:
        raise SystemExit(f"records lost, or not local: {', '.join(failed)}")
    if chosen.write and chosen.only is None:
        write_markdown(PAGE, "examples", [sheet])


if __name__ == "__main__":
    main()
