"""The examples with confluent-kafka report what they cannot read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import KafkaError

from examples.exactly_once import confluent
from examples.worker_pool import pool


class Message:
    """A record, or an error in its place, as `consume` returns them."""

    def __init__(self, topic: str, code: int | None = None) -> None:
        self._topic = topic
        self._error = None if code is None else KafkaError(code)

    def topic(self) -> str:
        return self._topic

    def error(self) -> KafkaError | None:
        return self._error


@pytest.mark.parametrize(
    "without_errors", [pool.without_errors, confluent.without_errors], ids=["pool", "exactly once"]
)
def test_errors_between_records_are_reported_and_records_are_handled(
    capsys: pytest.CaptureFixture[str], without_errors: Callable[[Sequence[object]], list[object]]
) -> None:
    first, last = Message("orders"), Message("orders")
    wrong = [
        Message("ordres", KafkaError.UNKNOWN_TOPIC_OR_PART),
        Message("secret", KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert without_errors([first, *wrong, last]) == [first, last]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["ordres", "secret"]
    assert "UNKNOWN_TOPIC_OR_PART" in lines[0]
    assert "TOPIC_AUTHORIZATION_FAILED" in lines[1]
