"""Members with a StatefulConsumer in a simulated world: exactly once, whatever happens, and what that finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackassign.model import TopicPartition
from rackassign.stateful._transactions import TransactionalProducer
from tests.simulation.scripts import Script, held
from tests.simulation.stateful_member import StateOptions
from tests.simulation.stateful_scripts import from_seed, run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(3))
def test_what_must_hold_holds(seed: int) -> None:
    assert held(from_seed(seed), 40, run).events > 1000


def test_a_run_is_the_same_in_each_process() -> None:
    program = "from tests.simulation.stateful_scripts import *; print(run(from_seed(1)).trace)"

    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )

    # This process has a hash seed of its own, and has run others.
    assert other.stdout.strip() == run(from_seed(1)).trace


def test_a_script_is_printed_as_it_is_written_in_a_test() -> None:
    script = from_seed(3)

    assert script.happenings
    assert eval(str(script), {"Script": Script, "StateOptions": StateOptions}) == script  # noqa: S307


# Former defects.


def ends_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit wherever the records of a commit come to be in the changelog, as was done once."""
    commit: Callable[..., list[int]] = TransactionalProducer.commit

    def unchecked(
        producer: TransactionalProducer,
        records: Sequence[Any],
        offsets: Mapping[TopicPartition, int],
        membership: object,
        check: Callable[[Sequence[int]], None],
    ) -> list[int]:
        del check
        return commit(producer, records, offsets, membership, lambda _: None)

    monkeypatch.setattr(TransactionalProducer, "commit", unchecked)


FROZEN_LEADER_RETURNS = Script(
    (
        # The leader of the changelog alone: the input has another one.
        (0.5, "lead", 0, 0, 2),
        (6.0, "start", 1),
        (9.6, "freeze", 1, 11.7),
        # The member commits with the new leader, and leaves when the former one goes on.
        (20.2, "refresh_producer", 0),
        (20.5, "produce", 0, 0, 5),
        (21.0, "stop", 0),
    ),
    StateOptions(commit_ms=0),
    members=1,
    partitions=(1,),
    noise=False,
)


def producer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kafka-python's producer continue after a transaction that it has aborted: it sends its offsets again."""
    monkeypatch.setattr(TransactionalProducer, "_drop", lambda producer: producer._producer.abort_transaction())


@pytest.mark.parametrize(
    ("defect", "script", "rule"),
    [
        pytest.param(ends_are_believed, FROZEN_LEADER_RETURNS, "results are exact", id="an end of a former leader"),
        pytest.param(
            producer_goes_on,
            # The second member begins while the first one commits.
            Script((), StateOptions(poll_ms=1000, max_records=5, commit_ms=1000), members=2, partitions=(2,), seed=147),
            "committed offsets grow",
            id="offsets of an aborted transaction",
        ),
    ],
)
def test_a_defect_is_found_again(
    monkeypatch: pytest.MonkeyPatch, defect: Callable[[pytest.MonkeyPatch], None], script: Script, rule: str
) -> None:
    assert run(script).violation is None

    defect(monkeypatch)

    violation = run(script).violation
    assert violation is not None
    assert violation.rule == rule
