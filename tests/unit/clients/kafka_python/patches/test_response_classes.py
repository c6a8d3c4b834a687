"""The classes of responses exist before two threads can create the same one, and what is registered is kept."""

from __future__ import annotations

import sys

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from rackassign.clients.kafka_python.patches.response_classes import create_response_classes
from tests.helpers.kafka.response_class_race import registered_class, response_class_race


def test_a_class_that_lost_the_race_is_registered_and_collected() -> None:
    with response_class_race(FindCoordinatorResponse):
        for version in (3, 4):
            with pytest.raises(ReferenceError):
                registered_class(FindCoordinatorRequest, version)


def test_a_process_in_which_it_has_happened_recovers() -> None:
    with response_class_race(FindCoordinatorResponse):
        assert create_response_classes() is None
        assert registered_class(FindCoordinatorRequest, 4) is FindCoordinatorResponse[4]


def test_no_class_is_created_later() -> None:
    assert create_response_classes() is None
    known = dict(FindCoordinatorResponse._VERSIONS)
    assert sorted(known) == list(range(FindCoordinatorResponse.max_version + 1))
    assert all(registered_class(FindCoordinatorRequest, version) is known[version] for version in known)
    assert create_response_classes() is None
    assert known == FindCoordinatorResponse._VERSIONS


def test_in_a_changed_kafka_python_it_returns_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka.protocol.api_header", None)
    misfit = create_response_classes()
    assert misfit is not None
    assert "kafka.protocol.api_header" in misfit
