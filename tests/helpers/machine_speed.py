"""How slow this machine is now, measured once per test run; timeouts of tests are multiplied by that factor.

A timeout at which a broker or a client gives up on a process decides a test when the machine is so busy that the
process is not scheduled in time. Such timeouts are `scaled_ms(6000)` instead of 6000: on a quiet machine they are
short, so that a test that waits for one of them is quick. A guard against hanging is not scaled: it is long enough for
any machine.

The factor is kept in the environment, so that workers of pytest-xdist and members in processes of their own have that
of the run that started them. Set `RACKASSIGN_MACHINE_FACTOR` to choose it, such as for a machine that is quiet when the
run starts and busy later.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, MutableMapping
from statistics import median

FACTOR = "RACKASSIGN_MACHINE_FACTOR"
"""Name of the environment variable."""

MOST = 10.0
"""Greatest factor that is measured: beyond it timeouts would be longer than guards against hanging."""

OWN_LOAD = 2.0
"""Least factor of a run that loads the machine by itself: it is measured before workers and brokers start.

Not more, since what is scaled is mostly waited for. Where a stalled process would decide a test, the timeout is long on
any machine (`tests.helpers.kafka.consumers.CONSUMER`).
"""

_SAMPLES = 5
_ROUNDS = 2_000_000
_LOOP_S = 0.045
"""Time of these rounds on a quiet machine, in CPython 3.11 on a processor of 2023."""

_NAP_S = 0.01
"""A wake-up that is late by so much counts as a loop that takes twice as long."""

_BUSY = 1.5
"""A factor below is that of a quiet machine: another processor, or another version of Python."""

Clock = Callable[[], float]


def machine_factor(environment: MutableMapping[str, str] | None = None, *, workers: int = 0) -> float:
    """Return by how much timeouts are longer than on a quiet machine; measured with the first call."""
    # `workers`: processes that run tests; if there are as many as processors, they load the machine.
    kept = os.environ if environment is None else environment
    if FACTOR not in kept:
        least = OWN_LOAD if workers >= (os.cpu_count() or 1) else 1.0
        kept[FACTOR] = f"{max(least, measured_factor()):.1f}"
    try:
        factor = float(kept[FACTOR])
    except ValueError:
        factor = math.nan
    if not 1 <= factor < math.inf:
        raise ValueError(f"{FACTOR}: expected a number of at least 1, got {kept[FACTOR]!r}")
    return factor


def measured_factor(clock: Clock = time.perf_counter) -> float:
    """Return how slow this machine is now: 1 if it is quiet, and `MOST` at most."""
    loops, naps = [], []
    for _ in range(_SAMPLES):
        begun = clock()
        _compute()
        computed = clock()
        time.sleep(_NAP_S)
        loops.append((computed - begun) / _LOOP_S)
        naps.append((clock() - computed) / _NAP_S)
    # Not the mean: one sample beside something short decides nothing.
    factor = max(median(loops), median(naps))
    return 1.0 if factor < _BUSY else min(MOST, factor)


def _compute() -> int:
    total = 0
    for number in range(_ROUNDS):
        total += number & 3
    return total


def scaled_s(seconds: float) -> float:
    """Return seconds on a quiet machine as seconds on this one."""
    return seconds * machine_factor()


def scaled_ms(milliseconds: float) -> int:
    """Return milliseconds on a quiet machine as milliseconds on this one."""
    return math.ceil(milliseconds * machine_factor())


def headline() -> str:
    """Return the line for the header of a test run."""
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    return f"machine: {load}, timeouts are multiplied by {machine_factor():g} ({FACTOR})"
