"""The client of the coordinator: executors request splits from it, and the driver submits those of a batch to it."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rackassign.errors import InputError, KafkaUnavailableError, RackassignError
from rackassign.spark._pull.protocol import (
    MAX_LINE_BYTES,
    MAX_RESPONSE_BYTES,
    CoordinatorEndpoint,
    ErrorResponse,
    ExpectedResponse,
    Request,
    SplitRequest,
    SplitResponse,
    StartBatchRequest,
    StartBatchResponse,
    SubmitSplitsRequest,
    SubmitSplitsResponse,
    encode,
    encode_split,
    parse_response,
)
from rackassign.spark._pull.server import read_line
from rackassign.spark._splits import Split

_RETRY_S = 0.05


class RequestRejectedError(RackassignError):
    """The coordinator responds with an error to a request."""


def request_splits(
    endpoint: CoordinatorEndpoint, task: int, rack: str | None, timeout_s: float
) -> Iterator[tuple[Split, ...]]:
    """Yield the splits of a task until there are no more, some at a time that are read together."""
    # A task that gets a KafkaUnavailableError must not read other splits, which may be assigned to other tasks.
    number = 0
    while True:
        request = SplitRequest(endpoint.token, endpoint.batch, task, number, rack)
        splits = _send(endpoint, request, SplitResponse, timeout_s).splits
        if splits == "wait":
            time.sleep(_RETRY_S)
        elif splits:
            yield splits
            number += 1
        else:
            return


def submit_batch(
    endpoint: CoordinatorEndpoint,
    splits: Sequence[Split],
    tasks: int,
    *,
    max_splits_per_task: int,
    steal_after_s: float,
    timeout_s: float,
) -> CoordinatorEndpoint:
    """Submit the splits of a batch to a coordinator, and return the endpoint at which tasks request them."""
    submission = secrets.token_hex(8)
    first = 0
    for chunk in _chunks(splits):
        request = SubmitSplitsRequest(endpoint.token, submission, first, chunk)
        _send(endpoint, request, SubmitSplitsResponse, timeout_s)
        first += len(chunk)
    start = StartBatchRequest(endpoint.token, submission, len(splits), tasks, max_splits_per_task, steal_after_s)
    return replace(endpoint, batch=_send(endpoint, start, StartBatchResponse, timeout_s).batch)


def _chunks(splits: Sequence[Split]) -> Iterator[tuple[Split, ...]]:
    """Yield splits, as many at a time as fit into a line."""
    chunk: list[Split] = []
    size = 0
    for split in splits:
        length = len(json.dumps(encode_split(split)).encode())
        if chunk and size + length > MAX_LINE_BYTES // 2:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(split)
        # The two bytes are the separator.
        size += length + 2
    if chunk:
        yield tuple(chunk)


def _send(
    endpoint: CoordinatorEndpoint, request: Request, expected: type[ExpectedResponse], timeout_s: float
) -> ExpectedResponse:
    """Send a request until there is a response, and return it unless it is an error."""
    # A request can be repeated at any time, because an equal one changes nothing and has the same response. The
    # exception is `wait`, in place of which splits are the response later.
    response = _exchange(endpoint, encode(request), expected, timeout_s)
    if isinstance(response, ErrorResponse):
        raise RequestRejectedError(f"the coordinator at {endpoint.address} rejected the request: {response.error}")
    return response


def _exchange(
    endpoint: CoordinatorEndpoint, line: bytes, expected: type[ExpectedResponse], timeout_s: float
) -> ExpectedResponse | ErrorResponse:
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            with socket.create_connection((endpoint.host, endpoint.port), timeout=max(_RETRY_S, left)) as connection:
                connection.sendall(line)
                return parse_response(read_line(connection, deadline, MAX_RESPONSE_BYTES), expected)
        except InputError:
            # The response is that of a coordinator, and would be the same again.
            raise
        except (OSError, ValueError, RecursionError) as error:
            if time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    f"the coordinator at {endpoint.address} does not respond: {error}; executors must reach the "
                    "driver there (coordinatorHost, coordinatorPort) while the query runs, or use rackBinding=executor"
                ) from None
            time.sleep(_RETRY_S)
