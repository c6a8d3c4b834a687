"""Members with a StatefulConsumer in a simulated world: exactly once, whatever happens, and what that finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scripts import Script, shrink
from tests.simulation.stateful_member import StateOptions
from tests.simulation.stateful_scripts import from_seed, run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(4))
def test_what_must_hold_holds(seed: int) -> None:
    script = from_seed(seed)

    result = run(script)

    if result.violation is not None:
        pytest.fail(f"{result.violation}\n{shrink(script, result.violation.rule, attempts=40, play=run)}")
    assert result.events > 1000


def test_a_run_is_the_same_in_each_process() -> None:
    program = "from tests.simulation.stateful_scripts import *; print(run(from_seed(1)).trace)"

    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(traces) == 1


def test_a_script_is_printed_as_it_is_written_in_a_test() -> None:
    script = from_seed(3)

    assert script.happenings
    assert eval(str(script), {"Script": Script, "StateOptions": StateOptions}) == script  # noqa: S307
