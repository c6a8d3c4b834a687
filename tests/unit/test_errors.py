"""Errors that are passed from one process to another."""

from __future__ import annotations

import copy
import pickle

import pytest

from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import ConfigError, InputError, MissingExtraError, RackassignError, WireError

ERRORS = [
    RackassignError("message"),
    ConfigError("rack must be a string"),
    InputError("members[3].rack", "expected a string"),
    WireError(7, "expected a list"),
    MissingExtraError("aiokafka", "aiokafka"),
    AuthorizationError("Describe", "the cluster"),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: RackassignError, protocol: int) -> None:
    passed = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - its own
    for other in (passed, copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))
