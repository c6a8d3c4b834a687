"""Splits that are asked for over a socket: answered to those of the query, and to nobody else.

Splits that are pulled: each is read by one task, every question has one answer, and what can be local is.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError, InputError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.spark._pull import scheduler, server
from rackassign.spark._pull.client import RequestRejectedError, request_splits, submit_batch
from rackassign.spark._pull.coordinator import Coordinator
from rackassign.spark._pull.protocol import MAX_LINE_BYTES, CoordinatorEndpoint, decode_split, encode_split
from rackassign.spark._pull.scheduler import SchedulingStats, SplitScheduler, _apportioned, plan
from rackassign.spark._pull.server import local_address_for
from rackassign.spark._splits import OffsetRange, Split
from tests.helpers.machine_speed import scaled_s

WITHIN_S = 600.0
SPLITS = [Split(OffsetRange(TopicPartition("t", n), n, 10 + n), ("abc"[n % 3],), 7, 1) for n in range(30)]


def requested(endpoint: CoordinatorEndpoint, task: int, rack: str | None, timeout_s: float) -> list[Split]:
    return [split for group in request_splits(endpoint, task, rack, timeout_s) for split in group]


def test_tasks_share_the_splits_of_a_batch_and_retries_read_the_same() -> None:
    with Coordinator("127.0.0.1") as coordinator, ThreadPoolExecutor(6) as pool:
        desk = coordinator.begin(SPLITS, 6)
        read = list(pool.map(lambda task: requested(desk, task, "abc"[task % 3], 30), range(6)))
        assert sorted(split.range.tp.partition for splits in read for split in splits) == list(range(30))
        again = list(pool.map(lambda task: requested(desk, task, "c", 30), range(6)))
        assert again == read
        assert sum(getattr(coordinator.stats(), kind) for kind in ("local", "stolen")) == 30 * 7


def test_the_batch_before_is_kept_and_older_ones_are_over() -> None:
    with Coordinator("127.0.0.1") as coordinator:
        first = coordinator.begin(SPLITS[:1], 1)
        assert requested(first, 0, "a", 30) == SPLITS[:1]
        second = coordinator.begin(SPLITS[1:2], 1)
        assert requested(first, 0, "a", 30) == SPLITS[:1]
        coordinator.begin([], 1)
        assert coordinator.stats() == SchedulingStats()
        assert requested(second, 0, "b", 30) == SPLITS[1:2]
        with pytest.raises(RequestRejectedError, match="rejected the request: batch 0 has ended"):
            requested(first, 0, "a", 30)


def test_what_a_plan_needs_is_imported_before_there_are_requests() -> None:
    program = """
import sys
from rackassign.spark._pull.coordinator import Coordinator
with Coordinator("127.0.0.1", accept_batches=True):
    print("rackassign.strategies.sticky" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "True\n"


def test_strangers_get_nothing() -> None:
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS, 1)
        assert desk.token not in repr(desk)
        stranger = CoordinatorEndpoint(desk.host, desk.port, "guess", desk.batch)
        with pytest.raises(RequestRejectedError, match="rejected the request: wrong token"):
            requested(stranger, 0, "a", 30)
        question = {"token": desk.token, "batch": desk.batch, "task": 0, "number": 0, "rack": "a"}
        for wrong, told in (
            ({"task": 1}, "task: expected 0 to 0"),
            ({"number": 5}, "number: expected 0 to 0 from task 0"),
            ({"task": "0"}, "malformed request"),
            ({"rack": 5}, "malformed request"),
            ({"batch": [0]}, "batch an array of 1 has ended"),
        ):
            assert told in asked(desk, json.dumps({**question, **wrong}).encode() + b"\n")
        for nonsense in (b"\n", b"{}\n", b"[1]\n", b"\xff\n", b"[" * 50_000 + b"\n"):
            assert "malformed request" in asked(desk, nonsense)
        assert asked(desk, b"x" * (MAX_LINE_BYTES + 10)) == ""
        assert len(requested(desk, 0, "a", 30)) == 30


def asked(desk: CoordinatorEndpoint, line: bytes) -> str:
    with socket.create_connection((desk.host, desk.port), timeout=60) as connection:
        try:
            connection.sendall(line)
            return connection.makefile("rb").readline().decode()
        except ConnectionError:
            return ""


def test_batches_are_offered_to_one_that_takes_offers() -> None:
    many = [Split(OffsetRange(TopicPartition("t" * 200, n), 0, 10), ("abc"[n % 3],), 7, 1) for n in range(700)]
    with Coordinator("127.0.0.1", accept_batches=True) as coordinator:
        desks = [
            submit_batch(coordinator.endpoint(), splits, 3, max_splits_per_task=0, steal_after_s=0, timeout_s=30)
            for splits in (many, SPLITS)
        ]
        assert [desk.batch for desk in desks] == [0, 1]
        for splits, desk in zip((many, SPLITS), desks, strict=True):
            read = [split for task in range(3) for split in requested(desk, task, "abc"[task], 30)]
            assert sorted(split.range.tp for split in read) == [split.range.tp for split in splits]
        with pytest.raises(RequestRejectedError, match="rejected the request: tasks: 2 are too few for 30 splits"):
            submit_batch(coordinator.endpoint(), SPLITS, 2, max_splits_per_task=1, steal_after_s=0, timeout_s=30)
        stranger = replace(coordinator.endpoint(), token="guess")  # noqa: S106 - it is none
        with pytest.raises(RequestRejectedError, match="rejected the request: wrong token"):
            submit_batch(stranger, SPLITS, 2, max_splits_per_task=0, steal_after_s=0, timeout_s=30)


def test_a_line_of_an_offer_may_come_again() -> None:
    with Coordinator("127.0.0.1", accept_batches=True) as coordinator:
        desk = coordinator.endpoint()

        def tell(**told: object) -> str:
            return asked(desk, json.dumps({"token": desk.token, "offer": "x", **told}).encode() + b"\n").strip()

        first, second = ([encode_split(split) for split in SPLITS[at : at + 2]] for at in (0, 2))
        begin = {"count": 4, "tasks": 1, "each": 0, "steal_after_s": 0}
        assert "the splits of this batch were removed" in tell(**begin)
        assert tell(at=0, splits=first) == '{"have": 2}'
        assert tell(at=0, splits=first) == '{"have": 2}'
        assert tell(at=2, splits=second) == '{"have": 4}'
        assert "at: expected at most 4" in tell(at=5, splits=second)
        # A late one takes nothing away.
        assert tell(at=0, splits=first) == '{"have": 2}'
        assert "count: expected the number of submitted splits, 4, got 2" in tell(**{**begin, "count": 2})
        assert [tell(**begin), tell(**begin), tell(at=2, splits=second)] == ['{"batch": 0}'] * 2 + ['{"have": 4}']
        assert requested(desk, 0, "a", 30) == sorted(SPLITS[:4], key=lambda split: split.racks)
        for wrong in ({}, {**begin, "tasks": "many"}, {"splits": 3, "at": 0}):
            assert "malformed request" in tell(**{"offer": "y", **wrong})
        assert "split: malformed" in tell(offer="y", at=0, splits=[{}])
    with (
        Coordinator("127.0.0.1") as closed,
        pytest.raises(RequestRejectedError, match="rejected the request: malformed request"),
    ):
        submit_batch(closed.endpoint(), SPLITS, 2, max_splits_per_task=0, steal_after_s=0, timeout_s=30)


def test_nothing_listens_longer_than_the_query() -> None:
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS, 1)
    with pytest.raises(KafkaUnavailableError, match=r"does not respond.*coordinatorHost.*or use rackBinding=executor"):
        requested(desk, 0, "a", 0.01)


def test_where_it_cannot_listen_is_said() -> None:
    with Coordinator("127.0.0.1") as coordinator:
        port = coordinator.begin([], 1).port
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(ConfigError, match="coordinatorHost: cannot listen on"):
                Coordinator("127.0.0.1", taken.getsockname()[1])
        assert port > 0
    for host, port in (("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 70, 0), ("a" * 300, 0), ("127.0.0.1", 99_999)):
        with pytest.raises(ConfigError, match="coordinatorHost: cannot listen on"):
            Coordinator(host, port)
    assert local_address_for("[::1]:9092") == "::1"
    assert local_address_for("PLAINTEXT://127.0.0.1:9092,other:1") == "127.0.0.1"
    assert local_address_for("not a server") == socket.gethostname()
    with pytest.raises(InputError, match="split"):
        decode_split({"topic": "t"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "0"])  # noqa: S104 - it is refused
def test_an_address_that_nobody_can_ask_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="coordinatorHost: expected the address by which executors reach the driver"):
        Coordinator(host)
    with pytest.raises(ConfigError, match="coordinatorHost: expected the address"):
        CoordinatorEndpoint("0.0.0.0", 1, "", 0)  # noqa: S104 - the same


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_will_do(host: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with Coordinator(host) as coordinator:
        desk = coordinator.begin(SPLITS[:1], 1)
        assert repr(desk) == f"CoordinatorEndpoint([::1]:{desk.port}, batch 0)"
        assert requested(desk, 0, "a", 30) == SPLITS[:1]
        with pytest.raises(RequestRejectedError, match=rf"the coordinator at \[::1\]:{desk.port} rejected the request"):
            requested(replace(desk, batch=7), 0, "a", 30)


@contextmanager
def silent(desk: CoordinatorEndpoint, connections: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold connections that say nothing, or this and no more."""
    with ExitStack() as opened:
        held = []
        for _ in range(connections):
            held.append(opened.enter_context(socket.create_connection((desk.host, desk.port), timeout=WITHIN_S)))
            if said:
                held[-1].sendall(said)
        yield held


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other side has closed it."""
    try:
        while connection.recv(MAX_LINE_BYTES):
            pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b'{"token": "',
        b'{"token": "' + b"x" * 32,
        b'{"token": "' + b"x" * 32 + b'", "batch": 0',
        # As a frame whose first bytes are its length.
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n",
        b"y" * 5000,
    ],
)
def test_300_strangers_delay_nobody_for_longer_than_they_have_time(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 20)
    monkeypatch.setattr(server, "_TOKEN_S", 0.05)
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS, 6)
        before = threading.active_count()
        with silent(desk, 300, said) as held:
            assert sum(len(requested(desk, task, "abc"[task % 3], WITHIN_S)) for task in range(6)) == 30
            assert threading.active_count() <= before + 20
            assert all(map(is_closed, held))


def test_strangers_have_little_time_and_so_have_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TOKEN_S", scaled_s(0.3))
    monkeypatch.setattr(server, "_LINE_S", scaled_s(0.3))
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS[:1], 1)
        half = b'{"token": "' + desk.token.encode() + b'", "batch": ' + b" " * 200
        with silent(desk, 10) as strangers, silent(desk, 10, half) as known, dripping(desk, 10) as left:
            assert requested(desk, 0, "a", WITHIN_S) == SPLITS[:1]
            assert all(is_closed(each) for each in (*strangers, *known))
            deadline = time.monotonic() + WITHIN_S
            while left and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not left


def test_who_has_the_token_is_heard_though_many_that_have_it_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LINE_S", 4 * WITHIN_S)
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS, 1)
        half = b'{"token": "' + desk.token.encode() + b'", "batch": ' + b" " * 200
        with silent(desk, 300, half):
            assert len(requested(desk, 0, "a", WITHIN_S)) == 30


def test_a_question_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TOKEN_S", WITHIN_S)
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS[:1], 1)
        question = {"token": desk.token, "batch": desk.batch, "task": 0, "number": 0, "rack": "a" * 300}
        for line in (json.dumps(question), json.dumps(question, separators=(",", ":"))):
            with socket.create_connection((desk.host, desk.port), timeout=WITHIN_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for letter in line:
                    connection.sendall(letter.encode())
                connection.sendall(b"\n")
                assert b'"partition": 0' in connection.makefile("rb").readline()


def test_an_answer_that_drips_is_not_waited_for_without_end() -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:

        def drip() -> None:
            connection, _ = other.accept()
            with connection:
                while not over.wait(0.05):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        asking = threading.Thread(
            target=lambda: refused.append(_told(CoordinatorEndpoint("127.0.0.1", other.getsockname()[1], "hush", 0))),
            daemon=True,
        )
        refused: list[str] = []
        asking.start()
        asking.join(WITHIN_S)
        over.set()
        assert refused
        assert "does not respond: " in refused[0]


def _told(desk: CoordinatorEndpoint) -> str:
    with pytest.raises(KafkaUnavailableError) as error:
        requested(desk, 0, "a", 0.5)
    return str(error.value)


def test_it_closes_whoever_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TOKEN_S", 2 * WITHIN_S)
    coordinator = Coordinator("127.0.0.1")
    with dripping(coordinator.endpoint(), 70):
        # It is not behind all of them.
        assert len(requested(coordinator.begin(SPLITS, 1), 0, "a", WITHIN_S)) == 30
        closing = threading.Thread(target=coordinator.close, daemon=True)
        closing.start()
        closing.join(WITHIN_S)
        assert not closing.is_alive()
        coordinator.close()


def test_without_a_thread_more_it_answers_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with Coordinator("127.0.0.1") as coordinator:
        desk = coordinator.begin(SPLITS, 1)

        def none(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", none)
            assert len(requested(desk, 0, "a", WITHIN_S)) == 30


@contextmanager
def dripping(desk: CoordinatorEndpoint, connections: int) -> Iterator[list[socket.socket]]:
    """Hold connections that say one letter after the other; those that the other side closes leave the list."""
    over = threading.Event()
    with ExitStack() as opened:
        held = [
            opened.enter_context(socket.create_connection((desk.host, desk.port), timeout=WITHIN_S))
            for _ in range(connections)
        ]

        def drip() -> None:
            while not over.wait(0.02):
                for each in list(held):
                    try:
                        each.sendall(b"x")
                    except OSError:
                        held.remove(each)

        dropping = threading.Thread(target=drip)
        dropping.start()
        try:
            yield held
        finally:
            over.set()
            dropping.join()


@pytest.mark.parametrize("said", [b"null", b"5", b'["split"]', b"{}", b'{"have": 0}', b"[" * 60_000, b"SSH-2.0"])
def test_what_is_no_coordinator_is_named(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            while True:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(MAX_LINE_BYTES)
                    connection.sendall(said + b"\n")

        threading.Thread(target=answer, daemon=True).start()
        desk = CoordinatorEndpoint("127.0.0.1", other.getsockname()[1], "hush", 0)
        with pytest.raises(KafkaUnavailableError, match="does not respond"):
            requested(desk, 0, "a", 0.2)
        other.shutdown(socket.SHUT_RDWR)


def test_what_reads_the_same_batch_in_many_places_is_forgotten_together() -> None:
    with Coordinator("127.0.0.1") as coordinator:
        first = [coordinator.begin(SPLITS, 3, key="0 to 9") for _ in range(5)]
        later = [coordinator.begin(SPLITS, 3, key="9 to 20") for _ in range(5)]
        for desk in (*first, *later):
            assert len(requested(desk, 0, "a", 30)) == 30
        newest = coordinator.begin(SPLITS, 3, key="20 to 30")
        for desk in first:
            with pytest.raises(RequestRejectedError, match="has ended"):
                requested(desk, 0, "a", 30)
        assert len(requested(newest, 0, "a", 30)) == 30
        assert requested(later[0], 1, "a", 30) == []


RACKS = ("a", "b", "c")
LARGE = 100_000
"""Bytes of a split that is not small."""


def split(number: int, racks: tuple[str, ...], size: int = LARGE) -> Split:
    return Split(OffsetRange(TopicPartition("t", number), 0, 10), racks, size, 1)


def striped(count: int) -> list[Split]:
    return [split(number, tuple(sorted({RACKS[number % 3], RACKS[(number + 1) % 3]}))) for number in range(count)]


READY = st.lists(
    st.tuples(st.sets(st.sampled_from(RACKS)), st.integers(0, 1000)).map(
        lambda pair: (tuple(sorted(pair[0])), pair[1])
    ),
    max_size=12,
).map(lambda drawn: [split(number, racks, size) for number, (racks, size) in enumerate(drawn)])
QUESTIONS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*RACKS, "z", None])), max_size=60)


@given(READY, QUESTIONS, st.sampled_from([None, {"a": 2, "b": 1, None: 1}]))
def test_every_split_has_one_task_and_every_question_one_answer(
    splits: list[Split], questions: list[tuple[int, str | None]], slots: dict[str | None, int] | None
) -> None:
    deal = SplitScheduler(splits, 5, slots=slots)
    lists: dict[int, list[tuple[Split, ...]]] = {task: [] for task in range(5)}
    ended: set[int] = set()
    # The last questions are those of tasks that are run until they have no more.
    for task, rack in [*questions, *((task, "a") for task in range(5) for _ in range(len(splits) + 1))]:
        answer = deal.next_splits(task, len(lists[task]), rack)
        assert answer != "wait"
        if not answer:
            ended.add(task)
        else:
            assert task not in ended
            lists[task].append(answer)
        # Whoever asks again, from wherever, is told the same.
        for number, told in enumerate(lists[task]):
            assert deal.next_splits(task, number, "c") == told
    dealt = [each.range.tp.partition for answers in lists.values() for told in answers for each in told]
    assert sorted(dealt) == list(range(len(splits)))
    found = deal.stats()
    assert found.local + found.stolen + found.unknown == sum(each.size for each in splits)
    assert deal.unassigned() == 0


@given(READY, st.integers(1, 3))
def test_with_a_bound_every_split_finds_room(splits: list[Split], each: int) -> None:
    tasks = max(1, -(-len(splits) // each))
    deal = SplitScheduler(splits, tasks, max_splits_per_task=each)
    for task in range(tasks):
        requests = dealt = 0
        while told := deal.next_splits(task, requests, "b"):
            requests += 1
            dealt += len(told)
        assert dealt <= each
    assert deal.unassigned() == 0


@pytest.mark.parametrize("order", ["abc", "cab", "aabbcc", "abcabc"])
def test_tasks_that_come_evenly_read_all_at_home(order: str) -> None:
    deal = SplitScheduler(striped(12), len(order))
    asked: Counter[int] = Counter()
    while deal.unassigned():
        for task, rack in enumerate(order):
            if deal.next_splits(task, asked[task], rack):
                asked[task] += 1
    assert deal.stats() == SchedulingStats(local=12 * LARGE)


def test_what_was_seen_before_saves_what_others_need() -> None:
    # Rack a could take all, and b only one of them.
    splits = [split(0, ("a",)), split(1, ("a", "b"))]
    knowing = SplitScheduler(splits, 2, slots={"a": 1, "b": 1})
    assert knowing.next_splits(0, 0, "a") == (splits[0],)
    assert knowing.next_splits(1, 0, "b") == (splits[1],)
    assert knowing.stats() == SchedulingStats(local=2 * LARGE)


def test_what_cannot_be_local_is_taken_from_where_most_is_left() -> None:
    splits = [split(0, ("a",)), split(1, ("b",)), split(2, ("b",))]
    deal = SplitScheduler(splits, 3, slots={"a": 1, "b": 1, "z": 1})
    stolen = deal.next_splits(2, 0, "z")
    assert stolen != "wait"
    assert [each.racks for each in stolen] == [("b",)]
    assert deal.stats() == SchedulingStats(stolen=LARGE)
    assert deal.slots() == {"z": 1}


def test_a_task_waits_before_it_steals_and_each_time_anew() -> None:
    now = [0.0]
    deal = SplitScheduler([split(number, ("a",)) for number in range(4)], 2, steal_after_s=5, clock=lambda: now[0])
    assert len(deal.next_splits(1, 0, "a")) == 1
    for number in range(2):
        assert deal.next_splits(0, number, "b") == "wait"
        now[0] += 4
        assert deal.next_splits(0, number, "b") == "wait"
        now[0] += 1
        assert len(deal.next_splits(0, number, "b")) == 1
    assert deal.next_splits(0, 2, "b") == "wait"
    assert len(deal.next_splits(1, 1, "a")) == 1
    assert deal.next_splits(0, 2, "b") == ()
    assert deal.stats() == SchedulingStats(local=2 * LARGE, stolen=2 * LARGE)


def test_nobody_is_waited_for_who_has_not_come_in_all_that_time() -> None:
    now = [0.0]
    deal = SplitScheduler([split(number, ("a",)) for number in range(9)], 2, steal_after_s=5, clock=lambda: now[0])
    assert deal.next_splits(0, 0, "b") == "wait"
    now[0] = 5
    assert all(len(deal.next_splits(0, number, "b")) == 1 for number in range(8))
    # One comes all the same, and is waited for from then on.
    assert len(deal.next_splits(1, 0, "a")) == 1
    assert deal.next_splits(1, 1, "a") == ()


def test_a_request_has_a_part_of_what_is_left_for_the_rack_and_the_last_ones_have_one_split() -> None:
    splits = [split(number, (RACKS[number % 3],)) for number in range(480)]
    deal = SplitScheduler(splits, 3)
    counts: dict[str, list[int]] = {rack: [] for rack in RACKS}
    waiting = {0, 1, 2}
    while waiting:
        for task in sorted(waiting):
            told = deal.next_splits(task, len(counts[RACKS[task]]), RACKS[task])
            assert told != "wait"
            counts[RACKS[task]].append(len(told))
            if not told:
                waiting.remove(task)
    for given_out in counts.values():
        assert given_out == sorted(given_out, reverse=True)
        assert sum(given_out) == 160
        # A task that is slow holds a quarter at most, and 160 splits do not take 160 requests.
        assert given_out[0] == 40
        assert given_out[-4:] == [1, 1, 1, 0]
        assert len(given_out) <= 20
    assert deal.stats() == SchedulingStats(local=480 * LARGE)


def test_what_is_planned_for_others_is_not_given_out_with_what_is_planned_for_a_task() -> None:
    deal = SplitScheduler([split(number, (RACKS[number % 3],), 100) for number in range(30)], 3)
    for task, rack in enumerate(RACKS):
        told = deal.next_splits(task, 0, rack)
        assert told != "wait"
        assert [each.racks for each in told] == [(rack,)] * 10
    assert deal.stats() == SchedulingStats(local=3000)


def test_the_plan_is_there_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []

    def counted(splits: Mapping[int, Split], readers: Mapping[str | None, int]) -> dict[int, str]:
        plans.append(readers)
        return plan(splits, readers)

    monkeypatch.setattr(scheduler, "plan", counted)
    deal = SplitScheduler(striped(12), 3)
    assert len(plans) == 1
    for task, rack in enumerate(RACKS):
        assert deal.next_splits(task, 0, rack)
    # They came as was expected.
    assert len(plans) == 1


def test_tasks_that_start_together_do_not_wait_for_a_plan_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, plans = [0.0], 0

    def slow(splits: Mapping[int, Split], readers: Mapping[str | None, int]) -> dict[int, str]:
        nonlocal plans
        plans += 1
        now[0] += 0.3
        return plan(splits, readers)

    monkeypatch.setattr(scheduler, "plan", slow)
    deal = SplitScheduler(striped(400), 200, clock=lambda: now[0])
    # All but one are in one rack, so nearly each of them changes what is expected of the others.
    racks = ["b", *"a" * 199]
    for task, rack in enumerate(racks):
        assert deal.next_splits(task, 0, rack)
    assert now[0] < 5
    # The others are planned for as soon as there is time.
    before, now[0] = plans, now[0] + 60
    assert deal.next_splits(7, 1, "a")
    assert plans == before + 1
    assert deal.next_splits(8, 1, "a")
    assert plans == before + 1


def test_what_is_planned_is_local_and_even() -> None:
    planned = plan(dict(enumerate(striped(12))), {"a": 1, "b": 1, "c": 1})
    assert Counter(planned.values()) == {"a": 4, "b": 4, "c": 4}
    assert all(rack in striped(12)[number].racks for number, rack in planned.items())


def test_questions_that_make_no_sense_are_refused() -> None:
    deal = SplitScheduler(striped(3), 2)
    for task, number in ((2, 0), (-1, 0), (0, 1), (0, -1)):
        with pytest.raises(ConfigError, match="task"):
            deal.next_splits(task, number, "a")
    with pytest.raises(ConfigError, match="tasks: 2 are too few for 3 splits"):
        SplitScheduler(striped(3), 2, max_splits_per_task=1)


@given(st.permutations("abc" * 4), st.permutations(range(12)))
def test_as_many_tasks_of_each_rack_read_all_at_home_in_whatever_order_they_come(
    order: list[str], places: list[int]
) -> None:
    splits = [striped(12)[place] for place in places]
    deal = SplitScheduler(splits, 12, max_splits_per_task=1, slots={"a": 4, "b": 4, "c": 4})
    for task, rack in enumerate(order):
        deal.next_splits(task, 0, rack)
    assert deal.stats() == SchedulingStats(local=12 * LARGE)


@given(st.lists(st.sampled_from("abc"), min_size=12, max_size=12))
def test_nearly_all_is_read_at_home_whoever_comes(order: list[str]) -> None:
    deal = SplitScheduler(striped(12), 12, max_splits_per_task=1)
    for task, rack in enumerate(order):
        deal.next_splits(task, 0, rack)
    # Of each rack eight are local; more than that nobody could read at home.
    assert deal.stats().stolen <= LARGE * (sum(max(0, order.count(rack) - 8) for rack in "abc") + 4)


@given(
    st.dictionaries(st.sampled_from([*RACKS, None]), st.integers(0, 5), min_size=1).filter(
        lambda each: any(each.values())
    ),
    st.dictionaries(st.sampled_from([*RACKS, None, "z"]), st.integers(1, 9)),
    st.integers(0, 60),
)
def test_tasks_that_have_not_come_are_expected_as_if_they_came_one_by_one(
    weights: dict[str | None, int], seen: dict[str | None, int], more: int
) -> None:
    tasks, whole = sum(seen.values()) + more, sum(weights.values())
    found: Counter[str | None] = Counter(seen)
    for _ in range(more):
        lacks = {rack: weights[rack] * tasks - found[rack] * whole for rack in sorted(weights, key=str)}
        found[max(lacks, key=lambda rack: lacks[rack])] += 1
    assert _apportioned(weights, seen, tasks) + Counter(seen) == found
