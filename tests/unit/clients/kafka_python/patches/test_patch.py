"""Patches that wrap the same method: their order is declared, and another one is refused.

The classes of responses exist before two threads can create the same one, and what is registered is kept.
"""

from __future__ import annotations

import logging
import re
import sys
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from rackassign.clients.kafka_python.patches import PATCHES
from rackassign.clients.kafka_python.patches.patch import Patch, create_response_classes, install
from rackassign.text import WarnOnce
from tests.helpers.documents import ROOT
from tests.helpers.kafka.response_class_race import registered_class, response_class_race


def wrapping(name: str, *, after: tuple[str, ...] = ()) -> Patch:
    """Return a patch of `read` that adds its name to what is returned."""

    def add(consumer: Any, _once: WarnOnce) -> None:
        read = consumer.read
        consumer.read = lambda: [name, *read()]

    return Patch(name, "none", "none", {"read": ()}, (), add, after=after)


def nothing() -> list[str]:
    return []


FIRST, SECOND = wrapping("first"), wrapping("second", after=("first",))


def test_of_two_patches_of_one_method_the_later_one_is_declared_to_be_after_the_other() -> None:
    shared = [(a, b) for a, b in combinations(PATCHES, 2) if a.wraps.keys() & b.wraps.keys()]
    assert len(shared) == 6
    assert all(a.name in b.after for a, b in shared)


def test_every_declared_order_is_about_a_shared_method() -> None:
    by_name = {patch.name: patch for patch in PATCHES}
    for patch in PATCHES:
        for name in patch.after:
            assert by_name[name].wraps.keys() & patch.wraps.keys()


def test_the_page_has_each_patch_with_the_versions_that_have_the_defect() -> None:
    page = (ROOT / "docs/reference/patches.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\S+) to (\S+) \| ", page, re.MULTILINE)
    assert sorted(rows) == sorted((patch.name, *patch.versions) for patch in PATCHES)


def test_the_outer_patch_calls_the_inner_one(caplog: pytest.LogCaptureFixture) -> None:
    consumer: Any = SimpleNamespace(read=nothing)
    install(consumer, [FIRST, SECOND], WarnOnce(logging.getLogger("rackassign.test")))
    assert consumer.read() == ["second", "first"]
    assert not caplog.records


def test_a_patch_that_would_wrap_its_outer_one_stays_off(caplog: pytest.LogCaptureFixture) -> None:
    consumer: Any = SimpleNamespace(read=nothing)
    once = WarnOnce(logging.getLogger("rackassign.test"))
    # As `attach` does that is called twice, and disables a patch the first time.
    install(consumer, [SECOND], once)
    for _ in range(2):
        install(consumer, [FIRST, SECOND], once)
    assert consumer.read() == ["second"]
    (record,) = caplog.records
    assert "patch first is off: second wraps read already, and is to be installed after it" in record.getMessage()


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
