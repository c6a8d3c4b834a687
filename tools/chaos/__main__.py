"""`python -m tools.chaos --seeds 20 [--first 1] [--seconds 60] [--provider local|docker] [--keep DIR]`.

With `--client confluent` the members read with librdkafka.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rackassign.testing import LocalCluster
from rackassign.testing._docker_cluster import DockerCluster

from .group import Outcome, run
from .member import CLIENTS, KAFKA_PYTHON
from .schedule import RACKS, Kind

_LOG_LINES = 5000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many schedules (default: 20)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each one lasts (default: 60)")
    parser.add_argument("--provider", choices=("local", "docker"), default="local", help="where the brokers run")
    parser.add_argument("--client", choices=CLIENTS, default=KAFKA_PYTHON, help="what the members are made of")
    parser.add_argument("--keep", type=Path, help="keep the histories here, also the good ones")
    chosen = parser.parse_args()
    root = chosen.keep or Path(tempfile.mkdtemp(prefix="rackassign-chaos-"))
    outcomes: list[Outcome] = []
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        directory = root / f"seed-{seed}"
        directory.mkdir(parents=True)
        with _cluster(chosen.provider) as cluster:
            outcome = run(seed, chosen.seconds, cluster, directory, chosen.client)
            for broker in cluster.brokers:
                (directory / f"broker-{broker.id}.log").write_text(cluster.log_tail(broker.id, _LOG_LINES), "utf-8")
        print(outcome.line, flush=True)
        for violation in outcome.violations:
            print(f"  {violation.rule}: {violation.what}", flush=True)
        if outcome.violations:
            print(f"  history: {directory}", flush=True)
        elif chosen.keep is None:
            shutil.rmtree(directory)
        outcomes.append(outcome)
    if not any(root.iterdir()):
        root.rmdir()
    return _total(outcomes)


def _cluster(provider: str) -> LocalCluster | DockerCluster:
    return DockerCluster(RACKS) if provider == "docker" else LocalCluster(RACKS)


def _total(outcomes: list[Outcome]) -> int:
    faults = Counter[Kind]()
    for outcome in outcomes:
        faults.update(outcome.faults)
    broken = [outcome.seed for outcome in outcomes if outcome.violations]
    print(
        f"{len(outcomes)} seeds: {', '.join(f'{kind.value} {count}' for kind, count in sorted(faults.items()))};"
        f" {sum(outcome.acked for outcome in outcomes)} records acknowledged,"
        f" {sum(outcome.processed for outcome in outcomes)} processed;"
        f" {sum(outcome.generations for outcome in outcomes)} generations;"
        f" violations with {len(broken)} seeds{f': {broken}' if broken else ''}"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
