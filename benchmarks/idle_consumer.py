"""What a consumer costs that does nothing: the time of its import, and the memory of a member that does not lead.

Each import is timed in a fresh process, with compiled modules: in seconds, and in seconds of the processor, which
depend less on other programs. For memory each client has a group on a real broker, with a leader that stays. A second
member joins, gets its partitions, is left alone for some seconds, and reports its resident memory. The two clients
take turns, and each pair of rounds is compared with itself, because the machine's speed varies by more than what is
measured. Memory is read from /proc, so this runs on Linux.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.tables import Sheet, show
from rackassign.testing import LocalCluster, create_topic

TOPIC = "idle"
CONSUMERS = {
    "kafka-python": ("kafka", "KafkaConsumer"),
    "rackassign": ("rackassign", "RackAwareConsumer"),
}
LIMIT = 1.15
"""What rackassign may take at most, of kafka-python alone."""

_IMPORT = """
import time
begun = time.perf_counter(), time.process_time()
from {0} import {1}
print(time.perf_counter() - begun[0], time.process_time() - begun[1])
"""

_MEMBER = """
import sys, time
from {0} import {1}
bootstrap, group, idle_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
consumer = {1}("idle", bootstrap_servers=bootstrap, group_id=group, client_rack="a", heartbeat_interval_ms=300)
while not consumer.assignment():
    consumer.poll(timeout_ms=100)
until = time.monotonic() + idle_s
while time.monotonic() < until:
    consumer.poll(timeout_ms=100)
with open("/proc/self/status") as status:
    resident = next(line for line in status if line.startswith("VmRSS")).split()[1]
print(resident, "numpy" in sys.modules, flush=True)
if idle_s == 0:
    import threading
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        consumer.poll(timeout_ms=100)
consumer.close()
"""


def import_ms(client: str) -> tuple[float, ...]:
    """Return the milliseconds of an import in a fresh process, and those of its processor."""
    taken = _output([sys.executable, "-c", _IMPORT.format(*CONSUMERS[client])])
    return tuple(1e3 * float(seconds) for seconds in taken.split())


def resident_mb(client: str, bootstrap: str, idle_s: float) -> tuple[float, ...]:
    """Return the resident megabytes of a member that has joined the group of its client and does not lead it."""
    resident, plans = _output([*_member(client), bootstrap, client, str(idle_s)]).split()
    if plans == "True":
        raise RuntimeError(f"the second member of {client} has loaded the solver")
    return (int(resident) / 1024,)


@contextmanager
def leader(client: str, bootstrap: str) -> Iterator[None]:
    """Keep a leader in the group of a client."""
    command = [*_member(client), bootstrap, client, "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield
        finally:
            process.stdin.close()
            process.wait()


def _member(client: str) -> list[str]:
    return [sys.executable, "-c", _MEMBER.format(*CONSUMERS[client])]


def _output(command: list[str]) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def in_turns(measure: Callable[[str], tuple[float, ...]], rounds: int) -> dict[str, list[tuple[float, ...]]]:
    """Measure both clients so many times, in turns."""
    found: dict[str, list[tuple[float, ...]]] = {client: [] for client in CONSUMERS}
    for number in range(rounds):
        # Who comes first in a round takes turns, too.
        for client in list(CONSUMERS)[:: 1 if number % 2 else -1]:
            found[client].append(measure(client))
    return found


def rows(what: str, unit: str, found: dict[str, list[tuple[float, ...]]], column: int = 0) -> list[tuple[str, ...]]:
    """Return the lines of a measurement."""
    of_client = {client: [values[column] for values in measured] for client, measured in found.items()}
    made = [
        (f"{what}, {client}", f"{median(values):,.1f} {unit}", f"{min(values):,.1f} to {max(values):,.1f}")
        for client, values in of_client.items()
    ]
    ratios = [ours / theirs for theirs, ours in zip(*of_client.values(), strict=True)]
    verdict = "OK" if median(ratios) <= LIMIT else "MISSED"
    of_pairs = f"{min(ratios):.2f} to {max(ratios):.2f}; at most {LIMIT}: {verdict}"
    return [*made, (f"{what}, round by round", f"{median(ratios):.2f}", of_pairs)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--imports", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=float, default=3.0, help="seconds of a member before it is measured")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as compiled:
        # Compiled modules are kept by the first two imports, even where that is turned off.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        for client in CONSUMERS:
            import_ms(client)
        imports = in_turns(import_ms, options.imports)
        with LocalCluster(["a"]) as cluster:
            create_topic(cluster.bootstrap, TOPIC, [[1]] * 4)
            with leader("kafka-python", cluster.bootstrap), leader("rackassign", cluster.bootstrap):
                memory = in_turns(lambda client: resident_mb(client, cluster.bootstrap, options.idle), options.rounds)
    table = [
        *rows("import", "ms", imports),
        *rows("import, processor", "ms", imports, 1),
        *rows("idle follower", "MB", memory),
    ]
    title = f"An idle consumer: {options.imports} imports and {options.rounds} members of each client"
    show([Sheet(title, ("", "median", "range"), table)])


if __name__ == "__main__":
    main()
