"""Count records by key in windows of five minutes, which are closed a minute after their end.

The time is that of the records (stream time): the result is the same whenever they are read. A record that comes after
its window was closed is counted as late, and changes no result. Run it once for each zone, each with a directory of its
own:

    python examples/windowed_count.py 127.0.0.1:PORT clicks --zone a --state-dir /tmp/windows-a
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from rackassign.stateful import BYTES, INT, STR, Punctuate, State, StatefulConsumer, Store, pair

WINDOW_MS = 5 * 60 * 1000
GRACE_MS = 60 * 1000
KEPT_S = 24 * 3600
REPORT_S = 5

counts = Store("counts", pair(BYTES, INT), INT)
"""Records in each open window, by key and start of the window."""
closed = Store("closed", pair(BYTES, INT), INT, ttl_s=KEPT_S)
"""Results."""
late = Store("late", BYTES, INT)
times = Store("times", STR, INT)


def process(record: Any, state: State) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Count a record."""
    key = record.key or b""
    start_ms = record.timestamp - record.timestamp % WINDOW_MS
    if start_ms + WINDOW_MS <= (state[times].get("closed up to") or 0):
        state[late].put(key, (state[late].get(key) or 0) + 1)
        return
    state[counts].put((key, start_ms), (state[counts].get((key, start_ms)) or 0) + 1)


def close_windows(time_ms: int, state: State) -> None:
    """Close the windows whose grace period is over."""
    up_to_ms = time_ms - GRACE_MS
    for (key, start_ms), count in state[counts].items():
        if start_ms + WINDOW_MS <= up_to_ms:
            state[closed].put((key, start_ms), count)
            state[counts].delete((key, start_ms))
    state[times].put("closed up to", up_to_ms)


def main(arguments: Sequence[str] | None = None) -> None:
    """Count until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="addresses of brokers")
    parser.add_argument("topic", help="topic whose keys are counted")
    parser.add_argument("--group", default="windowed-count")
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
        stores=[counts, closed, late, times],
        punctuate=[Punctuate(close_windows, interval_s=60)],
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
                    windows = sum(1 for _ in member.store(tp)[closed].items())
                    print(tp.partition, f"{windows} results, late:", dict(member.store(tp)[late].items()), flush=True)


if __name__ == "__main__":
    main()
