"""Members with state on a Kafka in memory, and how tests drive them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore
from tests.helpers.fakes.kafka import Kafka, Member

LOG = "g-t-changelog"
FIRST = TopicPartition("t", 0)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka().installed(monkeypatch)
    made.make("t")
    return made


def count(_: Any, store: StateStore) -> None:
    store.put(b"n", b"%d" % (int(store.get(b"n") or 0) + 1))


def member(folder: Path, *topics: str, process: Any = count, **more: Any) -> StatefulConsumer:
    """Return a member that commits with each poll."""
    return StatefulConsumer(
        *(topics or ("t",)),
        process=process,
        state_dir=folder,
        group_id="g",
        bootstrap_servers="x",
        client_rack="a",
        **{"commit_interval_ms": 0, **more},
    )


def give(one: StatefulConsumer, *partitions: int) -> None:
    """Begin a generation with these partitions."""
    group = one.consumer
    assert isinstance(group, Member)
    group.give(*partitions)
    group.kafka.generation += 1
    one._assignor._standby_codec.generation = group.generation_id = group.kafka.generation


def together(*members: StatefulConsumer) -> None:
    """Have members be in the last generation with the partitions that they have."""
    for one in members:
        group = one.consumer
        assert isinstance(group, Member)
        one._assignor._standby_codec.generation = group.generation_id = group.kafka.generation


def pause(one: StatefulConsumer) -> None:
    """Have the last poll be longer ago than deletions are kept in a changelog."""
    one._since_poll._since = tuple(since - 13 * 3600 for since in one._since_poll._since)  # type: ignore[assignment]


def be_away(one: StatefulConsumer, seconds: float) -> None:
    """Have the last look at the membership be longer ago."""
    asked = one._active._check._asked
    asked._since = tuple(since - seconds for since in asked._since)  # type: ignore[assignment]


def polled(one: StatefulConsumer) -> None:
    """Poll until something is raised, or nine times."""
    for _ in range(9):
        one.poll(0)


def counted(one: StatefulConsumer, partition: int = 0) -> int:
    return int(dict(one.store(TopicPartition("t", partition)).items()).get(b"n", 0))


def drain(one: StatefulConsumer, *allowed: type[BaseException]) -> list[BaseException]:
    """Poll until nothing has come for a while; return what was raised, which must be allowed."""
    raised: list[BaseException] = []
    quiet = 0
    for _ in range(100):
        try:
            quiet = 0 if one.poll(0) else quiet + 1
        except allowed as error:
            raised.append(error)
            quiet = 0
        if quiet > 3:
            return raised
    raise AssertionError(f"polls never became quiet, the last of {len(raised)} raised {raised[-1:]}")


def settle(one: StatefulConsumer, *allowed: type[BaseException]) -> None:
    """Poll until long restores are over, in which nothing is processed."""
    for _ in range(5):
        drain(one, *allowed)
