"""Members in a simulated world: what must hold, by seed, the same each time, and what that finds with kafka-python.

What it finds with aiokafka is in `test_simulation_aiokafka.py`. More seeds: `make simulate`. A seed that fails is shown
as a script, cut down, which can be pasted here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rackassign.assignor.base import Assignor
from rackassign.assignor.rack_monitor import RackChangeDetector
from rackassign.clients.kafka_python.patches import PATCHES
from rackassign.clients.kafka_python.patches.fetch import _CommittedOffsets
from rackassign.clients.kafka_python.patches.fetch_during_rebalance import Commits, _Flow
from rackassign.clients.kafka_python.patches.group import _JoinOfRemovedMember
from tests.simulation.member import GROUP, MemberOptions
from tests.simulation.scripts import Happening, Run, Script, from_seed, held, run, shrink

ROOT = Path(__file__).parents[2]

FEW = 12
"""Events that a script may have once it is cut down."""


@pytest.mark.parametrize("seed", range(20))
def test_what_must_hold_holds(seed: int) -> None:
    assert held(from_seed(seed), 100).events > 1000


def test_an_eager_member_that_is_removed_commits_nothing_that_it_lost() -> None:
    options = MemberOptions(client="attached", strategy="sticky", commit="sync", max_records=5)
    assert held(from_seed(2, options), 100).events > 1000


def test_a_run_is_the_same_in_each_process() -> None:
    program = "from tests.simulation.scripts import *; print(*(run(from_seed(seed)).trace for seed in (3, 4, 17, 19)))"

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
    assert len(set(traces.pop().split())) == 4


def test_a_script_is_printed_as_it_is_written_in_a_test() -> None:
    script = from_seed(5)

    assert script.happenings
    assert eval(str(script), {"Script": Script, "MemberOptions": MemberOptions}) == script  # noqa: S307


# Defects of former versions, and one that only kafka-python's own assignor has.


def first_plan_is_cut(monkeypatch: pytest.MonkeyPatch, *, forgotten: bool) -> None:
    """Cut the first plan of each monitor by its time limit; forgotten, as it was once, it counts as without a gain."""
    cut: list[RackChangeDetector] = []
    plan: Callable[..., Any] = RackChangeDetector.gain

    def gain(detector: RackChangeDetector, *arguments: Any) -> Any:
        if detector not in cut:
            cut.append(detector)
            return None, not forgotten
        return plan(detector, *arguments)

    monkeypatch.setattr(RackChangeDetector, "gain", gain)


RACKS_CHANGE = Script(
    (
        (3.2, "refresh", 0),
        (4.726, "reassign", 0, 5, (2, 3)),
        (5.1, "produce", 0, 2, 12),
        (6.3, "work", 0, 1.5),
        (8.8, "produce", 0, 5, 7),
    ),
    MemberOptions(client="attached", poll_ms=1000, max_records=500),
    members=2,
    seed=3,
)


def member_removed_in_its_join_keeps_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a member that learns in a join that it was removed keep its partitions, as before that patch was complete."""

    async def prepare(join: Any, generation: int, member_id: str, timeout_ms: float | None = None) -> None:
        await join._prepare(generation, member_id, timeout_ms=timeout_ms)

    monkeypatch.setattr(_JoinOfRemovedMember, "lost", lambda _join: None)
    monkeypatch.setattr(_JoinOfRemovedMember, "on_join_prepare_async", prepare)


MEMBER_STANDS_STILL = Script(
    (
        (2.8, "work", 1, 3.5),
        (3.0, "start", 2),
        (4.5, "pause", 0, 12.0),
        *((13.0 + partition / 10, "produce", 0, partition, 20) for partition in range(6)),
        (13.7, "refresh", 2),
        (14.1, "work", 2, 0.3),
        (14.2, "refresh", 1),
        (15.0, "stop", 1),
        (15.2, "stop", 2),
        (25.0, "refresh", 0),
    ),
    MemberOptions(client="attached", max_records=5),
    members=2,
    noise=False,
)


def commit_discards_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit discard the answers to requests for the offsets of other partitions, too."""

    def handle_commit(committed: Any, offsets: Any, send_time: float, response: Any) -> Any:
        committed._coordinator._offset_fetch_futures.clear()
        return committed._handle_commit(offsets, send_time, response)

    monkeypatch.setattr(_CommittedOffsets, "handle_commit", handle_commit)


def returned_member_requests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a static member that returns in another rack stay with the assignment of before."""
    monkeypatch.setattr(Assignor, "_request_description", lambda _assignor, _membership: None)


def withheld_partitions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a leader that has withheld partitions request no round that assigns them, as kafka-python's assignor."""
    monkeypatch.setattr(Assignor, "_request_next_round", lambda _assignor: None)


def commits_wait_for_a_join_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit use the former generation while a join is finished and not read, as kafka-python does."""
    monkeypatch.setattr(_Flow, "generation_if_stable", lambda flow: flow._generation_if_stable())


def commits_are_sent_at_once_on_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit that is made in a join overtake one that was made before it."""
    monkeypatch.setattr(Commits, "_send_before_joins", lambda commits, offsets: commits._send_original(offsets))


def commits_fail_before_a_join_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a commit fail between a join that another rebalance has ended and the next one."""
    monkeypatch.setattr(Commits, "rebalancing", Commits.under_way)


Patcher = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("defect", "script", "rule"),
    [
        pytest.param(
            partial(first_plan_is_cut, forgotten=True),
            RACKS_CHANGE,
            "planned again, nothing moves",
            id="a rack change forgotten after a cut plan",
        ),
        pytest.param(
            member_removed_in_its_join_keeps_positions,
            MEMBER_STANDS_STILL,
            "committed offsets grow",
            id="progress lost in a rebalance",
        ),
        pytest.param(
            commit_discards_all_requests,
            # One partition is read without a pause, with a commit after each poll; another one has come from a member
            # that has left.
            Script(
                (
                    (1.5, "produce", 0, 0, 400),
                    (2.0, "stop", 1),
                    (2.5, "produce", 0, 1, 5),
                    (6.0, "produce", 0, 0, 400),
                    (8.0, "refresh", 0),
                ),
                MemberOptions(client="attached", poll_ms=0, max_records=5),
                members=2,
                partitions=(2,),
                noise=False,
                within_s=13.0,
            ),
            "processed in time",
            id="new partitions starved by commits",
        ),
        pytest.param(
            returned_member_requests_nothing,
            Script(
                ((3.0, "rack", 1, "c"), (3.1, "rack", 2, "b"), (4.0, "refresh", 0)),
                MemberOptions(client="attached", static=True),
                members=3,
                partitions=(6,),
                noise=False,
            ),
            "planned again, nothing moves",
            id="a static member that returns in another rack",
        ),
        pytest.param(
            withheld_partitions_wait,
            # The other member's assignor claims what it has unsubscribed from, and has nothing to revoke then.
            Script(
                ((3.0, "refresh", 0), (4.0, "call", 1, "leave_topic")),
                MemberOptions(client="attached"),
                members=2,
                partitions=(1, 2),
                noise=False,
                stubborn=(1,),
            ),
            "all partitions are owned",
            id="starved by a claim",
        ),
        pytest.param(
            commits_wait_for_a_join_to_be_read,
            Script(
                ((3.0, "produce", 0, 0, 20), (3.5, "start", 2)),
                MemberOptions(client="attached", commit="explicit", poll_ms=0, max_records=5),
                members=2,
                partitions=(6, 2),
                noise=False,
            ),
            "commits succeed while nothing fails",
            id="a commit between a join and the poll that reads it",
        ),
        pytest.param(
            commits_are_sent_at_once_on_another_connection,
            Script(
                (
                    *((1.63, "remove", 1), (2.182, "add_partitions", 0), (2.806, "produce", 0, 0, 29)),
                    *((2.837, "produce", 0, 0, 18), (20.0, "refresh", 0)),
                ),
                MemberOptions(client="consumer", commit="async", poll_ms=3000, max_records=5, library="both"),
                members=2,
                partitions=(2,),
                seed=1300395,
            ),
            "committed offsets grow",
            id="a commit overtakes another one",
        ),
        pytest.param(
            commits_fail_before_a_join_is_repeated,
            Script(
                ((1.592, "produce", 0, 1, 19), (1.619, "stop", 1), (6.672, "produce", 0, 0, 23), (20.0, "refresh", 0)),
                MemberOptions(client="attached", commit="sync", poll_ms=3000, max_records=500),
                members=3,
                partitions=(2, 6),
                seed=1100675,
            ),
            "commits succeed while nothing fails",
            id="a commit between two joins of which the first has failed",
        ),
    ],
)
def test_a_defect_that_was_mended_is_found_again(
    monkeypatch: pytest.MonkeyPatch, defect: Patcher, script: Script, rule: str
) -> None:
    defect(monkeypatch)

    violation = run(script).violation

    assert violation is not None
    assert violation.rule == rule
    small = shrink(script, rule, attempts=60)
    assert len(small.happenings) <= FEW
    assert len(small.happenings) < len(script.happenings)
    # In the whole, so that the script fails for this defect alone.
    monkeypatch.undo()
    assert run(script).violation is None


def test_a_rack_change_is_acted_upon_after_a_cut_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    first_plan_is_cut(monkeypatch, forgotten=False)

    assert run(RACKS_CHANGE).violation is None


# Defects of kafka-python, with its own assignor, and what mends them.

ATTACHED, PATCHED = MemberOptions(client="attached"), MemberOptions(client="patched")


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        pytest.param(
            # No event at all: polls that do not wait, and two members that start.
            Script((), MemberOptions(poll_ms=0), members=2, partitions=(3,), noise=False),
            "members settle",
            id="keep_completed_join",
        ),
        pytest.param(
            Script(((3.0, "twin", 0),), MemberOptions(static=True), members=1, partitions=(3,), noise=False),
            "polls wait",
            id="backoff_coordinator_poll, raise_when_fenced",
        ),
    ],
)
def test_defects_of_kafka_python_are_found_and_the_patches_mend_them(script: Script, rule: str) -> None:
    stock = replace(script, options=replace(script.options, client="stock"))

    violation = run(stock).violation

    assert violation is not None
    assert violation.rule == rule
    assert run(replace(script, options=replace(script.options, client="patched"))).violation is None


@pytest.mark.parametrize(
    ("patch", "script", "rule"),
    [
        (
            "raise_when_fenced",
            Script(((3.0, "twin", 0),), replace(ATTACHED, static=True), members=1, partitions=(3,), noise=False),
            "one owner",
        ),
        (
            "revoke_before_removal",
            Script((), replace(ATTACHED, commit="listener", poll_ms=0), members=2, partitions=(5,), seed=1),
            "once while nothing fails",
        ),
        (
            "watch_as_returned_leader",
            Script(
                ((3.0, "kill", 0), (3.5, "start", 0), (8.0, "add_partitions", 0)),
                replace(ATTACHED, commit="async", static=True, poll_ms=1000, max_records=500),
                members=1,
                partitions=(3,),
                seed=1068,
            ),
            "all partitions are owned",
        ),
        (
            "lose_partitions_when_removed_in_join",
            MEMBER_STANDS_STILL,
            "committed offsets grow",
        ),
        (
            "tolerate_malformed_metadata",
            Script(((0.02, "malform", 1), (20.0, "stop", 1)), ATTACHED, members=2, partitions=(3,), noise=False),
            "poll() raises nothing",
        ),
        (
            "heartbeat_until_join_read",
            # The join ends while the application works, for longer than a session.
            Script(
                ((3.0, "start", 2), (3.5, "work", 0, 8.0)),
                replace(ATTACHED, poll_ms=0),
                members=2,
                partitions=(4,),
                noise=False,
            ),
            "members that live stay",
        ),
        (
            "fetch_during_rebalance",
            # One member holds up the join for eight seconds; another one reads on what it keeps.
            Script(
                ((3.0, "work", 1, 8.0), (4.0, "start", 2), (6.0, "produce", 0, 0, 5)),
                ATTACHED,
                members=2,
                partitions=(3,),
                noise=False,
                within_s=4.0,
            ),
            "processed in time",
        ),
        (
            "keep_preferred_read_replica",
            Script(((3.0, "lead", 0, 0, 2),), ATTACHED, members=1, partitions=(1,), noise=False),
            "a follower is not left",
        ),
        (
            "reset_unreachable_read_replica",
            # A follower dies, which the controller fences after nine seconds.
            Script(
                ((3.0, "lead", 0, 0, 2), (4.0, "kill_broker", 1), (4.5, "produce", 0, 0, 5), (20.0, "refresh", 0)),
                ATTACHED,
                members=1,
                partitions=(1,),
                noise=False,
                within_s=4.0,
            ),
            "processed in time",
        ),
        (
            "refresh_on_unknown_read_replica",
            # The follower in its rack is taken away, and is back when the member does not know. Without our assignor,
            # since the rack monitor would request metadata soon.
            Script(
                (
                    (3.0, "reassign", 0, 0, (2, 3)),
                    (3.2, "refresh", 0),
                    (5.0, "reassign", 0, 0, (2, 1)),
                    (5.5, "produce", 0, 0, 5),
                ),
                PATCHED,
                members=1,
                partitions=(1,),
                noise=False,
                within_s=4.0,
            ),
            "processed in time",
        ),
        (
            "wait_for_unknown_leader",
            # The connections are lost: a former one to that broker would still serve.
            Script(
                ((3.0, "unlist", 2), (3.1, "refresh", 0), (3.4, "drop", 0), (8.0, "refresh", 0)),
                ATTACHED,
                members=1,
                partitions=(2,),
                noise=False,
            ),
            "poll() raises nothing",
        ),
        (
            "wait_for_unknown_leader",
            # It starts without a committed offset.
            Script(((0.0, "unlist", 2), (6.0, "refresh", 0)), ATTACHED, members=1, partitions=(2,), noise=False),
            "poll() raises nothing",
        ),
        (
            "resume_paused_fetches",
            # It is paused after five of its twenty records, and another one is read before it is resumed.
            Script(
                (
                    (2.999, "work", 0, 1.0),
                    (3.0, "produce", 0, 0, 20),
                    (3.5, "call", 0, "pause_partition"),
                    (5.0, "produce", 0, 1, 5),
                    (6.0, "call", 0, "resume_partitions"),
                ),
                replace(ATTACHED, max_records=5),
                members=1,
                partitions=(2,),
                noise=False,
            ),
            "all records are processed",
        ),
        (
            "refresh_on_stale_leader",
            # Of a partition that another member reads.
            Script(
                ((12.0, "lead", 0, 0, 2), (12.1, "call", 1, "end_offsets")),
                ATTACHED,
                members=2,
                partitions=(2,),
                noise=False,
            ),
            "end_offsets() raises nothing",
        ),
        (
            "keep_interrupted_records",
            # The poll that ends the work has taken five records of one partition, and is at the second of the other.
            Script(
                (
                    (3.0, "work", 0, 3.0),
                    (4.0, "produce", 0, 0, 5),
                    (4.2, "produce", 0, 1, 5),
                    (4.5, "interrupt", 0, 7),
                    (12.0, "start", 0),
                ),
                replace(ATTACHED, commit="auto"),
                members=1,
                partitions=(2,),
                noise=False,
            ),
            "what is committed was processed",
        ),
        (
            "claim_current_assignment",
            # The first member unsubscribes from the second topic, of which it has a partition.
            Script(((4.0, "call", 0, "leave_topic"),), PATCHED, members=2, partitions=(1, 2), noise=False),
            "all partitions are owned",
        ),
        (
            "keep_generation_when_removed",
            # It stands still while it works, learns that it was removed, and then commits what it has read before.
            Script(
                (
                    (2.999, "work", 1, 9.0),
                    (3.0, "produce", 0, 1, 5),
                    (3.2, "pause", 1, 7.5),
                    (11.0, "produce", 0, 1, 5),
                    (20.0, "refresh", 0),
                ),
                replace(ATTACHED, commit="transaction"),
                members=2,
                partitions=(2,),
                noise=False,
            ),
            "committed offsets grow",
        ),
        (
            "discard_former_committed_offsets",
            # The committed offset of its new partition arrives while it works and then stands still: no poll takes it
            # before the partition is another one's, which reads on, and its own again.
            Script(
                (
                    (3.0, "start", 1),
                    (3.01, "delay", 1, "OffsetFetch", "response", 1.0),
                    (4.25, "work", 1, 9.0),
                    (5.8, "pause", 1, 5.6),
                    (12.0, "produce", 0, 1, 20),
                    (20.0, "refresh", 0),
                ),
                replace(ATTACHED, max_records=5),
                members=1,
                partitions=(2,),
                noise=False,
            ),
            "committed offsets grow",
        ),
    ],
)
def test_the_defect_of_a_patch_is_found_without_it(patch: str, script: Script, rule: str) -> None:
    violation = run(replace(script, options=replace(script.options, without=(patch,)))).violation

    assert violation is not None
    assert violation.rule == rule
    assert run(script).violation is None


def test_a_member_that_is_removed_beside_a_joiner_leaves_nothing_unowned_without_patches() -> None:
    happenings = ((3.0, "pause", 1, 8.0), (9.5, "start", 2), (20.0, "refresh", 0))
    script = Script(happenings, MemberOptions(client="assignor"), members=2, partitions=(4,), noise=False)

    assert run(script).violation is None


def test_each_patch_has_its_defect_shown() -> None:
    (mark,) = test_the_defect_of_a_patch_is_found_without_it.pytestmark  # type: ignore[attr-defined]
    shown = {patch for patch, _, _ in mark.args[1]}

    # These by the stock client, and by counting requests.
    otherwise = {"keep_completed_join", "backoff_coordinator_poll", "retry_coordinator_lookup"}

    assert shown | otherwise == {patch.name for patch in PATCHES}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            # Its application has worked for longer than `max_poll_interval_ms`.
            Script(
                ((0.347, "reassign", 0, 0, (3, 2)), (2.313, "overwork", 0, 13.197)),
                MemberOptions(client="attached", commit="async", static=True, poll_ms=1000, max_records=500),
                partitions=(2,),
                seed=1068,
            ),
            id="racks that change",
        ),
        pytest.param(
            # It stops between the two rounds of a cooperative rebalance: no other member requests the second one.
            Script(
                (
                    (6.767, "stop", 1),
                    (10.653, "stop", 0),
                    (35.9, "start", 0),
                    (36.028, "produce", 0, 1, 30),
                    (43.137, "start", 1),
                    (44.184, "stop", 0),
                    (48.275, "start", 0),
                ),
                MemberOptions(client="attached", commit="async", static=True, max_records=500),
                members=2,
                seed=3001,
            ),
            id="a second round",
        ),
    ],
)
def test_a_static_leader_that_has_returned_leads(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(script).violation is None

    # The coordinator gives it its former assignment, and not the members.
    returned_member_requests_nothing(monkeypatch)
    assert run(script).violation is not None


def moved(at: float, partitions: Iterable[int], racks: int, *more: int) -> tuple[Happening, ...]:
    """Each partition, at home in the rack of its number, moves by so many racks; `more` replicas follow."""
    return tuple((at, "reassign", 0, p, tuple((p + step) % 3 + 1 for step in (racks, *more))) for p in partitions)


SEEN = tuple((6.2, "refresh", member) for member in range(3))
HALF, REST = range(3), range(3, 6)


@pytest.mark.parametrize(
    ("happenings", "rebalances"),
    [
        pytest.param((*moved(6.0, range(6), 1), *SEEN), 2, id="replicas move: two rounds of one rebalance"),
        pytest.param((*moved(6.0, HALF, 1), *SEEN, *moved(7.5, REST, 1)), 2, id="half of them is seen first"),
        pytest.param((*moved(6.0, HALF, 1), *SEEN, *moved(7.5, HALF, 0)), 0, id="half of them, and that is undone"),
        pytest.param((*moved(6.0, range(6), 1, 0), *SEEN), 0, id="another leader, and a replica where it was"),
        pytest.param(
            tuple(
                (6.0 + 24 * i + s, what, i + 1)
                for i in range(3)
                for s, what in ((0, "kill_broker"), (12, "start_broker"))
            ),
            0,
            id="rolling restart of brokers",
        ),
    ],
)
def test_the_rack_monitor_requests_a_rebalance_for_what_lasts(
    happenings: tuple[Happening, ...], rebalances: int
) -> None:
    generations = []
    for each in ((), happenings):
        options = MemberOptions(client="attached")
        played = Run(Script((*moved(0.0, range(6), 0), *each), options, members=3, partitions=(6,), noise=False))
        assert played.go().violation is None
        generations.append(played.cluster.groups[GROUP].generation)

    assert generations[1] - generations[0] == rebalances


@pytest.mark.parametrize("seed", range(6))
def test_a_static_leader_that_returns_causes_no_rebalance(seed: int) -> None:
    options = MemberOptions(client="attached", commit="async", static=True, poll_ms=1000)
    generations = []
    for happenings in ((), ((3.0, "kill", 0), (3.5, "start", 0))):
        played = Run(Script(happenings, options, members=3, partitions=(6,), seed=seed))
        assert played.go().violation is None
        generations.append(played.cluster.groups[GROUP].generation)

    assert generations[0] == generations[1]


def test_a_coordinator_that_is_down_is_looked_up_at_intervals() -> None:
    # For nine seconds the brokers name a coordinator that refuses connections: until it is fenced.
    happenings = ((3.0, "kill_broker", 3), (4.0, "start", 1), (14.0, "refresh", 0))
    looked = {}
    for client in ("consumer", "stock"):
        result = run(
            Script(happenings, MemberOptions(client=client), members=1, partitions=(3,), noise=False), log=True
        )
        assert result.violation is None
        looked[client] = sum(" >FindCoordinator " in line for line in result.log)

    # One for each `retry_backoff_ms`, and those at the start.
    assert looked["consumer"] < 200
    assert looked["stock"] > 1000
