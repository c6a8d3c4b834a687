"""Lists and counts in messages."""

from __future__ import annotations

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    NodeNotReadyError,
)

from rackassign.errors import ConfigError
from rackassign.util.text import counted, describe_error, did_you_mean, join_first, join_ids


@pytest.mark.parametrize(("names", "text"), [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")])
def test_only_the_first_names_are_listed(names: str, text: str) -> None:
    assert join_first(list(names), 3) == text


def test_a_similar_name_is_suggested_in_full() -> None:
    name = "a" * 120 + "-orders"
    assert did_you_mean(f"{name}s", ["x", name]) == f'; did you mean "{name}"?'
    assert did_you_mean("orders", ["orders"]) == did_you_mean("orders", ["zzz"]) == ""


def test_numbers_of_things_and_brokers() -> None:
    assert (counted(1, "topic"), counted(0, "topic"), join_ids([3, 1])) == ("1 topic", "0 topics", "3, 1")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KafkaConnectionError("111 ECONNREFUSED"), "KafkaConnectionError: 111 ECONNREFUSED"),
        (NodeNotReadyError(), "no connection to the broker (NodeNotReadyError)"),
        (
            CoordinatorLoadInProgressError(),
            "the coordinator of the group is still starting (CoordinatorLoadInProgressError)",
        ),
        (NodeNotReadyError("node 3"), "NodeNotReadyError: node 3"),
        (GroupAuthorizationFailedError(), "GroupAuthorizationFailedError"),
        (OSError("no\nroute\x1b"), "OSError: no route\\x1b"),
        (ValueError(), "ValueError"),
        (ConfigError("group: there is none"), "group: there is none"),
    ],
)
def test_an_error_is_named_once(error: Exception, text: str) -> None:
    assert describe_error(error) == text
