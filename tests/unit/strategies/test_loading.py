"""Strategies are imported with the first plan, on any threads, and a group is assigned if that fails."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

_GROUP = """
import logging, sys, threading
from types import SimpleNamespace
from rackassign import RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor
from rackassign import StandbyAwareAssignor
from tests.helpers.fakes.kafka_python import THREE_RACKS, given_out, member

logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)

def assigned(assignor):
    members = [member("m1", ["t"], rack="a"), member("m2", ["t"], rack="b"), member("m3", ["t"], rack="c")]
    return sorted(map(len, given_out(assignor.assign(THREE_RACKS, members)).values()))

def join(assignor):
    assignor.metadata({"t"})
    for thread in threading.enumerate():
        if thread.name == "rackassign-load":
            thread.join(120)
"""


def output_of(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", _GROUP + dedent(code)], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_first_plan_loads_what_it_needs() -> None:
    code = """
        assignor = RackAwareStickyAssignor("a")
        print("numpy" in sys.modules, "highspy" in sys.modules)
        print(assigned(assignor))
        print("numpy" in sys.modules, "highspy" in sys.modules)
    """
    assert output_of(code).splitlines() == ["False False", "[1, 1, 1]", "True False"]


def test_what_is_loaded_ahead_is_what_the_plan_needs() -> None:
    code = """
        heavy = ("numpy", "highspy", "rackassign")
        for assignor in (RackAwareRangeAssignor("a"), RackAwareStickyAssignor("a"), StandbyAwareAssignor("a")):
            assignor.load()
            known = {*sys.modules}
            shares, later = assigned(assignor), {*sys.modules} - known
            print("loaded", "highspy" in known, shares, {name for name in later if name.startswith(heavy)})
    """
    lines = [line for line in output_of(code).splitlines() if line.startswith("loaded")]
    assert lines == [f"loaded {highs} [1, 1, 1] set()" for highs in (False, False, True)]


@pytest.mark.parametrize(
    ("assignor", "needed"),
    [
        ("RackAwareRangeAssignor", "False False"),
        ("RackAwareStickyAssignor", "True False"),
        ("RackAwareCooperativeStickyAssignor", "True False"),
        ("StandbyAwareAssignor", "True True"),
    ],
)
def test_an_assignor_without_a_consumer_loads_what_a_plan_needs_at_its_first_join(assignor: str, needed: str) -> None:
    code = f"""
        made = {assignor}("a")
        before = {{*sys.modules}}
        join(made)
        loaded = {{*sys.modules}}
        shares = assigned(made)
        heavy = ("numpy", "highspy", "rackassign")
        print("numpy" in before, "numpy" in loaded, "highspy" in loaded, shares)
        print({{name for name in {{*sys.modules}} - loaded if name.startswith(heavy)}})
    """
    lines = output_of(code).splitlines()
    assert [line for line in lines if not line.startswith("WARNING")] == [f"False {needed} [1, 1, 1]", "set()"]


def test_a_thousand_assignors_load_on_one_thread_and_bound_ones_on_none() -> None:
    code = """
        from tests.helpers.fakes.kafka_python import FakeMembership

        begun, start = [], threading.Thread.start
        threading.Thread.start = lambda thread: (begun.append(thread.name), start(thread))
        bound = RackAwareStickyAssignor("a")
        bound.bind(FakeMembership())
        join(bound)
        print(begun, "numpy" in sys.modules)
        for number in range(1000):
            RackAwareStickyAssignor("a").metadata({"t"})
            join(RackAwareStickyAssignor("a")) if number == 0 else None
        print(len(begun) <= 2, {*begun}, "numpy" in sys.modules)
    """
    assert output_of(code).splitlines() == ["[] False", "True {'rackassign-load'} True"]


def test_a_thread_that_cannot_be_started_is_left_to_the_plan() -> None:
    code = """
        def refuse(thread):
            raise RuntimeError("can't start new thread")

        threading.Thread.start = refuse
        made = RackAwareStickyAssignor("a")
        made.metadata({"t"})
        print("numpy" in sys.modules, assigned(made))
    """
    assert output_of(code) == "False [1, 1, 1]\n"


def test_a_process_that_ends_while_it_loads_ends_when_that_is_done() -> None:
    code = """
        class Held:
            def find_spec(self, name, path=None, target=None):
                if name == "numpy":
                    threading.main_thread().join()
                    print("the main program has ended")

        sys.meta_path.insert(0, Held())
        RackAwareStickyAssignor("a").metadata({"t"})
        print("the main program ends")
    """
    assert output_of(code).splitlines() == ["the main program ends", "the main program has ended"]


def test_threads_that_plan_at_once_all_get_a_plan() -> None:
    code = """
        from rackassign.strategies.loading import load
        classes = [RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor]
        begin, found = threading.Barrier(8), []

        def plan(number):
            assignor = classes[number % 3]("a")
            begin.wait()
            load("sticky") if number > 5 else None
            found.append(assigned(assignor))

        threads = [threading.Thread(target=plan, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join(120) for thread in threads]
        print(found == [[1, 1, 1]] * 8)
    """
    # A plan that failed would be reported as a warning, beside the result.
    assert output_of(code) == "True\n"


BROKEN = {
    "no numpy": "sys.modules['numpy'] = None",
    "numpy that raises": "sys.meta_path.insert(0, Raises('numpy'))",
}
ASSIGNORS = (
    "RackAwareCooperativeStickyAssignor",
    "RackAwareRangeAssignor",
    "RackAwareStickyAssignor",
    "StandbyAwareAssignor",
)


@pytest.mark.parametrize(
    ("breaks", "assignor"),
    [
        *((breaks, assignor) for breaks in BROKEN.values() for assignor in ASSIGNORS),
        # Only standbys use it.
        ("sys.meta_path.insert(0, Raises('highspy'))", "StandbyAwareAssignor"),
    ],
)
def test_a_group_is_assigned_if_nothing_can_be_loaded_and_that_is_logged_once(breaks: str, assignor: str) -> None:
    code = f"""
        class Raises:
            def __init__(self, name):
                self.name = name

            def find_spec(self, name, path=None, target=None):
                if name == self.name:
                    raise OSError("a broken library")

        {breaks}
        made = {assignor}("a")
        made.metadata({{"t"}})
        print(assigned(made), assigned(made))
    """
    lines = output_of(code).splitlines()
    assert lines[-1] == "[1, 1, 1] [1, 1, 1]"
    failed = "rack-aware assignment failed; the group gets a plain assignment instead"
    warnings = [line.partition(" ")[0] for line in lines if failed in line]
    # A range assignment needs neither.
    assert warnings == ["WARNING"] * (assignor != "RackAwareRangeAssignor")
