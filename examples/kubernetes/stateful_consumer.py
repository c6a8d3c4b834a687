"""A consumer with state for a StatefulSet: it counts words, and has a warm copy of its state in another zone.

A pod keeps its name and its volume when it is replaced. With its name as `group.instance.id` (static membership,
KIP-345) it also keeps its partitions, if it is back within the session timeout: nothing is restored, and the group does
not rebalance.

    RACKASSIGN_RACK=use1-az1 POD_NAME=words-0 STATE_DIR=/tmp/words-0 python -m examples.kubernetes.stateful_consumer
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from examples.word_count import count, restoring
from rackassign import detect_rack
from rackassign.stateful import StatefulConsumer
from rackassign.strategies.standby import StandbyOptions

SESSION_TIMEOUT_MS = 120_000
"""Longer than a pod takes to be replaced on its node; a lost zone is noticed after it."""


def main() -> None:
    """Count until SIGTERM, with which Kubernetes stops a pod, or Ctrl-C."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    zone = detect_rack(network=True)
    if zone is None:
        print("the zone of this pod is not known: it reads from leaders in all zones", file=sys.stderr, flush=True)
    with StatefulConsumer(
        os.environ.get("TOPIC", "lines"),
        process=count,
        state_dir=os.environ.get("STATE_DIR", "/var/lib/words"),
        client_tags={"zone": zone or "unknown"},
        standbys=StandbyOptions(num_standby_replicas=1, rack_aware_assignment_tags=["zone"]),
        on_restore=restoring,
        client_rack=zone,
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092"),
        group_id=os.environ.get("GROUP", "words"),
        group_instance_id=os.environ["POD_NAME"],
        session_timeout_ms=SESSION_TIMEOUT_MS,
    ) as counter:
        while not ended.is_set():
            counter.poll()


if __name__ == "__main__":
    main()
