"""What is read of a Quix Streams application, and the consumer in place of its own; the framework is a fake here."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rackassign import text
from rackassign.errors import MissingExtraError
from rackassign.text import WarnOnce

ONCE = WarnOnce(logging.getLogger("test"))


class FakeApplication:
    """As much of `quixstreams.Application` as is used."""

    def __init__(self, **options: Any) -> None:
        self.options = options


@pytest.fixture
def quix(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in [name for name in sys.modules if name.startswith("rackassign.integrations.quix")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "quixstreams", SimpleNamespace(Application=FakeApplication))
    monkeypatch.setattr(text, "version", lambda _: "3.28.1")
    import rackassign.integrations.quix as module  # noqa: PLC0415 - with the fake

    yield module
    for name in [name for name in sys.modules if name.startswith("rackassign.integrations.quix")]:
        del sys.modules[name]


def topic(name: str, partitions: int = 3, *, changelog: bool = False) -> Any:
    return SimpleNamespace(name=name, is_changelog=changelog, broker_config=SimpleNamespace(num_partitions=partitions))


def application(streams: Mapping[str, Sequence[str]], changelogs: Mapping[str | None, Sequence[str]]) -> Any:
    topics = sorted({each for names in streams.values() for each in names})
    registry = SimpleNamespace(
        consumer_topics=[topic(name) for name in topics],
        get_stream_ids=lambda name: [stream for stream, names in streams.items() if name in names],
        get_topics_for_stream_id=lambda stream: list(streams[stream]),
    )
    stores = {
        stream: {f"store{i}": topic(name, changelog=True) for i, name in enumerate(names)}
        for stream, names in changelogs.items()
    }
    return SimpleNamespace(_dataframe_registry=registry, _topic_manager=SimpleNamespace(changelog_topics=stores))


def test_without_quix_streams_the_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'rackassign\[quix\]'"):
        import rackassign.integrations.quix  # noqa: F401, PLC0415 - raises


@pytest.mark.parametrize(
    ("streams", "changelogs", "subscribed", "expected"),
    [
        ({"orders": ["orders"]}, {}, ["orders"], []),
        ({"orders": ["orders"]}, {"orders": ["c1", "c2"]}, ["orders", "c1", "c2"], [("c1", "c2", "orders")]),
        # Independent streams stay so, and merged ones take along what belongs to each.
        ({"a": ["a"], "b": ["b"]}, {"a": ["ca"]}, ["a", "b", "ca"], [("a", "ca")]),
        (
            {"a": ["a"], "b": ["b"], "ab": ["a", "b"]},
            {"a": ["ca"], "ab": ["cab"]},
            ["a", "b", "ca", "cab"],
            [("a", "b", "ca", "cab")],
        ),
        # What is not subscribed to is in no set.
        ({"a": ["a"]}, {"a": ["ca"], None: ["of a source"]}, ["a"], []),
    ],
)
def test_topics_of_connected_streams_and_their_changelogs_are_one_set(
    quix: Any,
    streams: Mapping[str, Sequence[str]],
    changelogs: Mapping[str | None, Sequence[str]],
    subscribed: Sequence[str],
    expected: Sequence[tuple[str, ...]],
) -> None:
    topics = [topic(name) for name in subscribed]
    assert quix.copartitioned(application(streams, changelogs), topics, ONCE) == expected


def test_if_the_registry_differs_topics_of_one_size_stay_together(quix: Any, caplog: pytest.LogCaptureFixture) -> None:
    topics = [topic("a"), topic("b", 4), topic("c")]
    assert quix.copartitioned(SimpleNamespace(), topics, ONCE) == [("a", "c")]
    assert "topics with equal numbers of partitions stay together" in caplog.text


class FakeInternalConsumer:
    """As much of `InternalConsumer` as is used."""

    def __init__(self) -> None:
        self._consumer_config = {"group.id": "g"}
        self._inner_consumer: Any = None
        self.subscribed: list[Any] = []

    def subscribe(self, topics: list[Any], on_assign: Any = None) -> None:
        self.subscribed.append((self._inner_consumer, topics, on_assign))


def test_the_consumer_is_created_with_the_first_subscription(quix: Any) -> None:
    consumer = FakeInternalConsumer()
    quix.create_when_subscribed(consumer, lambda config, topics: (config, len(topics)), ONCE)
    assert consumer._inner_consumer is None
    consumer.subscribe(["t"], on_assign="callback")
    assert consumer.subscribed == [(({"group.id": "g"}, 1), ["t"], "callback")]


def test_a_consumer_that_differs_keeps_its_own(quix: Any, caplog: pytest.LogCaptureFixture) -> None:
    consumer = FakeInternalConsumer()
    consumer._inner_consumer = "used already"
    quix.create_when_subscribed(consumer, lambda *_: pytest.fail("created"), WarnOnce(logging.getLogger("x")))
    consumer.subscribe(["t"])
    assert consumer.subscribed == [("used already", ["t"], None)]
    assert "the group uses range, without racks" in caplog.text
