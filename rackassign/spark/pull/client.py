"""Asks the coordinator for one split after the other, on executors; and offers it those of a batch, on the driver."""

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
    """The coordinator answers, and will not deal out what is asked for."""


def request_splits(desk: CoordinatorEndpoint, task: int, rack: str | None, timeout_s: float) -> Iterator[Split]:
    """Yield the splits of a task until there are no more.

    Args:
        desk: Where to ask.
        task: Its index.
        rack: Where it runs; None if it does not know.
        timeout_s: So long is asked again and again.

    Raises:
        NoAnswerError: Nobody answers. Nothing is read instead: others may have been dealt what this task would take,
            and it cannot know.
        RefusedError: The batch is over, or the token is another's.
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
    """Offer the splits of a batch to a coordinator that somebody holds, and return where tasks ask for them.

    Args:
        desk: Where it is, and its token.
        splits: What there is to read.
        tasks: How many will ask.
        each: At most so many splits to a task; 0 for no bound.
        steal_after_s: So long a task waits before it takes what others can read at home.
        timeout_s: So long is asked again and again.

    Raises:
        NoAnswerError: Nobody answers; no task has been dealt anything.
        RefusedError: The token is another's, or there are too many splits.
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
    """Yield splits as they are sent, as many at a time as fit into a line."""
    some: list[bytes] = []
    size = 0
    for split in splits:
        written = json.dumps(encode_split(split)).encode()
        if some and size + len(written) > LONGEST // 2:
            yield some
            some, size = [], 0
        some.append(written)
        # With what is between them.
        size += len(written) + 2
    if some:
        yield some


def _asked(desk: CoordinatorEndpoint, line: bytes, wanted: str, timeout_s: float) -> dict[str, Any]:
    """Ask until there is an answer, and return it unless it refuses: the same question always has the same one."""
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
