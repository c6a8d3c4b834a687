"""What the examples with state have to produce: computed from their input alone, without the package.

`read` and the `expected_..` functions return results in one form: the content of each store, by its name. `differences`
compares them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackassign.stateful import Store

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

Result = dict[str, dict[Any, Any]]

_EXPIRY_BYTES = 8


def read(state: Mapping[bytes, bytes], *stores: Store[Any, Any]) -> Result:
    """Return the content of stores."""
    found: Result = {}
    for store in stores:
        prefix, skipped = store.prefix(), 0 if store.ttl_s is None else _EXPIRY_BYTES
        found[store.name] = {
            store.key.deserialize(key[len(prefix) :]): store.value.deserialize(value[skipped:])
            for key, value in state.items()
            if key.startswith(prefix)
        }
    return found


def expected_join(orders: Sequence[Any], payments: Sequence[Any]) -> Result:
    """Return the result of `join_orders` for the records of a partition of both topics.

    All orders without a payment must be reported by then.
    """
    whole = [
        [each for each in records if each.key is not None and _is_object(each.value)] for records in (orders, payments)
    ]
    sides = [_first_rows(records) for records in whole]
    joined = {
        order_id: {"order": order, "payment": payment}
        for order_id, order in sides[0].items()
        if (payment := sides[1].get(order_id)) is not None and abs(payment["at"] - order["at"]) <= 15 * MINUTE_MS
    }
    totals = Counter({"orders": len(whole[0]), "payments": len(whole[1]), "joined": len(joined)})
    totals["ignored"] = len(orders) + len(payments) - totals["orders"] - totals["payments"]
    return {
        "joined": joined,
        "unpaid": {order_id: order for order_id, order in sides[0].items() if order_id not in joined},
        "totals": dict(+totals),
    }


def _is_object(value: bytes | None) -> bool:
    """Return whether a value is a JSON object, as far as tests write others."""
    return value is not None and value[:1] == b"{" and value[-1:] == b"}" and b"NaN" not in value


def _first_rows(records: Iterable[Any]) -> dict[bytes, dict[str, Any]]:
    found: dict[bytes, dict[str, Any]] = {}
    for record in records:
        found.setdefault(record.key, {**json.loads(record.value), "at": record.timestamp})
    return found


def expected_deduplication(records: Iterable[Any]) -> Result:
    """Return the result of `deduplicate` for the records of a partition."""
    now_ms = -1
    since: dict[bytes, int] = {}
    passed: dict[int, bytes] = {}
    totals: Counter[str] = Counter()
    for record in records:
        now_ms = max(now_ms, record.timestamp)
        record_id = record.key
        if record_id is not None and record_id in since and now_ms < since[record_id] + HOUR_MS:
            totals["dropped"] += 1
            continue
        if record_id is not None:
            since[record_id] = now_ms
        passed[record.offset] = record_id or b""
        totals["passed"] += 1
    return {"passed": passed, "totals": dict(totals)}


def expected_windows(records: Iterable[Any]) -> Result:
    """Return the result of `windowed_count` for the records of a partition."""
    size_ms, grace_ms = 5 * MINUTE_MS, MINUTE_MS
    late: Counter[bytes] = Counter()
    counts: Counter[tuple[bytes, int]] = Counter()
    closed_up_to = 0
    now_ms, minute = -1, None
    for record in records:
        key, start_ms = record.key or b"", record.timestamp // size_ms * size_ms
        if start_ms + size_ms <= closed_up_to:
            late[key] += 1
        else:
            counts[key, start_ms] += 1
        now_ms = max(now_ms, record.timestamp)
        if minute is not None and now_ms // MINUTE_MS > minute:
            closed_up_to = now_ms // MINUTE_MS * MINUTE_MS - grace_ms
        minute = now_ms // MINUTE_MS
    closed = {window: count for window, count in counts.items() if window[1] + size_ms <= closed_up_to}
    return {
        "closed": closed,
        "counts": {window: count for window, count in counts.items() if window not in closed},
        "late": dict(late),
    }


def differences(found: Mapping[int, Result], expected: Mapping[int, Result]) -> list[str]:
    """Return a line for each value that differs from what is expected, by partition, store and key."""
    lines = []
    for partition in sorted({*found, *expected}):
        here, there = found.get(partition, {}), expected.get(partition, {})
        for store in sorted({*here, *there}):
            values, wanted = here.get(store, {}), there.get(store, {})
            lines += [
                f"{partition} {store} {key!r}: found {values.get(key)!r}, expected {wanted.get(key)!r}"
                for key in {**values, **wanted}
                if key not in values or key not in wanted or values[key] != wanted[key]
            ]
    return lines
