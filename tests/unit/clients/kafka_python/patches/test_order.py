"""Patches that wrap the same method: their order is declared, and another one is refused."""

from __future__ import annotations

import logging
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from rackassign.clients.kafka_python.patches import PATCHES
from rackassign.clients.kafka_python.patches.base import Patch, install
from rackassign.text import WarnOnce


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
