"""How long an audit takes, on real brokers of this machine: `python -m benchmarks.audit`.

Six brokers in three racks, 1,000 topics of 10 partitions with three replicas each. Making them takes minutes, and the
brokers are given time until all of them know of all replicas. What is timed then is set against one Metadata request of
all topics, which no audit can do without, in the same run: seconds depend on the machine, ratios less so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median

from kafka import KafkaAdminClient

from benchmarks.tables import Sheet, show
from rackassign.admin.alter import ReassignmentAdmin
from rackassign.admin.describe import MIN_ISR, describe_topics_on, list_brokers, topic_configs
from rackassign.admin.raw_requests import fetch_metadata
from rackassign.placement.audit import audit
from rackassign.placement.cluster_state import THROTTLED, describe_cluster_state, with_rates
from rackassign.testing import Cluster, LocalCluster

RACKS = ("a", "b", "c", "a", "b", "a")
TOPICS, PARTITIONS, REPLICAS = 1000, 10, 3
ROUNDS = 3

_HEAP = "-Xmx1g"
"""With the heap that suffices for tests brokers fall minutes behind with so many replicas."""

_AT_ONCE = 50
_TIMEOUT_S = 900.0
_PAUSE_S = 2.0

HEADINGS = ("what", "s", "of a Metadata request")


def fill(admin: KafkaAdminClient, topics: int, partitions: int) -> None:
    """Make topics, the brokers choosing where."""
    names = [f"t{number:04d}" for number in range(topics)]
    wanted = {"num_partitions": partitions, "replication_factor": REPLICAS, "configs": {MIN_ISR: "2"}}
    for start in range(0, topics, _AT_ONCE):
        admin.create_topics(dict.fromkeys(names[start : start + _AT_ONCE], wanted), timeout_ms=120_000)


def await_whole(cluster: Cluster, admin: KafkaAdminClient, topics: int) -> None:
    """Wait until every broker knows of all topics, with all replicas in sync."""
    until = time.monotonic() + _TIMEOUT_S
    for broker in cluster.brokers:
        while True:
            seen = describe_topics_on(admin, broker.id).values()
            whole = sum(bool(t.in_sync) and all(len(row) == REPLICAS for row in t.in_sync) for t in seen)
            if whole >= topics:
                break
            if time.monotonic() > until:
                raise SystemExit(f"broker {broker.id} knows of {whole} of {topics} topics that are in sync")
            time.sleep(_PAUSE_S)


def command(cluster: Cluster) -> None:
    """Run the command as a user does; that it finds something (leaders that moved) is no failure."""
    words = [sys.executable, "-m", "rackassign", "audit", "--bootstrap-server", cluster.bootstrap, "--output", "json"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode not in {0, 1}:
        raise SystemExit(done.stderr.decode())


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def rows(
    cluster: Cluster, admin: KafkaAdminClient, topics: int, partitions: int, rounds: int
) -> Iterator[tuple[str, ...]]:
    live = [broker.id for broker in cluster.brokers]
    names = sorted(describe_topics_on(admin, live[0]))
    state = with_rates(admin, describe_cluster_state(admin))
    seen = audit(state)
    if (seen.topics, seen.partitions, seen.is_consistent) != (topics, topics * partitions, True):
        raise SystemExit(
            f"the audit saw {seen.topics} topics, {seen.partitions} partitions; reliably: {seen.is_consistent}"
        )
    replicas = sum(load.replicas for load in seen.by_broker.values())
    print(f"seen: {seen.topics} topics, {seen.partitions} partitions, {replicas} replicas")
    work: dict[str, Callable[[], object]] = {
        "one Metadata request of all topics": lambda: fetch_metadata(admin, live[0]),
        "the brokers": lambda: list_brokers(admin),
        "all topics, from two brokers": lambda: [describe_topics_on(admin, broker) for broker in live[:2]],
        "configuration of all topics": lambda: topic_configs(admin, names, [MIN_ISR, *THROTTLED]),
        "what is being reassigned": lambda: ReassignmentAdmin(admin).list_reassignments(),
        "rates of all brokers": lambda: with_rates(admin, state),
        "judging": lambda: audit(state, want_rf=REPLICAS),
        "all of it": lambda: audit(with_rates(admin, describe_cluster_state(admin)), want_rf=REPLICAS),
        "`rackassign audit`, a process of its own": lambda: command(cluster),
    }
    # Rounds take turns, so that what else the machine does meets all alike.
    seconds = [{name: timed(each) for name, each in work.items()} for _ in range(rounds)]
    middle = {name: median(one[name] for one in seconds) for name in work}
    unit = next(iter(middle.values()))
    for name, took in middle.items():
        yield name, f"{took:.2f}", f"{took / unit:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS, help="how many (%(default)s)")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of each topic (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the median of which is shown (%(default)s)")
    options = parser.parse_args()
    # The one way to tell a JVM something over its command line.
    os.environ.setdefault("_JAVA_OPTIONS", _HEAP)
    with (
        LocalCluster(RACKS, start_timeout_s=300) as cluster,
        closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap, request_timeout_ms=120_000)) as admin,
    ):
        made = timed(lambda: fill(admin, options.topics, options.partitions))
        known = timed(lambda: await_whole(cluster, admin, options.topics))
        print(f"made in {made:.0f} s, and known to all brokers {known:.0f} s later")
        size = f"{options.topics} topics x {options.partitions} partitions, {len(RACKS)} brokers"
        title = f"Audit of {size}: median of {options.rounds}"
        found = list(rows(cluster, admin, options.topics, options.partitions, options.rounds))
        show([Sheet(title, HEADINGS, found)])


if __name__ == "__main__":
    main()
