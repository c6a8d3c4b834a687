"""What the tests on real brokers share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as HostPartition

PATIENCE_S = 60.0
"""How long a condition may take on a busy machine. Nothing is slower for it: waiting ends with the condition."""

CONSUMER: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 300,
    "session_timeout_ms": 6000,
    "max_poll_interval_ms": 20_000,
    "metadata_max_age_ms": 1000,
}


def wait_until(condition: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Look until the condition holds; fail with what was waited for."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


@contextmanager
def consumers(*makers: Callable[[], KafkaConsumer]) -> Iterator[list[KafkaConsumer]]:
    """Make consumers and close them whatever happens."""
    with ExitStack() as opened:
        made: list[KafkaConsumer] = []
        for make in makers:
            consumer = make()
            opened.callback(consumer.close, timeout_ms=5000)
            made.append(consumer)
        yield made


def covers(members: Sequence[KafkaConsumer], topic: str, partitions: int) -> bool:
    """Tell whether each partition of the topic has exactly one owner among the members."""
    owned = [tp for member in members for tp in member.assignment() if tp.topic == topic]
    return sorted(owned) == [HostPartition(topic, p) for p in range(partitions)]


def settled(members: Sequence[KafkaConsumer], topic: str, partitions: int) -> Callable[[], bool]:
    """Poll all members once at every look; true once they own the topic between them, in one generation."""

    def look() -> bool:
        for member in members:
            member.poll(timeout_ms=50)
        return together(members, topic, partitions)

    return look


def together(members: Sequence[KafkaConsumer], topic: str, partitions: int) -> bool:
    """Tell whether the members are stable in one generation and own the topic between them."""
    states = {(m.group_metadata().generation_id, m.group_metadata().state) for m in members}
    return len(states) == 1 and states.pop()[1] == "<stable>" and covers(members, topic, partitions)


@contextmanager
def polled(members: Sequence[KafkaConsumer]) -> Iterator[None]:
    """Poll each member in a thread of its own, one long poll after the other.

    For consumers without our patches: a join that finishes between two of their polls is lost, and now and then one
    does with short ones.
    """
    over = threading.Event()

    def poll(member: KafkaConsumer) -> None:
        while not over.is_set():
            member.poll(timeout_ms=1500)

    with ThreadPoolExecutor(len(members)) as pool:
        polling = [pool.submit(poll, member) for member in members]
        try:
            yield
        finally:
            over.set()
    for each in polling:
        each.result()


def numbers(consumer: KafkaConsumer) -> list[int]:
    """Return the partition ids a consumer owns."""
    return sorted(tp.partition for tp in consumer.assignment())


def rackassign(
    name: str, bootstrap: str, *words: str, code: int = 0, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, on a wide terminal; check how it ends, and that problems are told in words.

    Args:
        name: Of the command, or of a command and what it is to do.
        bootstrap: Of the cluster.
        words: Further ones.
        code: With which it is to end.
        home: Where it leaves its files.
    """
    done = subprocess.run(
        [sys.executable, "-m", "rackassign", *name.split(), "--bootstrap", bootstrap, *words],
        cwd=home,
        capture_output=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
