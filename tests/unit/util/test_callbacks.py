"""How progress is shown.

Functions of users that are refused in advance.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from rackassign import RackAwareStickyAssignor, StandbyAwareAssignor
from rackassign.errors import ConfigError
from rackassign.stateful._stateful_consumer import check_on_restore
from rackassign.testing import Progress
from rackassign.util.callbacks import check_function, is_failure


def test_progress_reads_as_a_line() -> None:
    assert str(Progress("Fetching", 1_500_000, 3_000_000)) == "Fetching: 1.5 of 3.0 MB"
    assert str(Progress("Starting")) == "Starting"
    assert str(Progress("Describing groups", 1, 3, unit="")) == "Describing groups: 1 of 3"


async def coroutine(*_: object) -> None: ...


def generator(*_: object) -> Any:
    yield


async def asynchronous(*_: object) -> Any:
    yield


class Called:
    async def __call__(self) -> None: ...


class Weigher:
    """One whose methods would do nothing."""

    weigh = staticmethod(coroutine)

    def pause(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (None, "f must be a function, got null"),
        (coroutine, r"f is a coroutine function \(async def\), whose body would never run"),
        (partial(partial(coroutine, 1), 2), "f is a coroutine function"),
        (Called(), "f is a coroutine function"),
        (generator, "f is a generator function"),
        (asynchronous, "f is an asynchronous generator function"),
        (lambda: None, r"f is called with \(one, other\), and takes others: <function"),
        (lambda one, other, third: (one, other, third), r"f is called with \(one, other\)"),
    ],
)
def test_what_would_do_nothing_is_refused(function: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        check_function(function, "f", "one", "other")


@pytest.mark.parametrize("function", [max, "{} {}".format, Mock(), lambda *_: None, divmod])
def test_what_can_be_called_is_accepted(function: object) -> None:
    check_function(function, "f", "one", "other")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: RackAwareStickyAssignor("a", weights=coroutine), "weights is a coroutine function"),  # type: ignore[arg-type]
        (lambda: RackAwareStickyAssignor("a", weights=generator), "weights is a generator function"),
        (lambda: RackAwareStickyAssignor("a", weights=lambda group: group), "weights is called with no arguments"),  # type: ignore[arg-type]
        (lambda: RackAwareStickyAssignor("a", weights=Weigher()), r"weights: weigh\(\) of the weigher is a coroutine"),  # type: ignore[arg-type]
        (lambda: StandbyAwareAssignor("a", on_standbys=coroutine), "on_standbys is a coroutine function"),  # type: ignore[arg-type]
        (lambda: StandbyAwareAssignor("a", on_standbys=lambda added: added), "on_standbys is called with"),  # type: ignore[arg-type,misc]
        (lambda: StandbyAwareAssignor("a", positions=coroutine), "positions is a coroutine function"),  # type: ignore[arg-type]
        (lambda: StandbyAwareAssignor("a", ends=generator), "ends is a generator function"),
        (lambda: StandbyAwareAssignor("a", changelog=lambda: "c"), "changelog is called with"),  # type: ignore[arg-type,misc]
        (lambda: check_on_restore(coroutine), "on_restore is a coroutine function"),
        (lambda: check_on_restore(lambda tp: tp), "on_restore is called with"),
    ],
)
def test_options_with_such_functions_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        make()


def test_only_what_ends_the_program_is_no_failure_of_a_function() -> None:
    assert all(map(is_failure, [ValueError(), asyncio.CancelledError(), GeneratorExit()]))
    assert not is_failure(KeyboardInterrupt())
    # A handler of SIGTERM raises it wherever the main thread is.
    assert not is_failure(SystemExit(0))
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(is_failure, SystemExit(0)).result()
