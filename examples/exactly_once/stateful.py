"""Number the records of each customer, and write the numbered records, each exactly once.

The state, the results and the offsets are committed in one transaction. Each member has a transactional ID and a folder
of its own that stay the same when it is started again. Run it once for each zone, and read the results with
`isolation_level="read_committed"`:

    python -m examples.exactly_once.stateful 127.0.0.1:PORT orders results --member a-1 --zone a --state-dir /tmp/a-1
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from rackassign.errors import KafkaUnavailableError
from rackassign.stateful import Output, State, StatefulConsumer

WAIT_MS = 500

log = logging.getLogger(__name__)


def number(record: Any, state: State, output: Output) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Write a record in capitals, under the key of its customer and with a header that has its number."""
    customer = record.key or b"?"
    count = int(state.get(customer) or 0) + 1
    state.put(customer, b"%d" % count)
    output.send((record.value or b"").upper(), customer, headers=[("number", b"%d" % count)])


def process_until(ended: threading.Event, given: argparse.Namespace) -> None:
    """Process records until Ctrl-C or SIGTERM.

    Raises:
        KafkaUnavailableError: No broker responds at the start.
    """
    with StatefulConsumer(
        given.source,
        process=number,
        output=given.target,
        transactional_id=f"{given.group}-{given.member}",
        state_dir=given.state_dir,
        client_tags={"zone": given.zone} if given.zone else None,
        client_rack=given.zone,
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        session_timeout_ms=given.session_timeout_ms,
        heartbeat_interval_ms=given.session_timeout_ms // 3,
    ) as consumer:
        while not ended.is_set():
            consumer.poll(WAIT_MS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Process records until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="addresses of brokers")
    parser.add_argument("source", help="topic with the records")
    parser.add_argument("target", help="topic for the results")
    parser.add_argument("--group", default="exactly-once")
    parser.add_argument("--member", required=True, help="name of this member, the same when it is started again")
    parser.add_argument("--state-dir", required=True, help="folder of this member's state")
    parser.add_argument("--zone", help="where this member runs")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000, help="time until others take over")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    while not ended.is_set():
        try:
            process_until(ended, given)
        except KafkaUnavailableError as error:  # noqa: PERF203 - a failure is rare
            log.warning("member %s starts again: %s", given.member, error)
            time.sleep(1.0)


if __name__ == "__main__":
    main()
