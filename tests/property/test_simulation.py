"""Members of kafka-python in a simulated world: what must hold, by seed; and that a run is always the same.

More seeds: `make simulate`. A seed that fails is shown as a script, cut down, which can be pasted here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.scripts import from_seed, run, shrink

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(12))
def test_what_must_hold_holds(seed: int) -> None:
    script = from_seed(seed)

    result = run(script)

    if result.violation is not None:
        pytest.fail(f"{result.violation}\n{shrink(script, result.violation.rule, attempts=100)}")
    assert result.events > 1000


def test_a_run_is_the_same_in_each_process() -> None:
    program = "from tests.simulation.scripts import *; print(*(run(from_seed(seed)).trace for seed in (3, 21)))"

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
    first, second = traces.pop().split()
    assert first != second
