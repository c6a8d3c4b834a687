"""The client of the coordinator: executors request splits from it, and the driver submits those of a batch to it."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.spark.pull.protocol import CoordinatorEndpoint, decode_split, encode_split
from rackassign.spark.pull.server import LONGEST, read_line
from rackassign.spark.splits import Split
from rackassign.util.text import short_repr

_AGAIN_S = 0.05


class RefusedError(RackassignError):
    """The coordinator responds with an error to a request."""


def request_splits(desk: CoordinatorEndpoint, task: int, rack: str | None, timeout_s: float) -> Iterator[Split]:
    """Yield the splits of a task until there are no more.

    Args:
        desk: The endpoint of the coordinator.
        task: The index of the task.
        rack: The rack of the task; None if unknown.
        timeout_s: Seconds for which each request is retried.

    Raises:
        KafkaUnavailableError: The coordinator does not respond. The task must not read other splits instead, because
            they may be assigned to other tasks.
        RefusedError: The batch is over, or the token is wrong.
    """
    number = 0
    while True:
        question = {"token": desk.token, "batch": desk.batch, "task": task, "number": number, "rack": rack}
        said = _asked(desk, json.dumps(question).encode() + b"\n", "split", timeout_s)
        if said["split"] == "wait":
            time.sleep(_AGAIN_S)
            continue
        if said["split"] is None:
            return
        yield decode_split(said["split"])
        number += 1


def submit_batch(
    desk: CoordinatorEndpoint, splits: Sequence[Split], tasks: int, *, each: int, steal_after_s: float, timeout_s: float
) -> CoordinatorEndpoint:
    """Submit the splits of a batch to a coordinator, and return the endpoint at which tasks request them.

    Args:
        desk: The endpoint of the coordinator, with its token.
        splits: The splits of the batch.
        tasks: The number of tasks that will request splits.
        each: The highest number of splits per task; 0 for no limit.
        steal_after_s: Seconds that a task waits before it steals a split that is local to others.
        timeout_s: Seconds for which each request is retried.

    Raises:
        KafkaUnavailableError: The coordinator does not respond. No split has been assigned to a task.
        RefusedError: The token is wrong, or there are too many splits.
    """
    name = {"token": desk.token, "offer": secrets.token_hex(8)}
    at = 0
    for some in _chunks(splits):
        line = json.dumps({**name, "at": at}).encode()[:-1] + b', "splits": [' + b", ".join(some) + b"]}\n"
        _asked(desk, line, "have", timeout_s)
        at += len(some)
    begin = {**name, "tasks": tasks, "each": each, "steal_after_s": steal_after_s}
    said = _asked(desk, json.dumps(begin).encode() + b"\n", "batch", timeout_s)
    return replace(desk, batch=said["batch"])


def _chunks(splits: Sequence[Split]) -> Iterator[list[bytes]]:
    """Yield encoded splits, as many at a time as fit into a line."""
    some: list[bytes] = []
    size = 0
    for split in splits:
        written = json.dumps(encode_split(split)).encode()
        if some and size + len(written) > LONGEST // 2:
            yield some
            some, size = [], 0
        some.append(written)
        # The two bytes are the separator.
        size += len(written) + 2
    if some:
        yield some


def _asked(desk: CoordinatorEndpoint, line: bytes, wanted: str, timeout_s: float) -> dict[str, Any]:
    """Send a request until there is a response, and return it unless it is an error.

    A request can be repeated, because equal requests always have the same response.
    """
    said = _answer(desk, line, wanted, timeout_s)
    if "error" in said:
        raise RefusedError(f"the coordinator at {desk.address} refuses: {said['error']}")
    return said


def _answer(desk: CoordinatorEndpoint, line: bytes, wanted: str, timeout_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((desk.host, desk.port), timeout=max(_AGAIN_S, left)) as connection:
                connection.sendall(line)
                return _understood(read_line(connection, deadline), wanted)
        except (OSError, ValueError, RecursionError) as error:
            if time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    f"the coordinator at {desk.address} does not answer: {error}; executors must reach the "
                    "driver there (coordinatorHost, coordinatorPort) while the query runs, or use rackBinding=executor"
                ) from None
            time.sleep(_AGAIN_S)


def _understood(line: bytes, wanted: str) -> dict[str, Any]:
    answer = json.loads(line)
    if not isinstance(answer, dict) or not answer.keys() & {wanted, "error"}:
        raise ValueError(f"{short_repr(answer)} is not what a coordinator says")
    return answer
