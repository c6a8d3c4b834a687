"""The lines that tasks, submitting processes and the coordinator exchange, byte for byte."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from rackassign.errors import InputError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.spark._pull.client import RequestRejectedError, request_splits, submit_batch
from rackassign.spark._pull.coordinator import Coordinator
from rackassign.spark._pull.protocol import MAX_LINE_BYTES, CoordinatorEndpoint, encode_split
from rackassign.spark._splits import OffsetRange, Split

TOKEN = "a-token"  # noqa: S105 - of a coordinator that exists for one test
SENT = [
    Split(OffsetRange(TopicPartition("t", 0), 5, 25), ("a", "b"), 700, 65536),
    Split(OffsetRange(TopicPartition("ü", 1), 0, 9), (), 0, 1),
]
FIRST = b'{"topic": "t", "partition": 0, "start": 5, "end": 25, "racks": ["a", "b"], "size": 700, "fetch": 65536}'
SECOND = b'{"topic": "\\u00fc", "partition": 1, "start": 0, "end": 9, "racks": [], "size": 0, "fetch": 1}'
BEGIN = b'"count": 2, "tasks": 2, "each": 1, "steal_after_s": 0.5'


def requested(endpoint: CoordinatorEndpoint, task: int, rack: str | None, timeout_s: float) -> list[Split]:
    return [split for group in request_splits(endpoint, task, rack, timeout_s) for split in group]


def exchange(port: int, line: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(line)
        return connection.makefile("rb").readline()


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: TOKEN)
    with Coordinator("127.0.0.1") as made:
        yield made


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: TOKEN)
    with Coordinator("127.0.0.1", accept_batches=True) as made:
        yield made


def test_responses_to_tasks(coordinator: Coordinator) -> None:
    port = coordinator.begin(SENT, 2, steal_after_s=60).port
    own = b'{"token": "a-token", '
    for request, response in (
        (own + b'"batch": 0, "task": 0, "number": 0, "rack": "a"}', b'{"splits": [' + FIRST + b"]}"),
        (own + b'"batch": 0, "task": 0, "number": 0, "rack": null}', b'{"splits": [' + FIRST + b"]}"),
        (own + b'"batch": 0, "task": 1, "number": 0, "rack": null}', b'{"splits": [' + SECOND + b"]}"),
        (own + b'"batch": 0, "task": 1, "number": 1, "rack": null}', b'{"splits": []}'),
        (
            own + b'"batch": 7, "task": 0, "number": 0, "rack": "a"}',
            b'{"error": "batch 7 has ended or does not exist"}',
        ),
        (
            own + b'"batch": [0], "task": 0, "number": 0, "rack": "a"}',
            b'{"error": "batch an array of 1 has ended or does not exist"}',
        ),
        (
            own + b'"batch": true, "task": 0, "number": 0, "rack": "a"}',
            b'{"error": "batch true has ended or does not exist"}',
        ),
        (
            own + b'"batch": 0, "task": 2, "number": 0, "rack": "a"}',
            b'{"error": "task: expected 0 to 1, got 2"}',
        ),
        (
            own + b'"batch": 0, "task": 1, "number": 3, "rack": "a"}',
            b'{"error": "number: expected 0 to 1 from task 1, got 3"}',
        ),
    ):
        assert exchange(port, request + b"\n") == response + b"\n", request


def test_response_to_a_task_that_has_to_wait(coordinator: Coordinator) -> None:
    port = coordinator.begin(SENT[:1], 2, steal_after_s=60).port
    request = b'{"token": "a-token", "batch": 0, "task": 0, "number": 0, "rack": "c"}\n'
    assert exchange(port, request) == b'{"splits": "wait"}\n'


@pytest.mark.parametrize(
    ("request_line", "problem"),
    [
        (b"", b"malformed request"),
        (b"null", b"malformed request"),
        (b"[1]", b"malformed request"),
        (b"{}", b"malformed request"),
        (b"\xff", b"malformed request"),
        (b"GET / HTTP/1.1", b"malformed request"),
        (b'{"token": 5}', b"malformed request"),
        (b'{"token": "guess"}', b"wrong token"),
        (b'{"token": "guess", "batch": 0, "task": 0, "number": 0, "rack": "a"}', b"wrong token"),
        (b'{"token": "a-token", "token": "guess"}', b"wrong token"),
        (b'{"token": "a-token"', b"malformed request"),
        (b'{"token": "a-token"}', b"malformed request"),
        (b'{"token": "a-token", "batch": 0, "number": 0, "rack": "a"}', b"malformed request"),
        (b'{"token": "a-token", "batch": 0, "task": "0", "number": 0, "rack": "a"}', b"malformed request"),
        (b'{"token": "a-token", "batch": 0, "task": true, "number": 0, "rack": "a"}', b"malformed request"),
        (b'{"token": "a-token", "batch": 0, "task": 0, "number": 0.5, "rack": "a"}', b"malformed request"),
        (b'{"token": "a-token", "batch": 0, "task": 0, "number": 0, "rack": 5}', b"malformed request"),
        (b'{"token": "a-token", "batch": 0, "task": 0, "number": 0}', b"malformed request"),
        (b'{"token": "a-token", "offer": "x", ' + BEGIN + b"}", b"malformed request"),
        (b'{"token": "a-token", "offer": "x", "at": 0, "splits": [{}]}', b"malformed request"),
    ],
)
def test_responses_to_malformed_requests(coordinator: Coordinator, request_line: bytes, problem: bytes) -> None:
    port = coordinator.begin(SENT, 2).port
    assert exchange(port, request_line + b"\n") == b'{"error": "' + problem + b'"}\n'


def test_responses_to_a_submitting_process(accepting: Coordinator) -> None:
    port = accepting.endpoint().port
    own = b'{"token": "a-token", "offer": "x", '
    for request, response in (
        (
            own + BEGIN + b"}",
            b'{"error": "the splits of this batch were removed or never submitted; submit them again"}',
        ),
        (own + b'"at": 0, "splits": [' + FIRST + b"]}", b'{"have": 1}'),
        (own + b'"at": 0, "splits": [' + FIRST + b"]}", b'{"have": 1}'),
        (own + b'"at": "1", "splits": [' + SECOND + b"]}", b'{"have": 2}'),
        # Late, and once more.
        (own + b'"at": 0, "splits": [' + FIRST + b"]}", b'{"have": 1}'),
        (
            own + b'"at": 4, "splits": [' + SECOND + b"]}",
            b'{"error": "at: expected at most 2, and at most 1000000 splits, got 4 and 1 more splits"}',
        ),
        (own + b'"at": 2, "splits": [{}]}', b'{"error": "split: malformed: \'topic\'"}'),
        (
            own + b'"at": 2, "splits": ["t"]}',
            b'{"error": "split: malformed: string indices must be integers',
        ),
        (own + b'"splits": [' + SECOND + b"]}", b'{"error": "malformed request"}'),
        (own + b'"at": 2, "splits": 3}', b'{"error": "malformed request"}'),
        (own + b'"at": 1e999, "splits": []}', b'{"error": "malformed request"}'),
        (own + b'"at": null, "splits": []}', b'{"error": "malformed request"}'),
        (own + b'"count": 2, "tasks": "many", "each": 1, "steal_after_s": 0.5}', b'{"error": "malformed request"}'),
        (own + b'"count": 2, "tasks": 2, "each": 1}', b'{"error": "malformed request"}'),
        (own + b'"tasks": 2, "each": 1, "steal_after_s": 0.5}', b'{"error": "malformed request"}'),
        (
            own + b'"count": 3, "tasks": 2, "each": 1, "steal_after_s": 0.5}',
            b'{"error": "count: expected the number of submitted splits, 2, got 3"}',
        ),
        (
            own + b'"count": 2, "tasks": 1, "each": 1, "steal_after_s": 0.5}',
            b'{"error": "tasks: 1 are too few for 2 splits"}',
        ),
        (own + BEGIN + b"}", b'{"batch": 0}'),
        (own + BEGIN + b"}", b'{"batch": 0}'),
        (own + b'"at": "1", "splits": [' + SECOND + b"]}", b'{"have": 2}'),
        (b'{"token": "a-token", "batch": 0, "task": 0, "number": 0, "rack": "a"}', b'{"splits": [' + FIRST + b"]}"),
        (
            b'{"token": "a-token", "batch": 3, "task": 0, "number": 0, "rack": "a"}',
            b'{"error": "batch 3 has ended or does not exist"}',
        ),
    ):
        found = exchange(port, request + b"\n")
        # Versions of Python describe a wrong type differently.
        assert found == response + b"\n" or (b"string indices" in response and found.startswith(response)), request


@contextmanager
def answering(lines: Sequence[bytes]) -> Iterator[tuple[CoordinatorEndpoint, list[bytes]]]:
    """Listen as a coordinator does, respond with these lines in turn, and collect the requests."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def answer() -> None:
            for line in lines:
                connection, _ = listening.accept()
                with connection:
                    requests.append(connection.makefile("rb").readline())
                    connection.sendall(line + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield CoordinatorEndpoint("127.0.0.1", listening.getsockname()[1], TOKEN, 4), requests
        thread.join()


def test_requests_of_a_task() -> None:
    responses = (
        b'{"splits": "wait"}',
        b'{"splits": [' + FIRST + b"]}",
        b'{"splits": [' + SECOND + b"]}",
        b'{"splits": []}',
    )
    with answering(responses) as (endpoint, requests):
        assert requested(endpoint, 3, "a", 30) == SENT
    own = b'{"token": "a-token", "batch": 4, "task": 3, "number": '
    assert requests == [own + number + b', "rack": "a"}\n' for number in (b"0", b"0", b"1", b"2")]
    with answering([b'{"splits": []}']) as (endpoint, requests):
        assert requested(endpoint, 0, None, 30) == []
    assert requests == [b'{"token": "a-token", "batch": 4, "task": 0, "number": 0, "rack": null}\n']


def test_the_splits_of_a_response_are_read_together_however_long_it_is() -> None:
    many = [Split(OffsetRange(TopicPartition("t" * 200, n), 0, 10), ("a",), 7, 1) for n in range(500)]
    responses = [json.dumps({"splits": [encode_split(split) for split in splits]}).encode() for splits in (many, [])]
    assert len(responses[0]) > 2 * MAX_LINE_BYTES
    with answering(responses) as (endpoint, _):
        assert list(request_splits(endpoint, 0, "a", 30)) == [tuple(many)]


def test_requests_of_a_submitting_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "x")
    with answering((b'{"have": 2}', b'{"batch": 9}')) as (endpoint, requests):
        begun = submit_batch(endpoint, SENT, 2, max_splits_per_task=1, steal_after_s=0.5, timeout_s=30)
    assert begun.batch == 9
    own = b'{"token": "a-token", "offer": "x", '
    assert requests == [
        own + b'"at": 0, "splits": [' + FIRST + b", " + SECOND + b"]}\n",
        own + b'"count": 2, "tasks": 2, "each": 1, "steal_after_s": 0.5}\n',
    ]


def test_the_splits_of_a_large_batch_are_in_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "x")
    many = [Split(OffsetRange(TopicPartition("t" * 200, n), 0, 10), ("a",), 7, 1) for n in range(250)]
    with answering((b'{"have": 113}', b'{"have": 226}', b'{"have": 250}', b'{"batch": 0}')) as (endpoint, requests):
        submit_batch(endpoint, many, 2, max_splits_per_task=0, steal_after_s=0, timeout_s=30)
    assert [(line[35:45], line.count(b'"topic"'), len(line)) for line in requests[:3]] == [
        (b'"at": 0, "', 111, 32691),
        (b'"at": 111,', 111, 32803),
        (b'"at": 222,', 28, 8318),
    ]
    assert (
        requests[3] == b'{"token": "a-token", "offer": "x", "count": 250, "tasks": 2, "each": 0, "steal_after_s": 0}\n'
    )


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b'{"error": "wrong token"}', "rejected the request: wrong token"),
        (b'{"error": "batch 4 is over", "splits": []}', "rejected the request: batch 4 is over"),
        (b'{"error": null}', "rejected the request: None"),
    ],
)
def test_errors_end_a_task(response: bytes, problem: str) -> None:
    with answering([response]) as (endpoint, _), pytest.raises(RequestRejectedError, match=problem):
        requested(endpoint, 0, "a", 30)


def test_a_malformed_split_is_not_requested_again() -> None:
    with answering([b'{"splits": [{"topic": "t"}]}']) as (endpoint, _), pytest.raises(InputError, match="split: "):
        requested(endpoint, 0, "a", 30)


@pytest.mark.parametrize("responses", [[b'{"have": "2"}'], [b'{"have": 2}', b'{"batch": null}']])
def test_a_malformed_number_ends_a_submission(responses: Sequence[bytes]) -> None:
    with answering(responses) as (endpoint, _), pytest.raises(InputError, match=r"(have|batch): expected a number"):
        submit_batch(endpoint, SENT, 2, max_splits_per_task=0, steal_after_s=0, timeout_s=30)


@pytest.mark.parametrize("response", [b"", b"null", b'"splits"', b'{"have": 1}', b'{"splits": ', b"HTTP/1.1 200 OK"])
def test_other_responses_are_none_of_a_coordinator(response: bytes) -> None:
    with answering([response]) as (endpoint, _), pytest.raises(KafkaUnavailableError):
        requested(endpoint, 0, "a", 0)
