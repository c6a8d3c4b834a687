"""Topics that a request may have created although its response was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import InvalidPartitionsError, KafkaConnectionError, TopicAlreadyExistsError

from rackassign.admin import alter
from rackassign.admin.alter import RequestRejectedError, TopicAdmin
from rackassign.admin.describe import DescribedTopic
from rackassign.model import Partition


class Controller:
    """An admin client whose first response is lost, and whose second one is that the request was executed already."""

    _controller_id: int | None = 1

    def __init__(self) -> None:
        self.requests = 0

    def create_topics(self, *_: object, **__: object) -> Any:
        return {"topics": [{"error_code": self._executed(TopicAlreadyExistsError.errno), "error_message": None}]}

    def create_partitions(self, *_: object, **__: object) -> Any:
        code = self._executed(InvalidPartitionsError.errno)
        return SimpleNamespace(results=[SimpleNamespace(error_code=code, error_message=None)])

    def _executed(self, code: int) -> int:
        self.requests += 1
        if self.requests == 1:
            raise KafkaConnectionError
        return code


Ask = Callable[[TopicAdmin], None]

LISTS: list[tuple[int, ...]] = [(1, 2), (2, 3)]
BOTH = [
    pytest.param(lambda admin: admin.create("t", {}, LISTS), id="create"),
    pytest.param(lambda admin: admin.add("t", 2, LISTS[1:]), id="add"),
]


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """What brokers report, one after the other; the last one for ever. Time passes only in pauses."""
    found: list[list[tuple[int, ...]]] = []
    now = 0.0

    def described(_: object, names: Iterable[str]) -> dict[str, DescribedTopic]:
        rows = found.pop(0) if len(found) > 1 else found[0]
        return {name: DescribedTopic(tuple(Partition(row, row[0]) for row in rows)) for name in names}

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(alter, "described", described)
    monkeypatch.setattr(alter, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    return found


@pytest.mark.parametrize("ask", BOTH)
def test_a_request_whose_response_was_lost_is_no_error_although_a_broker_lags(
    views: list[list[tuple[int, ...]]], ask: Ask
) -> None:
    views[:] = [[], LISTS[:1], LISTS]
    ask(TopicAdmin(Controller()))
    assert len(views) == 1


@pytest.mark.parametrize("ask", BOTH)
def test_a_topic_that_is_another_one_is_an_error(views: list[list[tuple[int, ...]]], ask: Ask) -> None:
    views[:] = [[(1, 2), (3, 2)]]
    with pytest.raises(RequestRejectedError):
        ask(TopicAdmin(Controller()))
