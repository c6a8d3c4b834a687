"""A consumer for a Deployment: it reads locally, exports its metrics, and leaves its group when the pod is stopped.

The zone comes from RACKASSIGN_RACK, or from the file that RACKASSIGN_RACK_FILE names. The manifests set one of them.
Where both are empty, the metadata service of the machine is asked.

    RACKASSIGN_RACK=use1-az1 KAFKA_BOOTSTRAP=broker:9092 TOPIC=orders python -m examples.kubernetes.consumer
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from kafka.errors import CommitFailedError, RebalanceInProgressError
from prometheus_client import REGISTRY, start_http_server

from rackassign import RackAwareConsumer, detect_rack
from rackassign.monitoring.prometheus import ConsumerMetrics

METRICS_PORT = 9109


def handle(record: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Do what the service is for, with one record."""
    print((record.value or b"").decode(errors="replace"), flush=True)


def main() -> None:
    """Handle records until SIGTERM, with which Kubernetes stops a pod, or Ctrl-C."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    zone = detect_rack(network=True)
    if zone is None:
        # "auto" would raise: the pod would be started again and again, where reading from leaders is possible.
        print("the zone of this pod is not known: it reads from leaders in all zones", file=sys.stderr, flush=True)
    consumer = RackAwareConsumer(
        os.environ.get("TOPIC", "orders"),
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092"),
        group_id=os.environ.get("GROUP", "billing"),
        client_id=os.environ.get("POD_NAME", "billing"),
        client_rack=zone,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    REGISTRY.register(ConsumerMetrics(consumer))
    server, thread = start_http_server(int(os.environ.get("METRICS_PORT", METRICS_PORT)))
    # Closing leaves the group at once, so the others need not wait for the session timeout.
    with consumer:
        while not ended.is_set():
            batch = [record for records in consumer.poll(timeout_ms=500).values() for record in records]
            for record in batch:
                handle(record)
            if batch:
                # After they were handled: what is handled again after a crash is not lost. The commit fails if other
                # members have the partitions by now, who handle these records again.
                with suppress(CommitFailedError, RebalanceInProgressError):
                    consumer.commit()
    server.shutdown()
    thread.join()


if __name__ == "__main__":
    main()
