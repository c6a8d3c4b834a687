"""Join orders with payments by key, and report orders that are not paid within 15 minutes.

The topics are co-partitioned: they have equal numbers of partitions, and an order and its payment have the same key, so
that one member has both. Values are JSON, `{"amount": 5}`. Whichever of the two comes first waits for the other one in
the state. Run it once for each zone, each with a directory of its own:

    python examples/join_orders.py 127.0.0.1:PORT --zone a --state-dir /tmp/join-a
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackassign.stateful import BYTES, INT, JSON, STR, Punctuate, State, StatefulConsumer, Store, pair

WITHIN_MS = 15 * 60 * 1000
KEPT_S = 24 * 3600
REPORT_S = 5

orders = Store("orders", BYTES, JSON, ttl_s=KEPT_S)
payments = Store("payments", BYTES, JSON, ttl_s=KEPT_S)
due = Store("due", pair(INT, BYTES), JSON)
"""Orders without a payment, by the time up to which it may come."""
joined = Store("joined", BYTES, JSON, ttl_s=KEPT_S)
unpaid = Store("unpaid", BYTES, JSON, ttl_s=KEPT_S)
totals = Store("totals", STR, INT)


@dataclass(frozen=True)
class Join:
    """The join of two topics."""

    orders_topic: str

    def process(self, record: Any, state: State) -> None:  # noqa: ANN401 - kafka-python is untyped
        """Keep an order or a payment, and join it if the other one is there."""
        own, name = (orders, "orders") if record.topic == self.orders_topic else (payments, "payments")
        order_id, row = record.key, row_of(record)
        if order_id is None or row is None:
            add(state, "ignored")
            return
        add(state, name)
        if state[own].get(order_id) is not None or state[joined].get(order_id) is not None:
            # Its producer has written it twice.
            return
        state[own].put(order_id, row)
        if own is orders:
            state[due].put((record.timestamp + WITHIN_MS, order_id), row)
        order, payment = state[orders].get(order_id), state[payments].get(order_id)
        if order is not None and payment is not None and abs(payment["at"] - order["at"]) <= WITHIN_MS:
            state[joined].put(order_id, {"order": order, "payment": payment})
            add(state, "joined")
            state[due].delete((order["at"] + WITHIN_MS, order_id))
            # It was reported if payments are read later than orders.
            state[unpaid].delete(order_id)
            state[orders].delete(order_id)
            state[payments].delete(order_id)

    def report_unpaid(self, time_ms: int, state: State) -> None:
        """Report the orders whose time is over."""
        for (due_ms, order_id), order in state[due].range((0, b""), (time_ms, b"")):
            state[unpaid].put(order_id, order)
            state[due].delete((due_ms, order_id))


def row_of(record: Any) -> dict[str, Any] | None:  # noqa: ANN401 - kafka-python is untyped
    """Return what is kept of a record; None of a tombstone and whatever else is no JSON object."""
    try:
        row = {**json.loads(record.value or b"null"), "at": record.timestamp}
        # Python reads more than JSON has: NaN, for example.
        JSON.serialize(row)
    except (TypeError, ValueError, RecursionError):
        return None
    return row


def add(state: State, name: str) -> None:
    """Count one."""
    state[totals].put(name, (state[totals].get(name) or 0) + 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Join until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="addresses of brokers")
    parser.add_argument("--orders", default="orders", help="topic of orders")
    parser.add_argument("--payments", default="payments", help="topic of payments")
    parser.add_argument("--group", default="join-orders")
    parser.add_argument("--zone", help="where this member runs")
    parser.add_argument("--state-dir", required=True, help="directory of this member")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000, help="time until others take over")
    given = parser.parse_args(arguments)
    # An exception of a signal would interrupt a poll, and the records since the last commit would be processed again.
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    join = Join(given.orders)
    with StatefulConsumer(
        topics=[given.orders, given.payments],
        copartitioned=True,
        process=join.process,
        stores=[orders, payments, due, joined, unpaid, totals],
        punctuate=[Punctuate(join.report_unpaid, interval_s=60)],
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
                    if tp.topic == given.orders:
                        late = sum(1 for _ in member.store(tp)[unpaid].items())
                        print(tp.partition, dict(member.store(tp)[totals].items()), f"unpaid: {late}", flush=True)


if __name__ == "__main__":
    main()
