"""Time and results of Kafka's assignors, with a time limit on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.cases import Case, Shape, StrategyName
from benchmarks.planner import Effort
from benchmarks.quality import Quality, count, readable
from rackassign.model import Group
from rackassign.scenario import write_group
from tests.helpers.java.assignor_peer import Assignment, JavaPeer, JavaRaisedError, PeerLostError, PeerTimeoutError

if TYPE_CHECKING:
    from typing_extensions import Self

CAP_S = 60.0
"""A call of Java's that takes longer is not waited for."""

HEAP = "4g"
"""Enough that the largest group is no test of the garbage collector."""

READ_PER_S = 50_000
"""Partitions of a request that Java surely reads in a second; reading is not part of the call."""

ANSWER_S = 900.0
"""For the requests whose calls are known to be short."""

LONG_S = 5.0
"""A call from which on the first one counts: by then the JVM has compiled what it runs."""

WARM_CASES: tuple[tuple[Case, int], ...] = (
    (Case("range", Shape(100, 5_000, 10, 1)), 500),
    (Case("range", Shape(100, 5_000, 10, 2)), 500),
    (Case("range", Shape(100, 5_000, 10, 3)), 500),
    (Case("cooperative-sticky", Shape(100, 5_000, 10, 1)), 50),
    (Case("cooperative-sticky", Shape(100, 5_000, 10, 2, owners="all but one")), 50),
    # Unequal subscriptions have a builder of their own. With 1 replica one call of it would take seconds.
    (Case("cooperative-sticky", Shape(100, 5_000, 10, 2, "five buckets")), 50),
    (Case("cooperative-sticky", Shape(100, 5_000, 10, 2, "five buckets", "all but one")), 50),
)
"""What a new JVM does before anything is timed, and how many times: thirty calls on a small group are over before
its compiler is."""


@dataclass(frozen=True, slots=True)
class JavaTaken:
    """What Java's side of a case took."""

    # Median of `assign(cluster, subscriptions)`, or the cap if it took longer; None if it raised.
    seconds: float | None
    capped: bool = False
    raised: str = ""
    quality: Quality | None = None
    assignment: Assignment | None = None


TOO_LONG = JavaTaken(CAP_S, capped=True)


class WarmJava:
    """A JVM that is warm, and after one that had to be killed another that is too. For a `with` block."""

    def __init__(
        self,
        *,
        effort: Effort,
        warm_up: bool = True,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._effort = effort
        self._warm_up = warm_up
        self._said = said
        self._peer: JavaPeer | None = None
        self.java_version = ""
        self.kafka_version = ""

    def __enter__(self) -> Self:
        peer = self._warm()
        self.java_version, self.kafka_version = peer.java_version, peer.kafka_version
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.__exit__()
            self._peer = None

    def measure(self, case: Case, group: Group) -> JavaTaken:
        """Time Java's strategy of the same name on the same group."""
        scenario = write_group(group)
        peer = self._warm()
        self._said(f"Java: {case}")
        try:
            return self._measured(peer, case.strategy, group, scenario)
        except PeerTimeoutError:
            self._lost()
            return TOO_LONG
        except PeerLostError as error:
            self._lost()
            return JavaTaken(None, raised=str(error).splitlines()[0])
        except JavaRaisedError as error:
            return JavaTaken(None, raised=str(error))

    def _measured(self, peer: JavaPeer, strategy: StrategyName, group: Group, scenario: dict[str, Any]) -> JavaTaken:
        partitions = readable(group)
        patience = CAP_S + 5 + partitions / READ_PER_S
        answer = peer.assign(scenario, strategy, timeout_s=patience)
        seconds = answer.seconds[0]
        if seconds > CAP_S:
            return TOO_LONG
        if seconds < LONG_S:
            warmup, rounds = self._effort.calls(seconds)
            answer = peer.assign(scenario, strategy, warmup=warmup, repeat=rounds, timeout_s=ANSWER_S)
            seconds = median(answer.seconds)
        if count(answer.assignment) == partitions:
            return JavaTaken(seconds, quality=Quality.of(group, answer.assignment), assignment=answer.assignment)
        # The cooperative one does not say who is to get what it withholds. Its eager twin decides the same and does.
        target = peer.assign(scenario, "sticky", timeout_s=patience)
        return JavaTaken(seconds, quality=Quality.of(group, target.assignment))

    def _warm(self) -> JavaPeer:
        if self._peer is None:
            self._said("starting and warming up Java")
            self._peer = JavaPeer(timeout_s=ANSWER_S, heap=HEAP).__enter__()
            for case, calls in WARM_CASES if self._warm_up else ():
                self._peer.assign(write_group(case.shape.group(case.plan)), case.strategy, repeat=calls)
        return self._peer

    def _lost(self) -> None:
        assert self._peer is not None
        self._peer.__exit__()
        self._peer = None
