"""Read a topic near home and print which share of the bytes came from this rack.

Try it on a cluster of your own making, in another terminal `rackassign cluster up`, then

    RACKASSIGN_RACK=a python examples/local_share.py localhost:9092 orders local-share

once for each rack. `--create-topic orders:12:3` creates a topic.
"""

from __future__ import annotations

import sys
import time

from rackassign import RackAwareConsumer

REPORT_EVERY_S = 5


def main(bootstrap: str, topic: str, group: str) -> None:
    """Read until Ctrl-C."""
    consumer = RackAwareConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        client_rack="auto",
        auto_offset_reset="earliest",
    )
    due = time.monotonic() + REPORT_EVERY_S
    try:
        while True:
            consumer.poll(timeout_ms=1000)
            if time.monotonic() >= due:
                report(consumer)
                due += REPORT_EVERY_S
    except KeyboardInterrupt:
        report(consumer)
    finally:
        consumer.close()


def report(consumer: RackAwareConsumer) -> None:
    """Print the share of bytes that came from brokers in the consumer's rack."""
    locality = consumer.locality()
    share = locality.local_share()
    if share is not None:
        print(f"rack {locality.rack}: {share:.1%} read locally, {locality.cross().bytes / 1e6:.1f} MB from other racks")


if __name__ == "__main__":
    main(*sys.argv[1:])
