"""How many examples a property is tried with: fewer in `make test`, all in `make test-all`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.helpers.machine_speed import OWN_LOAD, machine_factor

_LEAST = 10
_SHARE = 10


def thorough() -> bool:
    """Return whether all examples are asked for, by RACKASSIGN_THOROUGH=1 in the environment."""
    return os.environ.get("RACKASSIGN_THOROUGH") == "1"


def examples(number: int) -> int:
    """Return the number of examples of a run.

    A thorough run has this number on a machine of the usual speed, and fewer on a slower one, where it takes as long:
    a slow machine would find the same with more time, and its other tests take longer already. A machine that the run
    itself loads is no slower one. Other runs have a tenth.

    Args:
        number: As many as are needed to find what the property was written for.
    """
    few = min(number, max(_LEAST, number // _SHARE))
    return max(few, round(number / max(1.0, machine_factor() / OWN_LOAD))) if thorough() else few


def seeds(few: int, many: int) -> list[Any]:
    """Return as many seeds for `make test`, and more for `make test-all`."""
    return [pytest.param(seed, marks=pytest.mark.long) if seed >= few else seed for seed in range(many)]
