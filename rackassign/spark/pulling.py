"""Asks the coordinator for one split after the other; runs on executors."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from rackassign.errors import NoAnswerError
from rackassign.spark.coordinator import LONGEST, Desk, from_wire
from rackassign.spark.ranges import Split

_AGAIN_S = 0.05


def pulled(desk: Desk, task: int, rack: str | None, timeout_s: float) -> Iterator[Split]:
    """Yield the splits of a task until there are no more.

    Args:
        desk: Where to ask.
        task: Its index.
        rack: Where it runs; None if it does not know.
        timeout_s: So long is asked again and again.

    Raises:
        NoAnswerError: Nobody answers, or refuses. Nothing is read instead: others may have been dealt what this task
            would take.
    """
    number = 0
    while True:
        question = {"token": desk.token, "batch": desk.batch, "task": task, "number": number, "rack": rack}
        said = _asked(desk, json.dumps(question).encode() + b"\n", timeout_s)
        if "error" in said:
            raise NoAnswerError(f"the coordinator at {desk.host}:{desk.port} refuses: {said['error']}")
        if said["split"] == "wait":
            time.sleep(_AGAIN_S)
            continue
        if said["split"] is None:
            return
        yield from_wire(said["split"])
        number += 1


def _asked(desk: Desk, line: bytes, timeout_s: float) -> dict[str, Any]:
    """Ask until there is an answer: the same question has the same one, however often it is asked."""
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((desk.host, desk.port), timeout=max(_AGAIN_S, left)) as connection:
                connection.sendall(line)
                with connection.makefile("rb") as answers:
                    answer: dict[str, Any] = json.loads(answers.readline(LONGEST))
                    return answer
        except (OSError, ValueError) as error:
            if time.monotonic() >= deadline:
                raise NoAnswerError(
                    f"the coordinator at {desk.host}:{desk.port} does not answer: {error}; executors must reach the "
                    "driver there (coordinatorHost, coordinatorPort), or use binding=late"
                ) from None
            time.sleep(_AGAIN_S)
