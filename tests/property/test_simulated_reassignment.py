"""`reassign apply` and `rollback` in a simulated world: whatever happens, they come to their end, and leave nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rackassign.admin import raw_requests
from rackassign.admin.admin_client import AuthorizationError
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import THROTTLED
from rackassign.reassignment import Journal, executor, operations, partition_execution
from rackassign.reassignment import journal as journals
from rackassign.reassignment.executor import await_restored
from rackassign.reassignment.throttle import MOST_BYTES, save_configs
from tests.simulation.reassigning import ReassigningCluster
from tests.simulation.reassigning_scripts import TOPIC, ReassignmentRun, ToolOptions, from_seed, run
from tests.simulation.scripts import Happening, Script, held
from tests.simulation.world import World

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "placement_vectors.json").read_text())

ONE = (((1, 2), (1, 3)),)
TWO = (((6, 4, 3), (1, 3, 6)), ((5, 6, 1), (3, 5, 4)))


@pytest.mark.parametrize("seed", range(3))
def test_what_must_hold_holds(seed: int) -> None:
    assert held(from_seed(seed), 40, run).events > 200


# Former defects.


def does_not_look_brokers_up(admin: Any, request: Any, broker: int | None = None) -> Any:
    """Send a request; a broker that has started since the client read its metadata is unknown."""

    async def ask() -> Any:
        return await admin._manager.send(request, node_id=broker)

    return admin._manager.run(ask)


def only_at_the_end() -> Callable[..., None]:
    """Return what does not wait the first time, which is at the start of the run after a killed one."""
    calls = count()

    def wait(*given: Any) -> None:
        if next(calls):
            await_restored(*given)

    return wait


SLOW_BROKERS: tuple[Happening, ...] = tuple((1.6, "set", "lags", node, 12.0) for node in range(1, 7))
BROKER_RETURNS: tuple[Happening, ...] = (
    (0.1, "kill_broker", 6),
    (10.0, "rollback"),
    (10.5, "set", "lags", 6, 2.0),
    (11.0, "start_broker", 6),
    (25.0, "drop", 0),
)


@pytest.mark.parametrize(
    ("former", "script", "rule"),
    [
        pytest.param(
            [(executor, "save_configs", lambda cluster, moves, _: save_configs(cluster, moves))],
            Script(
                ((1.5, "kill", 0), *SLOW_BROKERS, (2.0, "apply"), (30.0, "drop", 0)),
                ToolOptions(moves=TWO, rate=500_000, size=0),
            ),
            "no throttle is left",
            id="a throttle of a killed run is taken for what was set before",
        ),
        pytest.param(
            [(executor, "await_restored", only_at_the_end())],
            Script(
                (
                    *((1.5, "kill", 0), (1.6, "set", "lags", 4, 1.0), (2.0, "apply")),
                    *((2.01, "delay", 0, "ListPartitionReassignments", "request", 0.5), (20.0, "drop", 0)),
                ),
                ToolOptions(moves=TWO, rate=500_000, size=0),
            ),
            "no throttle is left",
            id="a throttle of a killed run is still reported when the next one begins",
        ),
        pytest.param(
            [(executor, "await_restored", lambda *_: None)],
            Script((), ToolOptions(moves=TWO, rate=500_000, size=0)),
            "no throttle is left",
            id="brokers report the throttle when it is over",
        ),
        pytest.param(
            [(partition_execution, "CANCEL", partition_execution.SEND)],
            Script(((1.7, "kill", 0), (2.0, "rollback")), ToolOptions(moves=TWO, rate=5_000_000)),
            "a target stays",
            id="what a killed run has begun is given another target",
        ),
        pytest.param(
            [(executor, "await_throttled", lambda *_: None)],
            Script(((0.5, "set", "lags", 5, 3.7), (9.0, "drop", 0)), ToolOptions(moves=ONE, rate=5_000_000, size=0)),
            "no throttle is left",
            id="a broker hears of the throttle when it is over",
        ),
        pytest.param(
            [(raw_requests, "send", does_not_look_brokers_up), (executor, "UnknownBrokerIdError", ZeroDivisionError)],
            Script(BROKER_RETURNS, ToolOptions(moves=ONE, rate=5_000_000)),
            "no throttle is left",
            id="a broker that has just started is not asked whether it reports the throttle",
        ),
        pytest.param(
            [(executor, "KafkaConnectionError", ZeroDivisionError)],
            Script(
                ((1.299, "set", "lags", 1, 0.4), (8.365, "apply"), (9.497, "drop", 0)),
                ToolOptions(
                    moves=(((5, 2, 6), (5, 3, 4)), ((3, 2), (2, 3))),
                    rate=5_000_000,
                    batch_size=1,
                    stall_s=1.0,
                    size=0,
                    configs=(("min.insync.replicas", "2"), ("leader.replication.throttled.replicas", "9:9")),
                ),
                partitions=(2,),
                members=1,
                seed=1200128,
                noise=True,
            ),
            "no throttle is left",
            id="a broker whose connection was lost is not asked again whether it reports the throttle",
        ),
    ],
)
def test_a_defect_is_found_again(
    monkeypatch: pytest.MonkeyPatch, former: list[tuple[Any, str, Any]], script: Script, rule: str
) -> None:
    assert run(script).violation is None

    for each in former:
        monkeypatch.setattr(*each)

    violation = run(script).violation
    assert violation is not None
    assert violation.rule == rule


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS["controller_behaviour"] if vector["op"] == "reassign"],
    ids=lambda vector: str(vector["name"]),
)
def test_the_simulated_cluster_reassigns_as_recorded(vector: Mapping[str, Any]) -> None:
    def shifted(row: Iterable[int]) -> list[int]:
        # Simulated brokers are numbered from 1 on.
        return [broker + 1 for broker in row]

    registered = vector.get("registered", vector["current"])
    cluster = ReassigningCluster(World(), [None] * len(registered), Mock())
    cluster.create("t", [shifted(vector["current"])], 1, {})
    (partition,) = cluster.replicated()
    partition.isr = shifted(vector["isr"])
    error = cluster.alter(partition, None if vector["target"] is None else shifted(vector["target"]))
    assert error == vector.get("code", 0)
    if not error:
        result = vector["result"]
        found = (partition.replicas, partition.adding, partition.removing)
        assert found == tuple(shifted(result[name]) for name in ("replicas", "adding", "removing"))


# What a run says of its end.


def played(options: ToolOptions, *happenings: Happening, until: float = 45.0, rule: str | None = None) -> Any:
    """Run a script up to its end, and return what it has run."""
    script = Script((*happenings, (until, "drop", 0)), options, 1, (len(options.moves),), noise=False)
    made = ReassignmentRun(script, log=True)
    violation = made.go().violation
    assert (violation.rule if violation else None) == rule, violation
    return made


# Of the lists of throttled replicas most is taken.
TAKEN = ",".join(f"{number}:1" for number in range(1000, 1000 + (MOST_BYTES - 60) // 7))
MANY = tuple(((1 + i % 6, 1 + (i + 1) % 6), (1 + (i + 2) % 6, 1 + (i + 3) % 6)) for i in range(6))
FILLED = ToolOptions(
    moves=MANY, rate=20_000_000, batch_size=2, size=1_000_000, configs=tuple((k, TAKEN) for k in THROTTLED)
)


@pytest.mark.parametrize(
    ("options", "happenings", "failed"),
    [
        (ToolOptions(moves=ONE), (), {}),
        (FILLED, (), {}),
        # A copy of a minute is awaited, as it goes on.
        (ToolOptions(moves=ONE, rate=100_000, size=4_000_000), (), {}),
        # A broker that dies meanwhile, before it is given up by the cluster, and one that copies nothing.
        (ToolOptions(moves=ONE, rate=5_000_000), ((1.5, "kill_broker", 3),), {0: "waits for broker 3"}),
        (
            ToolOptions(moves=(*ONE, ((1, 2), (1, 4))), rate=5_000_000),
            ((0.5, "set", "stuck", 3, True), (0.5, "set", "rates", 0, 9000)),
            {0: "nothing was copied for 30 s: waits for broker 3"},
        ),
        (
            ToolOptions(moves=ONE),
            ((0.5, "foreign", 0, (5, 6)),),
            {0: "its replicas are 5, 6, which is no list of the plan"},
        ),
        (
            ToolOptions(moves=ONE),
            ((0.4, "set", "stuck", 6, True), (0.5, "foreign", 0, (1, 6))),
            {0: "another process reassigns it, to 1, 6"},
        ),
        (
            ToolOptions(moves=(((1, 2), (1, 9)), ((1, 2), (2, 1)))),
            ((0.5, "foreign", 0, (1, 2)),),
            {0: "InvalidReplicationAssignmentError"},
        ),
        (ToolOptions(moves=TWO, rate=5_000_000, batch_size=1), ((4.0, "stop", 0),), {0: "stopped", 1: "stopped"}),
        # All batches wait for one broker once.
        (
            ToolOptions(moves=ONE * 5, batch_size=1),
            ((0.1, "kill_broker", 3),),
            dict.fromkeys(range(5), "waits for broker 3"),
        ),
    ],
)
def test_what_failed_is_said_with_its_reason(
    options: ToolOptions, happenings: tuple[Happening, ...], failed: Mapping[int, str]
) -> None:
    made = played(options, *happenings)

    tool = made.members[0]
    assert {tp.partition: why for tp, why in tool.outcome.result.failed.items()} == failed
    assert tool.outcome.journal.phase == ("begun" if failed else "applied")
    if "stopped" not in failed.values():
        # The progress of copies is that of all batches.
        assert tool.told[-1].settled == tool.told[-1].partitions == len(options.moves)
        assert [each.copied.done for each in tool.told] == sorted(each.copied.done for each in tool.told)


def test_a_rollback_is_over_when_all_that_can_be_taken_back_is() -> None:
    made = played(ToolOptions(moves=(*ONE, *TWO)), (30.0, "foreign", 0, (5, 6)), (31.0, "rollback"))

    outcome = made.members[1].outcome
    assert list(outcome.result.final) == list(outcome.result.failed) == [TopicPartition(TOPIC, 0)]
    assert outcome.journal.phase == "rolled-back"


def test_copies_to_a_broker_are_counted_that_has_started_after_the_tool() -> None:
    made = played(
        ToolOptions(moves=(((1, 6), (1, 3)),), rate=2_000_000, size=4_000_000),
        *((6.0, "kill_broker", 6), (16.0, "rollback"), (18.0, "start_broker", 6)),
    )

    assert made.members[1].outcome.result.failed == {}
    assert made.members[1].told[-1].copied == (4_000_000, 4_000_000, True)


@pytest.mark.parametrize(("lag_s", "led"), [(8.0, True), (35.0, False)])
def test_an_election_is_awaited_for_as_long_as_partitions_are_without_progress(lag_s: float, *, led: bool) -> None:
    lags = tuple((0.5, "set", "lags", node, lag_s) for node in range(1, 7))

    outcome = played(ToolOptions(moves=(((1, 2), (2, 1)),), stall_s=20.0), *lags, until=200.0).members[0].outcome

    assert outcome.result.done == (TopicPartition(TOPIC, 0),)
    assert set(outcome.result.leader_not_elected.values()) == (set() if led else {"not elected within 20 s"})


@pytest.mark.parametrize(
    ("options", "happenings", "error", "text"),
    [
        *(
            (ToolOptions(moves=ONE, rate=5_000_000), ((0.5, "set", "errors", api, 31),), AuthorizationError, "ALTER")
            for api in ("AlterPartitionReassignments", "IncrementalAlterConfigs")
        ),
        (replace(FILLED, batch_size=6), (), ConfigError, "throttle: 6 partitions at a time are too many"),
        # Another tool is not finished, and has throttled what it copies.
        (
            ToolOptions(moves=(*ONE, ((1, 2), (2, 1))), rate=5_000_000, configs=((THROTTLED[0], "1:1"),)),
            ((0.4, "set", "stuck", 6, True), (0.5, "foreign", 1, (1, 6))),
            ConfigError,
            "throttled reassignments of another process are in progress",
        ),
    ],
)
def test_what_is_refused_is_left_as_it_was(
    options: ToolOptions, happenings: tuple[Happening, ...], error: type[Exception], text: str
) -> None:
    # A batch that is too large is refused again.
    rule = "run again, it succeeds" if options.batch_size > 3 else None

    tool = played(options, *happenings, rule=rule).members[0]

    assert type(tool.error) is error
    assert text in str(tool.error)
    assert not tool.sent


def test_what_failed_is_executed_again_while_brokers_are_awaited_also_if_that_is_interrupted() -> None:
    # The second execution cannot take its throttle away: the third one does.
    tool = played(
        ToolOptions(moves=ONE, rate=2_000_000, stall_s=1.0, wait_s=120.0),
        *((0.1, "kill_broker", 3), (14.0, "start_broker", 3), (19.0, "set", "errors", "IncrementalAlterConfigs", 7)),
    ).members[0]

    assert (tool.outcome.result.failed, tool.outcome.journal.phase) == ({}, "applied")
    (problem,) = tool.problems
    assert problem.startswith("cluster not available: the throttle is still set")


def test_a_broker_that_was_given_up_once_and_came_back_is_awaited_again() -> None:
    moves = (((1, 2), (2, 3)), ((1, 2), (2, 4)), ((1, 2), (2, 3)))
    away = ((0.1, "kill_broker", 3), (22.0, "start_broker", 3), (26.0, "kill_broker", 3), (50.0, "start_broker", 3))

    tool = played(ToolOptions(moves=moves, rate=1_000_000, batch_size=1, stall_s=10.0), *away).members[0]

    assert {tp.partition: why for tp, why in tool.outcome.result.failed.items()} == {0: "waits for broker 3"}


def test_a_rollback_of_a_plan_that_was_never_begun_elects_no_leaders() -> None:
    # The first replica is away for a while, and then another one leads.
    away = ((0.1, "kill_broker", 1), (12.0, "start_broker", 1), (20.0, "rollback"))

    made = played(ToolOptions(moves=ONE, first="move_controller"), *away)

    assert made.members[0].outcome.journal.phase == "rolled-back"
    assert not any(f">ElectLeaders {made.members[0].name}" in line for line in made.world.log)


class _Abandoning(ReassignmentRun):
    """Abandons the plan, and makes the same again."""

    def _abandon(self) -> None:
        self.begin("abandon")

    def execute(self, direction: str, tool: Any) -> Any:
        if direction != "abandon":
            return super().execute(direction, tool)
        with journals.open_exclusive(self.plan_file) as journal, tool.admin() as admin:
            operations.abandon(admin, journal, lambda abandoned: journals.write(self.plan_file, abandoned))
            journals.write(self.plan_file, Journal("simulation", moves=self.moves))
        return None


def test_a_throttle_that_was_abandoned_is_not_restored_after_the_next_plan() -> None:
    lags = tuple((1.6, "set", "lags", node, 2.0) for node in range(1, 7))
    happenings = ((1.5, "kill", 0), *lags, (2.0, "abandon"), *((3.0 + i / 5, "apply") for i in range(9)))
    script = Script(
        (*happenings, (20.0, "drop", 0)), ToolOptions(moves=ONE, rate=5_000_000, size=2_000_000), noise=False
    )

    assert _Abandoning(script).go().violation is None
