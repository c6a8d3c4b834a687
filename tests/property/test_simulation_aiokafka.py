"""Members of aiokafka in a simulated world: the defects that are found with the stock client, and without a patch.

What must hold by seed, for both clients, is in `test_simulation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackassign.clients.aiokafka import patches
from tests.simulation.member import MemberOptions
from tests.simulation.scripts import Script, run

STOCK = MemberOptions(client="stock", library="aiokafka", strategy="sticky")
ATTACHED = replace(STOCK, client="attached")

Patcher = Callable[[pytest.MonkeyPatch], None]


def without(name: str, instead: Any = lambda *_: None) -> Patcher:
    return lambda monkeypatch: monkeypatch.setattr(patches, name, instead)


async def of_all_topics(_coordinator: Any, offsets: Any) -> Any:
    return offsets


@pytest.mark.parametrize(
    ("patch", "leave_out", "script", "rule"),
    [
        (
            "find_unknown_followers",
            without("find_unknown_followers"),
            # The broker in its rack returns when its metadata do not list it, and is named by the leader then.
            Script(
                (
                    (3.0, "kill_broker", 1),
                    (15.0, "refresh", 0),
                    (15.5, "start_broker", 1),
                    (16.0, "produce", 0, 0, 5),
                ),
                ATTACHED,
                members=1,
                partitions=(1,),
                noise=False,
                within_s=4.0,
            ),
            "processed in time",
        ),
        (
            "join_again",
            without("_REBALANCE_IN_PROGRESS", -1),
            # The second member works, and so holds up the join of the first.
            Script(
                ((3.0, "work", 1, 4.0), (3.5, "start", 2), (5.5, "refuse_joins")),
                ATTACHED,
                members=2,
                partitions=(3,),
                noise=False,
            ),
            "poll() raises nothing",
        ),
        (
            "send_or_time_out",
            without("send_or_time_out", lambda send, node, request, options: send(node, request, **options)),
            # It stands still while its connections are lost, its fetches time out and its metadata are due.
            Script(
                ((10.0, "pause", 0, 8.0), (11.0, "drop", 0), (25.0, "refresh", 0)),
                ATTACHED,
                members=1,
                partitions=(3,),
                seed=5,
                noise=False,
            ),
            "all records are processed",
        ),
        (
            "watch_as_returned_leader",
            without("watch_as_returned_leader"),
            Script(
                ((3.0, "kill", 0), (3.5, "start", 0), (8.0, "add_partitions", 0)),
                replace(ATTACHED, static=True),
                members=1,
                partitions=(3,),
                noise=False,
            ),
            "all partitions are owned",
        ),
        (
            "raise_if_offsets_are_unknown",
            without("raise_if_offsets_are_unknown"),
            # Its coordinator moves between its assignment and its request for offsets.
            Script(
                ((4.0, "add_partitions", 0), (4.1, "refresh", 0), (6.0508, "move_coordinator", 2)),
                replace(ATTACHED, commit="sync", max_records=5),
                members=1,
                partitions=(2,),
                noise=False,
            ),
            "committed offsets grow",
        ),
        (
            "commit_while_stopping",
            without("commit_while_stopping", lambda _coordinator, commit, _ends_at: commit()),
            # The coordinator is another one when the last commit is sent.
            Script(
                ((3.5, "stop", 0), (3.53, "move_coordinator", 1)),
                replace(ATTACHED, commit="auto", poll_ms=100),
                members=1,
                partitions=(3,),
                noise=False,
            ),
            "stop() ends",
        ),
        (
            "of_existing_topics",
            without("of_existing_topics", of_all_topics),
            # Each member commits what it has read of a topic before it joins again without that.
            Script(
                ((4.0, "delete_topic", 1), (4.5, "refresh", 0), *((7.0, "produce", 0, i, 5) for i in range(4))),
                replace(ATTACHED, commit="auto"),
                members=2,
                partitions=(4, 2),
                noise=False,
                within_s=8.0,
            ),
            "processed in time",
        ),
        (
            "raise_if_removed",
            without("raise_if_removed"),
            # It stands still and is removed, and the other one reads on and leaves.
            Script(
                ((4.0, "pause", 1, 12.0), (7.0, "produce", 0, 0, 5), (7.0, "produce", 0, 1, 5), (14.4, "stop", 0)),
                replace(ATTACHED, commit="listener"),
                members=2,
                partitions=(2,),
                noise=False,
            ),
            "committed offsets grow",
        ),
        (
            "stop_heartbeats",
            without("stop_heartbeats"),
            # It stands still for longer than it may between two polls, and its coordinator is gone then.
            Script(
                (
                    *(
                        (13.174, "stop", 1),
                        (13.202, "stop", 2),
                        (23.797, "kill_broker", 3),
                        (29.334, "pause", 0, 7.392),
                    ),
                    *((28.732, "produce", 0, 7, 17), (35.156, "kill_broker", 1), (38.951, "rack", 2, "a")),
                ),
                replace(ATTACHED, commit="explicit", strategy="range", poll_ms=500, max_records=500),
                members=3,
                partitions=(8,),
                seed=50000047,
            ),
            "members settle",
        ),
        (
            "read_joins",
            without("read_joins"),
            Script(((0.02, "malform", 1), (20.0, "stop", 1)), ATTACHED, members=2, partitions=(3,), noise=False),
            "poll() raises nothing",
        ),
        (
            "close_when_dropped",
            without("close_when_dropped"),
            Script(
                ((4.0, "call", 1, "drop_consumer"), (7.0, "produce", 0, 0, 5), (7.0, "produce", 0, 1, 5)),
                ATTACHED,
                members=2,
                partitions=(2,),
                noise=False,
                within_s=2.0,
            ),
            "processed in time",
        ),
    ],
)
def test_the_defect_of_a_patch_is_found_without_it(
    monkeypatch: pytest.MonkeyPatch, patch: str, leave_out: Patcher, script: Script, rule: str
) -> None:
    leave_out(monkeypatch)

    violation = run(script).violation

    assert violation is not None
    assert violation.rule == rule
    stock = run(replace(script, options=replace(script.options, client="stock"))).violation
    assert stock is not None
    assert stock.rule == rule
    monkeypatch.undo()
    assert run(script).violation is None, patch


def test_each_patch_has_its_defect_shown() -> None:
    (mark,) = test_the_defect_of_a_patch_is_found_without_it.pytestmark  # type: ignore[attr-defined]
    shown = {patch for patch, *_ in mark.args[1]}
    texts = (Path(patches.__file__).parent / "UPSTREAM.md").read_text()

    # A loop that stands still while a plan is made has no defect in a world where plans take no time.
    assert shown | {"Later"} == set(re.findall("^## `(.+)`$", texts, re.MULTILINE))


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        pytest.param(
            # Its heartbeats do not name the instance, so that none of two with one name learns that it is fenced.
            Script(((3.0, "twin", 0),), replace(STOCK, static=True), members=1, partitions=(3,), noise=False),
            "one owner",
            id="two static members with one name",
        ),
    ],
)
def test_defects_of_aiokafka_that_are_not_mended_are_found(script: Script, rule: str) -> None:
    violation = run(script).violation

    assert violation is not None
    assert violation.rule == rule


LONG_POLLS = replace(ATTACHED, commit="auto", max_records=500)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            Script(
                ((7.371, "kill_broker", 3), (10.308, "stop", 1), (14.069, "kill", 2)),
                replace(LONG_POLLS, poll_ms=500),
                members=3,
                partitions=(7,),
                seed=40000291,
            ),
            id="it is lost again",
        ),
        pytest.param(
            Script(
                ((7.25, "kill_broker", 3), (8.212, "stop", 1), (15.43, "work", 1, 4.0)),
                replace(LONG_POLLS, library="both", static=True, poll_ms=1000),
                members=2,
                partitions=(8, 2),
                seed=70000073,
            ),
            id="brokers name it for longer than a session",
        ),
    ],
)
def test_a_consumer_stops_that_has_lost_its_coordinator(script: Script) -> None:
    assert run(script).violation is None
