"""How many examples a property is tried with: a tenth in `make test`, in `make test-all` as many as are asked for."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.helpers.machine_speed import OWN_LOAD, machine_factor

SHARE = "RACKASSIGN_EXAMPLES"
"""Environment variable with the share of the examples, 0.1 to 1."""

_LEAST = 10
_FEW = 0.1


def _share() -> float:
    text = os.environ.get(SHARE) or str(_FEW)
    share = float(text)
    if not _FEW <= share <= 1:
        raise ValueError(f"{SHARE}: expected a share from {_FEW} to 1, got {text!r}")
    return share


def examples(number: int) -> int:
    """Return the number of examples of a run.

    It is a tenth, unless the environment asks for a larger share. That share is meant for a machine of the usual speed;
    a slower one has fewer, and takes as long: it would find the same with more time, and its other tests take longer
    already. A machine that the run itself loads is no slower one.
    """
    few, share = min(number, max(_LEAST, round(number * _FEW))), _share()
    if share == _FEW:
        return few
    return max(few, round(number * share / max(1.0, machine_factor() / OWN_LOAD)))


def seeds(few: int, many: int) -> list[Any]:
    """Return seeds: a few for `make test`, and the share of all that `make test-all` asks for."""
    return [*range(few), *further(*range(few, round(many * _share())))]


def further(*params: Any) -> list[Any]:
    """Return parameters for `make test-all` alone, and none if the run is to have as few examples as `make test`."""
    return [] if _share() == _FEW else [pytest.param(param, marks=pytest.mark.long) for param in params]
