"""What a producer gets for a transaction: in which generation, in which form, and when it gets nothing."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from rackassign.clients.confluent import consumer
from rackassign.clients.confluent.consumer import TransactionMetadata
from rackassign.clients.confluent.internals import form_difference, serialize_group_metadata
from rackassign.clients.confluent.rebalance import Callbacks
from rackassign.clients.kafka_python.internals.group_member import MemberAssignment, RevocationRequired
from tests.helpers.fakes.confluent import ONE, TWO, ConsumerHarness


def metadata_of(stage: ConsumerHarness, instance: str | None = None) -> TransactionMetadata:
    return TransactionMetadata("g", instance, stage.member, stage.rebalances)  # type: ignore[arg-type]


def refusal(metadata: TransactionMetadata) -> KafkaError:
    with pytest.raises(KafkaException) as problem:
        metadata.current()
    error: KafkaError = problem.value.args[0]
    return error


@pytest.mark.parametrize("instance", [None, "", "i-1"])
@pytest.mark.parametrize("group", ["g", "größe"])
def test_the_form_is_that_of_the_installed_librdkafka(group: str, instance: str | None) -> None:
    given = {} if instance is None else {"group.instance.id": instance}
    consumer = Consumer({"group.id": group, **given})
    written = consumer.consumer_group_metadata()
    consumer.close()
    # librdkafka takes an empty instance ID for none.
    assert written == serialize_group_metadata(group, -1, "", instance or None)
    assert form_difference(group, instance or None) is None


def test_a_member_is_written_with_its_generation() -> None:
    assert (
        serialize_group_metadata("g", 7, "m-1", "i") == b"CGMDv2:" + (7).to_bytes(4, sys.byteorder) + b"g\0m-1\0\0i\0"
    )


def test_the_generation_is_that_of_the_assignment_that_is_read() -> None:
    stage = ConsumerHarness()
    metadata = metadata_of(stage)
    stage.give(ONE, TWO, generation=3)
    assert metadata.current() == serialize_group_metadata("g", 3, "m", None)
    # The group is ahead: its records are not delivered yet, so neither is its generation used.
    stage.member.given = MemberAssignment(4, "m", frozenset({ONE}))
    assert metadata.current() == serialize_group_metadata("g", 3, "m", None)
    stage.play()
    assert metadata.current() == serialize_group_metadata("g", 4, "m", None)


def test_what_is_revoked_can_be_committed_in_the_new_generation() -> None:
    stage = ConsumerHarness()
    metadata, seen = metadata_of(stage), list[bytes]()
    stage.rebalances.callbacks = Callbacks(on_revoke=lambda *_: seen.append(metadata.current()))
    stage.give(ONE, TWO, generation=3)
    stage.give(ONE, generation=4)
    assert seen == [serialize_group_metadata("g", 4, "m", None)]
    stage.play(RevocationRequired(frozenset({ONE}), lost=False))
    assert seen == [serialize_group_metadata("g", 4, "m", None)] * 2


@pytest.mark.parametrize("how", ["told", "required", "another member ID"])
def test_what_is_lost_cannot_be_committed_by_its_callback_either(how: str) -> None:
    stage = ConsumerHarness()
    metadata, seen = metadata_of(stage), list[int]()
    stage.rebalances.callbacks = Callbacks(on_lost=lambda *_: seen.append(refusal(metadata).code()))
    stage.give(ONE, generation=3)
    coming: list[Any] = []
    if how == "told":
        stage.member.is_lost = True
    elif how == "required":
        coming = [RevocationRequired(frozenset({ONE}), lost=True)]
    else:
        coming = [MemberAssignment(5, "m-2", frozenset({ONE}))]
    stage.play(*coming)
    assert seen == [KafkaError.UNKNOWN_MEMBER_ID]
    if how == "another member ID":
        assert metadata.current() == serialize_group_metadata("g", 5, "m-2", None)


def test_without_an_assignment_it_is_refused_and_the_transaction_is_to_be_aborted() -> None:
    stage = ConsumerHarness()
    metadata = metadata_of(stage)
    error = refusal(metadata)
    assert (error.code(), error.txn_requires_abort(), error.fatal()) == (KafkaError.UNKNOWN_MEMBER_ID, True, False)
    assert "no assignment in its group" in error.str()
    stage.give(ONE)
    metadata.current()
    stage.member.is_lost = True
    assert refusal(metadata).code() == KafkaError.UNKNOWN_MEMBER_ID


def test_another_form_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    asked: list[tuple[str, str | None]] = []

    def differs(group: str, instance: str | None) -> str | None:
        asked.append((group, instance))
        return "another form"

    monkeypatch.setattr(consumer, "form_difference", differs)
    error = refusal(metadata_of(stage, "i"))
    assert (error.code(), error.str()) == (KafkaError._NOT_IMPLEMENTED, "another form")
    assert asked == [("g", "i")]


def test_the_form_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = ConsumerHarness()
    stage.give(ONE)
    asked: list[str] = []
    monkeypatch.setattr(consumer, "form_difference", lambda group, _: asked.append(group))
    metadata = metadata_of(stage)
    assert metadata.current() == metadata.current()
    assert asked == ["g"]
