"""Drop records with an ID that was seen within an hour.

The ID is the key, so that all records with one ID are in one partition. The time is that of the records (stream time):
the result is the same whenever they are read. Run it once for each zone, each with a directory of its own:

    python examples/deduplicate.py 127.0.0.1:PORT events --zone a --state-dir /tmp/deduplicate-a
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from rackassign.stateful import BYTES, INT, STR, State, StatefulConsumer, Store

SEEN_S = 3600
KEPT_S = 24 * 3600
REPORT_S = 5

seen = Store("seen", BYTES, INT, ttl_s=SEEN_S)
"""Offset of the record with an ID that passed last."""
passed = Store("passed", INT, BYTES, ttl_s=KEPT_S)
"""IDs of the records that passed, by offset."""
totals = Store("totals", STR, INT)


def process(record: Any, state: State) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Pass a record on, or drop it."""
    if record.key is None:
        # It has no ID that another one could have.
        state[passed].put(record.offset, b"")
        add(state, "passed")
        return
    if state[seen].get(record.key) is not None:
        add(state, "dropped")
        return
    state[seen].put(record.key, record.offset)
    state[passed].put(record.offset, record.key)
    add(state, "passed")


def add(state: State, name: str) -> None:
    """Count one."""
    state[totals].put(name, (state[totals].get(name) or 0) + 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Deduplicate until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="addresses of brokers")
    parser.add_argument("topic", help="topic whose records have IDs as keys")
    parser.add_argument("--group", default="deduplicate")
    parser.add_argument("--zone", help="where this member runs")
    parser.add_argument("--state-dir", required=True, help="directory of this member")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000, help="time until others take over")
    given = parser.parse_args(arguments)
    # An exception of a signal would interrupt a poll, and the records since the last commit would be processed again.
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with StatefulConsumer(
        given.topic,
        process=process,
        stores=[seen, passed, totals],
        state_dir=given.state_dir,
        client_rack=given.zone,
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        session_timeout_ms=given.session_timeout_ms,
    ) as member:
        reported = time.monotonic()
        while not ended.is_set():
            member.poll()
            if time.monotonic() - reported > REPORT_S:
                reported = time.monotonic()
                for tp in sorted(member.active_partitions()):
                    print(tp.partition, dict(member.store(tp)[totals].items()), flush=True)


if __name__ == "__main__":
    main()
