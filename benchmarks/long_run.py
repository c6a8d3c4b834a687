"""Quality over hundreds of changes, each planned from the result of the last: `python -m benchmarks.long_run`.

A sticky assignor starts from its earlier result. If it does not restore what a change has made cross-rack, locality
falls a little with each change, for the lifetime of the group.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks.group_churn import Churn, Step, keep_together
from benchmarks.leaders import Java, KafkaPython, Leader, NoAnswerError, Ours
from benchmarks.quality import Quality, count, readable, unevenness
from benchmarks.tables import Sheet, show, write_markdown
from rackassign.model import BalanceMode, Group, Member, Partitions
from rackassign.strategies import Options, plan_cooperative
from tests.helpers.java.assignor_peer import NoJdkError

STEPS = 500
SEED = 2026
MOST_REBALANCES = 10

OPTIONS: tuple[tuple[BalanceMode, bool], ...] = (("topic", False), ("total", True), ("topic", True))
"""Options that the other assignors lack: what is balanced, and whether there are co-partitioned topics."""

HEADINGS = (
    "assignor",
    "cross beyond the optimum: mean",
    "worst",
    "first fifth",
    "last fifth",
    "moves",
    "needed",
    "less even, steps",
    "rebalances: mean",
    "most",
    "not settled",
    "unowned",
    "no answer",
)


@dataclass(frozen=True, slots=True)
class Settled:
    """How a step ended.

    Args:
        what: Happened.
        before: The group at the start of the step, with what its members owned then.
        after: What they own now.
        quality: Of that; moves are counted each time a partition leaves an owner.
        best: The optimum of this step, for members that own what these did.
        rebalances: It took.
        settled: Whether there was an end to them.
        unowned: Partitions that nobody has after it.
        less_even: Whether what they own now is less even than it could be.
        answered: Whether the assignor always gave an answer.
    """

    what: str
    before: Group
    after: Mapping[str, Partitions]
    quality: Quality
    best: Quality
    rebalances: int
    settled: bool
    unowned: int
    less_even: bool
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Decay:
    """All steps of one assignor, summed up.

    Args:
        name: Of the assignor.
        mean: Partitions read across racks beyond the optimum of the step.
        worst: The same, in the worst step.
        early: Mean over the first fifth of the steps.
        late: Mean over the last.
        moves: Partitions that left an owner, over all steps.
        needed: What the optimum of each step needs, for members that own what these did.
        uneven: Steps after which loads were less even than they could be.
        rebalances: Mean of a step.
        most: Rebalances in the step that took most.
        unsettled: Steps that had not ended after `MOST_REBALANCES`.
        unowned: Most partitions that nobody had after a step.
        unanswered: Steps in which the assignor gave no answer.
    """

    name: str
    mean: float
    worst: int
    early: float
    late: float
    moves: int
    needed: int
    uneven: int
    rebalances: float
    most: int
    unsettled: int
    unowned: int
    unanswered: int

    def row(self) -> tuple[str, ...]:
        """Spell it out as the table shows it."""
        return tuple(f"{value:.2f}" if isinstance(value, float) else str(value) for value in asdict(self).values())


def lived_through(leader: Leader, steps: Iterable[Step], options: Options | None = None) -> list[Settled]:
    """Let a leader settle one change after the other, each from where the last one ended.

    Args:
        leader: Decides for the group.
        steps: What happens.
        options: Of the optimum that each step is held against; the defaults if omitted.
    """
    done: list[Settled] = []
    owned: Mapping[str, Partitions] = {}
    generation = 0
    for step in steps:
        settled = settle(leader, step, owned, generation, options or Options())
        generation += settled.rebalances
        owned = settled.after
        done.append(settled)
    return done


def settle(leader: Leader, step: Step, owned: Mapping[str, Partitions], generation: int, options: Options) -> Settled:
    """Rebalance until nobody has to give anything up any more."""
    before = now = owning(step.group, owned, generation)
    moved = rounds = 0
    settled = False
    while not settled and rounds < MOST_REBALANCES:
        try:
            given = leader.assign(now)
        except NoAnswerError:
            break
        rounds += 1
        given_up = Quality.of(now, given).moves
        moved += given_up
        # A cooperative member that must give something up joins again when it has; an eager one has it all anew.
        settled = given_up == 0 or not leader.cooperative
        now = owning(step.group, given, generation + rounds)
    after = {member.id: member.owned for member in now.members}
    plan = plan_cooperative(before, options)
    even, best_even = (unevenness(before, given, options.balance) for given in (after, plan.target))
    return Settled(
        what=step.what,
        before=before,
        after=after,
        quality=replace(Quality.of(before, after), moves=moved),
        best=Quality.of(before, plan.target),
        rebalances=rounds,
        settled=settled,
        unowned=readable(before) - count(after),
        less_even=even > best_even,
        answered=settled or rounds == MOST_REBALANCES,
    )


def owning(group: Group, owned: Mapping[str, Partitions], generation: int) -> Group:
    """Return the group as its members join; those that were not there before own nothing and know no generation."""

    def joining(member: Member) -> Member:
        if member.id not in owned:
            return member
        return replace(member, owned=owned[member.id], generation=generation)

    return replace(group, members=tuple(joining(member) for member in group.members))


def summed_up(name: str, done: Sequence[Settled]) -> Decay:
    """Sum up all steps but the start, which nobody had to be sticky in."""
    steps = done[1:]
    beyond = [step.quality.cross - step.best.cross for step in steps]
    fifth = max(1, len(steps) // 5)
    return Decay(
        name=name,
        mean=sum(beyond) / len(beyond),
        worst=max(beyond),
        early=sum(beyond[:fifth]) / fifth,
        late=sum(beyond[-fifth:]) / fifth,
        moves=sum(step.quality.moves for step in steps),
        needed=sum(step.best.moves for step in steps),
        uneven=sum(step.less_even for step in steps),
        rebalances=sum(step.rebalances for step in steps) / len(steps),
        most=max(step.rebalances for step in steps),
        unsettled=sum(not step.settled and step.answered for step in steps),
        unowned=max(step.unowned for step in steps),
        unanswered=sum(not step.answered for step in steps),
    )


def _with_options(balance: BalanceMode, *, together: bool) -> Ours:
    kind = ', balance="topic"' if balance == "topic" else ""
    return Ours(Options(balance=balance), kind + (", co-partitioned" if together else ""))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="changes (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of all that happens (%(default)s)")
    parser.add_argument("--no-java", action="store_true", help="without Java's assignor")
    parser.add_argument("--json", metavar="FILE", type=Path, help="for machines")
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="the document to write the tables into, between its marks"
    )
    options = parser.parse_args()
    sheets: list[Sheet] = []
    result: dict[str, list[dict[str, object]]] = {}
    progress = Console(stderr=True)
    with ExitStack() as held, progress.status("") as status:
        leaders: list[Leader] = [Ours(), *KafkaPython.both()]
        missing = ""
        if not options.no_java:
            try:
                leaders.append(held.enter_context(Java()))
            except NoJdkError as error:
                missing = f"; no Java: {error}"
        for mixed in (False, True):
            kind = "mixed subscriptions" if mixed else "equal subscriptions"
            rows: list[Decay] = []
            for leader in leaders:
                status.update(f"{kind}: {leader.name}")
                history = Churn(options.seed, mixed=mixed).steps(options.steps)
                rows.append(summed_up(leader.name, lived_through(leader, history)))
            # Mixed subscriptions have parts of the co-partitioned topics, which are not kept together then.
            for balance, together in [option for option in OPTIONS if not (mixed and option[1])]:
                ours = _with_options(balance, together=together)
                status.update(f"{kind}: {ours.name}")
                history = Churn(options.seed, mixed=mixed).steps(options.steps)
                history = keep_together(history) if together else history
                rows.append(summed_up(ours.name, lived_through(ours, history, Options(balance=balance))))
            result[kind] = [asdict(row) for row in rows]
            sheets.append(Sheet(f"{options.steps} changes, {kind}{missing}", HEADINGS, [row.row() for row in rows]))
    show(sheets)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if options.markdown is not None:
        write_markdown(options.markdown, "decay", sheets)


if __name__ == "__main__":
    main()
