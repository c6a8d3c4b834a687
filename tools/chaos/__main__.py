"""A group under a schedule of faults, and a checker of all that was recorded of it.

python -m tools.chaos [--seeds 20] [--first 1] [--seconds 60] [--provider local|docker] [--client confluent]

With `--client confluent` the members read with librdkafka.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rackassign.testing import LocalCluster
from rackassign.testing._docker_cluster import DockerCluster

from .checker import RULES
from .group import run, told
from .history import History
from .member import CLIENTS, KAFKA_PYTHON
from .schedule import RACKS
from .seeds import play_seeds, seed_parser

_LOG_LINES = 5000


def main() -> int:
    parser = seed_parser("tools.chaos", __doc__, seeds=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each one lasts (default: 60)")
    parser.add_argument("--provider", choices=("local", "docker"), default="local", help="where the brokers run")
    parser.add_argument("--client", choices=CLIENTS, default=KAFKA_PYTHON, help="what the members are made of")
    chosen = parser.parse_args()

    def play(seed: int, folder: Path) -> History:
        with (DockerCluster if chosen.provider == "docker" else LocalCluster)(RACKS) as cluster:
            history = run(seed, chosen.seconds, cluster, folder, chosen.client)
            for broker in cluster.brokers:
                (folder / f"broker-{broker.id}.log").write_text(cluster.log_tail(broker.id, _LOG_LINES), "utf-8")
        return history

    return play_seeds(chosen, play, told, RULES)


if __name__ == "__main__":
    sys.exit(main())
