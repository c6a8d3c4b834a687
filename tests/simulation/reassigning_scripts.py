"""Scripts for `reassign apply` and `rollback`: the tool as a process, what must hold, and scripts from seeds."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.admin_client import AuthorizationError, connected
from rackassign.errors import ConfigError, RackassignError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.reassignment import ExecutionLimits, Journal, Progress, ReassignmentRunner, ReplicaMove
from rackassign.reassignment import journal as journals
from tests.simulation import kafka_python
from tests.simulation.member import MemberOptions
from tests.simulation.reassigning import MIN_ISR, NOT_CONTROLLER, ReassigningCluster, Replicated
from tests.simulation.scripts import Happening, Result, Run, Script
from tests.simulation.world import ThreadedProcess, World

TOPIC, RACKS = "t", ("a", "b", "c", "a", "b", "c")

_LONGEST_S = 900.0
"""Seconds within which a tool ends once nothing happens any more."""

_APPLIED_S = 9.0
"""Seconds for which brokers may not report yet what is done when the tool ends."""


@dataclass(frozen=True, slots=True)
class ToolOptions(MemberOptions):
    """A plan, and how it is executed; each partition has an original and a planned list, and so many bytes."""

    moves: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (((1, 2), (1, 3)),)
    rate: int | None = None
    batch_size: int = 3
    stall_s: float = 5.0
    size: int = 20_000_000
    timeout_s: float | None = None
    # Seconds for which brokers are awaited, and what is done first.
    wait_s: float = 0.0
    first: str = "apply"
    configs: tuple[tuple[str, str], ...] = ()


class Tool(ThreadedProcess):
    """A process with an admin client."""

    def __init__(self, world: World, name: str, cluster: ReassigningCluster, call: Callable[[Tool], Any]) -> None:
        super().__init__(world, name)
        self.cluster, self._call = cluster, call
        self.stopping = False
        self.told: list[Progress] = []
        self.problems: list[str] = []
        self.sent: set[int] = set()
        self.outcome: Any = None
        # What the command line prints in a line.
        self.error: Exception | None = None

    def application(self) -> None:
        try:
            self.outcome = self._call(self)
        except (KafkaError, RackassignError) as error:
            self.error = error
        self.world.note("tool ends", f"{self.name} {type(self.error).__name__}")

    def _client(self, make: Callable[..., Any], **configs: Any) -> Any:
        return make(**{**configs, "metrics": None})

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        configs = {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "proxy_url": f"{kafka_python.SCHEME}://",
            "kafka_client": partial(self._client, kafka_python.client_factory(self)),
        }
        with closing(connected(KafkaAdminClient, configs)) as admin:
            yield admin


class ReassignmentRun(Run):
    """One run of a script: `apply` begins at one second, and what was asked for last is done again at the end."""

    options: Any
    cluster: Any
    watchers: Any
    current: dict[int, Any]

    def __init__(self, script: Script, *, log: bool = False) -> None:
        self.options = script.options
        self.folder = Path(tempfile.mkdtemp(prefix="rackassign-simulation-"))
        self.plan_file = self.folder / "plan.json"
        self.moves = {TopicPartition(TOPIC, i): ReplicaMove(*move) for i, move in enumerate(self.options.moves)}
        journals.write(self.plan_file, Journal("simulation", moves=self.moves))
        # Partitions that another tool has changed, and requests that are executed until the tool is killed.
        self.foreign: set[int] = set()
        self._requests = -1
        self.direction = "apply"
        self.members: list[Tool] = []
        super().__init__(script, log=log)
        self.before = self.throttles(self.cluster.configs)

    def _new_watchers(self, *, once: bool) -> Any:  # noqa: ARG002
        return self

    def _new_cluster(self) -> Any:
        cluster = ReassigningCluster(self.world, RACKS, self)
        cluster.create(
            TOPIC, [before for before, _ in self.options.moves], self.options.size, dict(self.options.configs)
        )
        return cluster

    def go(self) -> Result:
        try:
            return super().go()
        finally:
            shutil.rmtree(self.folder)

    def _play(self) -> None:
        for at, name, *arguments in (
            (1.0, self.options.first),
            *self.script.happenings,
            (self._last() + 0.001, "heal"),
        ):
            self.world.at(at, name, partial(self._do, name, *arguments))
        self.world.run(self._last() + 0.002)
        for _ in range(3):
            tool: Any = self._living(0) or self.begin(self.direction)
            until = self.world.now + _LONGEST_S
            while not tool.ended and self.world.now < until and not self.world.problems:
                self.world.run(self.world.now + 1.0)
            if tool.outcome is not None and not self._failed(tool):
                break
        if not self.world.problems:
            self._settled(tool)

    def _last(self) -> float:
        return max((at for at, *_ in self.script.happenings), default=1.0)

    def begin(self, direction: str) -> Tool:
        """Start the tool as a command does."""

        self.configured(self)
        self._started += 1
        self.direction = direction
        self.members.append(
            Tool(self.world, f"{direction}#{self._started}", self.cluster, partial(self.execute, direction))
        )
        self.current[0] = self.members[-1]
        self.current[0].start()
        return self.members[-1]

    def execute(self, direction: str, tool: Tool) -> Any:
        given, files = self.options, (self.plan_file, self.folder / "state.json")
        with journals.open_exclusive(self.plan_file) as journal, tool.admin() as admin:
            limits = ExecutionLimits(given.batch_size, given.rate, given.stall_s, given.timeout_s)
            runner = ReassignmentRunner(
                admin,
                *files,
                limits=limits,
                stop=lambda: tool.stopping,
                display=lambda: nullcontext(tool.told.append),
                report_problem=tool.problems.append,
            )
            try:
                wait = {"wait_for_brokers": given.wait_s} if direction == "apply" else {}
                outcome = getattr(runner, direction)(journal, **wait)
            except AuthorizationError:
                if not tool.sent and journals.read(self.plan_file).phase != journal.phase:
                    self.world.violated("who may not do it has done nothing", journal.phase)
                raise
            self._ended(outcome)
            return outcome

    # What must hold.

    def throttles(self, configs: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
        return [{k: v for k, v in configs[name].items() if k in {*RATES, *THROTTLED}} for name in ("", TOPIC)]

    def completed(self, p: Replicated, isr: Sequence[int]) -> None:
        """No replica is removed without which fewer than `min.insync.replicas` are in sync.

        Lists with no more replicas than that are planned with a warning: they are exposed to each broker.
        """
        least = int(self.cluster.configs[p.topic][MIN_ISR])
        if p.index not in self.foreign and len(isr) < min(least, len(p.isr)) and len(p.target or ()) > least:
            self.world.violated("min.insync.replicas", f"{p.index}: {p.isr} in sync become {isr}")

    def acknowledged(self, p: Replicated) -> None:
        if max(p.have[node] for node in p.replicas) < p.acked:
            self.world.violated("acknowledged records stay", f"{p.index}: {dict(p.have)} of {p.acked}")

    def altered(self, client: Any, p: Any, row: Sequence[int] | None) -> None:
        """What begins is in the plan file and throttled, what runs gets no other target, and batches are kept."""
        if p is None or p.index in self.foreign:
            return
        plan, new = journals.read(self.plan_file), set(row or ()) - set(p.replicas)
        move = plan.moves.get(TopicPartition(TOPIC, p.index))
        if plan.phase != "begun" or move is None or (row and tuple(row) not in move.known()):
            self.world.violated("the plan file knows it", f"{client.name}: {p.index} to {row}, {plan.phase}")
        if row and p.target not in {None, tuple(row)}:
            self.world.violated("a target stays", f"{client.name}: {p.index} on its way to {p.target} is sent to {row}")
        listed = [(THROTTLED[0], p.leader), *((THROTTLED[1], node) for node in new)]
        throttled = all(self.cluster.is_throttled(p, *each) for each in listed) and RATES[0] in self.cluster.configs[""]
        if self.options.rate and new and not throttled:
            self.world.violated("copies are throttled", f"{client.name}: {p.index} to {row}")
        client.sent = {p.index, *(i for i in client.sent if self.cluster.topics[TOPIC][i].target)} - self.foreign
        if len(client.sent) > self.options.batch_size:
            self.world.violated("batches", f"{client.name}: {client.sent} under way")

    def configured(self, client: Any) -> None:
        """The plan file has what was set before, as long as a throttle is set."""
        if self.throttles(self.cluster.configs) != self.before and journals.read(self.plan_file).throttled is None:
            self.world.violated("the plan file knows the throttle", f"{client}: {self.throttles(self.cluster.configs)}")

    def _ended(self, outcome: Any) -> None:
        """Without an error, all is at its target or where it was, and no broker reports a throttle."""
        for tp, move in self.moves.items():
            p = self.cluster.topics[TOPIC][tp.partition]
            goal = move.after if outcome.direction == "apply" else move.before
            possible = {goal} if tp in outcome.result.done else {move.before, move.after}
            if p.index not in self.foreign and (p.target or tuple(p.replicas) not in possible):
                self.world.violated(
                    "a reassignment ends", f"{p.index} has {p.replicas} to {p.target}: {outcome.result}"
                )
        living = [node for node, broker in self.cluster.brokers.items() if not broker.dead]
        # One that has not heard yet of all that was configured will report a throttle later.
        known = [self.cluster.images[node] for node in living if self.cluster.lags.get(node, 0.0) < _APPLIED_S]
        behind = [image.version for image in known if image.version < self.cluster.configured]
        if behind or self.throttles(self.cluster.configs) != self.before:
            self.world.violated("no throttle is left", f"{behind} {self.throttles(self.cluster.configs)}")

    def _failed(self, tool: Tool) -> set[int]:
        return {tp.partition for tp in tool.outcome.result.failed} - self.foreign

    def _settled(self, tool: Tool) -> None:
        if tool.outcome is None or self._failed(tool):
            self.world.violated("run again, it succeeds", f"{tool.ended} {tool.error!r} {tool.outcome}")
        elif not self.foreign and journals.read(self.plan_file).open:
            self.world.violated("the plan is over", f"{tool.outcome.journal.phase}")
        else:
            told = {tp.partition for tp in tool.outcome.result.leader_not_elected} | self.foreign
            others = {p.index: p.leader for p in self.cluster.replicated() if p.leader != p.replicas[0]}
            if others.keys() - told:
                self.world.violated("preferred leaders lead", f"{others}")

    # What happens.

    def served(self, client: Any) -> None:
        self._requests -= client is self.current.get(0)
        if self._requests == 0:
            self._requests = -1
            self._do("kill", 0)

    def _crash(self, requests: int) -> None:
        """Kill the tool when brokers have executed so many further requests of it."""
        self._requests = requests

    def _apply(self, direction: str = "apply") -> None:
        if self._living(0) is None:
            self.begin(direction)

    def _rollback(self) -> None:
        self._apply("rollback")

    def _second(self) -> None:
        """Start a tool with the same plan beside one that has begun."""
        first = self._living(0)
        if first is not None and first.loop is not None:
            second = self.begin(self.direction)
            self.current[0] = first
            self.world.later(5.0, "look", partial(self._refused, second))

    def _refused(self, tool: Tool) -> None:
        if not isinstance(tool.error, ConfigError):
            self.world.violated("one tool at a time", f"{tool.error!r} {tool.outcome}")

    def _set(self, name: str, key: Any, value: Any) -> None:
        getattr(self.cluster, name)[key] = value

    def _foreign(self, index: int, row: Sequence[int]) -> None:
        self.foreign.add(index)
        self.cluster.alter(self.cluster.topics[TOPIC][index], row)

    def _heal(self) -> None:
        self.cluster.forget_delays()
        for happens in (self.cluster.lags, self.cluster.stuck, self.cluster.rates, self.cluster.errors):
            happens.clear()
        self._requests = -1
        for node in self.cluster.brokers:
            self.cluster.start_broker(node)


def run(script: Script, *, log: bool = False) -> Result:
    return ReassignmentRun(script, log=log).go()


_APIS = ("AlterPartitionReassignments", "ListPartitionReassignments", "IncrementalAlterConfigs", "ElectLeaders")
_OFTEN = ("crash", "crash", "crash", "apply", "apply", "apply", "set", "set", "set", "rollback", "rollback")
_SELDOM = ("kill", "stop", "second", "drop", "delay", "foreign", "kill_broker", "start_broker", "move_controller")


def from_seed(seed: int) -> Script:
    """Make the script of a seed."""
    rng = random.Random(f"reassignment {seed}")
    nodes, moves = range(1, len(RACKS) + 1), []
    least = rng.choice((1, 1, 2))
    for _ in range(rng.randint(1, 5)):
        before, after = (tuple(rng.sample(nodes, rng.randint(least, 3))) for _ in range(2))
        moves.append((before, after if rng.random() < 0.7 else (*before[1:], before[0])))
    options = ToolOptions(
        moves=tuple(moves),
        rate=rng.choice((None, 500_000, 2_000_000, 5_000_000)),
        batch_size=rng.randint(1, 5),
        stall_s=rng.choice((1.0, 10.0)),
        size=rng.choice((0, 2_000_000, 20_000_000)),
        configs=((MIN_ISR, str(least)), *rng.choice(((), ((THROTTLED[0], "9:9"),)))),
    )
    names = rng.sample((*_OFTEN, *_SELDOM), rng.randint(4, 20))
    now, happenings = 1.0, list[Happening]()
    for _ in range(rng.randint(2, 14)):
        now = round(now + (rng.expovariate(4.0) if rng.random() < 0.6 else rng.uniform(0.5, 12.0)), 3)
        index, seconds = rng.randrange(len(moves)), round(rng.choice((0.1, 1.0, 4.0)) * rng.uniform(0.7, 1.3), 3)
        of_cluster = (
            # Less than a tool takes that is started again: what a broker has never heard of cannot be waited for.
            ("lags", rng.choice(nodes), rng.choice((0.1, 0.4))),
            ("stuck", rng.choice(nodes), True),
            ("rates", index, rng.choice((0, 100_000, 3_000_000))),
            ("errors", rng.choice(_APIS), rng.choice((7, 31, NOT_CONTROLLER))),
        )
        arguments: dict[str, Sequence[Any]] = {
            **dict.fromkeys(("kill", "stop", "drop"), (0,)),
            **dict.fromkeys(("kill_broker", "start_broker"), (rng.choice(nodes),)),
            "crash": (rng.randint(1, 60),),
            "set": rng.choice(of_cluster),
            "foreign": (index, tuple(rng.sample(nodes, 2))),
            "delay": (0, rng.choice((*_APIS, "Metadata")), rng.choice(("request", "response")), seconds),
        }
        name = rng.choice(names)
        happenings.append((now, name, *arguments.get(name, ())))
    return Script(tuple(happenings), options, 1, (len(moves),), seed)
