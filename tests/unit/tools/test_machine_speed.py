"""The factor by which timeouts of tests are multiplied."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import machine_speed
from tests.helpers.examples import SHARE, examples, seeds
from tests.helpers.machine_speed import (
    FACTOR,
    MOST,
    OWN_LOAD,
    headline,
    machine_factor,
    measured_factor,
    scaled_ms,
    scaled_s,
)

ROOT = Path(__file__).parents[3]


class Clock:
    """A clock on which a loop and a nap take given times, in turn."""

    def __init__(self, loop_s: float, nap_s: float) -> None:
        # A loop is between the first and the second look, a nap between the second and the third.
        self._steps = [loop_s, nap_s, 0.0]
        self._looks = 0
        self._now = 0.0

    def __call__(self) -> float:
        now = self._now
        self._now += self._steps[self._looks % 3]
        self._looks += 1
        return now


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], float]:
    """Return a measurement of a machine whose loops and naps take given multiples of a quiet machine's."""
    monkeypatch.setattr(machine_speed, "_ROUNDS", 0)
    monkeypatch.setattr(machine_speed, "_NAP_S", 1e-6)
    monkeypatch.setattr(machine_speed, "_LOOP_S", 1e-3)
    return lambda loop, nap: measured_factor(Clock(loop * 1e-3, nap * 1e-6))


@pytest.mark.parametrize(
    ("loop", "nap", "expected"),
    [
        pytest.param(1.0, 1.0, 1.0, id="quiet"),
        pytest.param(0.3, 1.0, 1.0, id="a faster processor"),
        pytest.param(1.4, 1.2, 1.0, id="nearly as fast"),
        pytest.param(4.0, 1.0, 4.0, id="slow loops"),
        pytest.param(1.0, 3.0, 3.0, id="late wake-ups"),
        pytest.param(500.0, 1.0, MOST, id="no more than the greatest"),
    ],
)
def test_it_is_the_slower_of_loops_and_wake_ups(
    instant: Callable[[float, float], float], loop: float, nap: float, expected: float
) -> None:
    assert instant(loop, nap) == pytest.approx(expected)


def test_it_is_measured_once_and_kept_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [2.54, 7.0]
    monkeypatch.setattr(machine_speed, "measured_factor", lambda: results.pop(0))
    kept: dict[str, str] = {}
    assert [machine_factor(kept), machine_factor(kept)] == [2.5, 2.5]
    assert kept == {FACTOR: "2.5"}


@pytest.mark.parametrize(
    ("workers", "measured", "expected"),
    [
        pytest.param(0, 1.0, 1.0, id="no workers"),
        pytest.param(7, 1.0, 1.0, id="fewer than processors"),
        pytest.param(8, 1.0, OWN_LOAD, id="as many as processors"),
        pytest.param(8, 5.0, 5.0, id="slower than that"),
    ],
)
def test_a_run_that_loads_the_machine_itself_has_a_least_factor(
    monkeypatch: pytest.MonkeyPatch, workers: int, measured: float, expected: float
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(machine_speed, "measured_factor", lambda: measured)
    assert machine_factor({}, workers=workers) == expected
    # One that was chosen stays.
    assert machine_factor({FACTOR: "1"}, workers=workers) == 1


@pytest.mark.long
def test_a_run_with_workers_has_the_least_factor_whatever_is_measured_first() -> None:
    environment = {name: value for name, value in os.environ.items() if name != FACTOR and "PYTEST" not in name}
    command = [sys.executable, "-m", "pytest", "-n", str(os.cpu_count()), "tests/unit/test_model.py"]
    run = subprocess.run(
        command,
        cwd=ROOT,
        # With a share, the factor is measured before workers are known.
        env={**environment, SHARE: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    [factor] = re.findall(r"timeouts are multiplied by ([\d.]+)", run.stdout)
    assert float(factor) >= OWN_LOAD


@pytest.mark.parametrize(
    ("share", "number", "expected"),
    [("", 200, 20), ("", 40, 10), ("", 5, 5), ("0.1", 200, 20), ("0.4", 200, 80), ("1", 200, 200), ("1", 5, 5)],
)
def test_a_property_has_the_share_of_its_examples_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, share: str, number: int, expected: int
) -> None:
    monkeypatch.setenv(SHARE, share)
    monkeypatch.setenv(FACTOR, "1")
    assert examples(number) == expected
    # A slower machine has fewer of them, and never less than without a share.
    monkeypatch.setenv(FACTOR, "1000")
    assert examples(number) == min(number, max(10, number // 10))


@pytest.mark.parametrize(("share", "expected"), [("", 3), ("0.1", 3), ("0.4", 8), ("1", 20)])
def test_so_has_a_test_with_seeds(monkeypatch: pytest.MonkeyPatch, share: str, expected: int) -> None:
    monkeypatch.setenv(SHARE, share)
    few, more = (chosen := seeds(3, 20))[:3], chosen[3:]
    assert few == [0, 1, 2]
    # Those that `make test` leaves out in any case.
    assert [(*each.values, each.marks[0].name) for each in more] == [(seed, "long") for seed in range(3, expected)]


@pytest.mark.parametrize("wrong", ["0", "1.5", "nan", "-1", "all"])
def test_a_share_of_examples_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv(SHARE, wrong)
    with pytest.raises(ValueError, match=wrong):
        examples(100)


@pytest.mark.parametrize("wrong", ["", "fast", "0.5", "-1", "nan", "inf"])
def test_a_factor_that_is_no_number_of_at_least_one_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{FACTOR}: expected a number of at least 1, got '{wrong}'"):
        machine_factor({FACTOR: wrong})


def test_times_are_multiplied_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FACTOR, "2.5")
    assert (scaled_s(0.3), scaled_ms(6000), scaled_ms(0.3)) == (0.75, 15_000, 1)
    assert "multiplied by 2.5" in headline()


def test_a_process_that_a_test_starts_has_the_factor_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FACTOR, "3.5")
    code = "from tests.helpers.kafka.consumers import EXPIRING; print(EXPIRING['session_timeout_ms'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert int(done.stdout) == 21_000


@pytest.mark.long
def test_workers_of_a_test_run_have_its_factor(tmp_path: Path) -> None:
    # This test may be run by a worker itself.
    environment = {name: value for name, value in os.environ.items() if name != FACTOR and "XDIST" not in name}
    file = tmp_path / "test_factor.py"
    file.write_text(f"import os\ndef test_factor():\n    assert os.environ['{FACTOR}'] == '2.5'\n", "utf-8")
    # In place of a measurement, in the process that starts the workers only.
    (tmp_path / "chosen.py").write_text(
        "import os\nfrom tests.helpers import machine_speed\n"
        "if 'PYTEST_XDIST_WORKER' not in os.environ:\n    machine_speed.measured_factor = lambda: 2.5\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "chosen", "-c", "pyproject.toml", str(file)]
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    command += ["--confcutdir", str(ROOT), "--rootdir", str(ROOT), "-p", "conftest"]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
