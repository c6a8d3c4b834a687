"""A sample of the mutants: the same ones for the same seed, and from each part the same number if it has as many."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from tools.mutants.equivalent import Key, key_of
from tools.mutants.operators import Mutant
from tools.mutants.parts import Part
from tools.mutants.runner import Baseline, Verdict

FOUND = frozenset({Verdict.KILLED, Verdict.TIMED_OUT})
MISSED = frozenset({Verdict.SURVIVED, Verdict.NOT_COVERED})


class Judge(Protocol):
    """What runs tests; `runner.Copy` is one."""

    def baseline(self, part: Part) -> Baseline:
        """Return what the tests of a part execute."""

    def judge(self, mutant: Mutant, baseline: Baseline, wall_s: float) -> Verdict:
        """Return what became of a mutant."""


def sample(mutants: Mapping[str, Sequence[Mutant]], seed: int) -> Iterator[tuple[str, Mutant]]:
    """Yield all mutants with their part: the parts take turns, and each has an order of its own at random."""
    chance = random.Random(seed)
    orders = [[(part, mutant) for mutant in chance.sample(of, len(of))] for part, of in sorted(mutants.items())]
    for turn in zip_longest(*orders):
        yield from (chosen for chosen in turn if chosen is not None)


@dataclass(frozen=True, slots=True)
class Results:
    """What became of the mutants of a run.

    Args:
        counts: Mutants by part and verdict; those that are listed as equivalent are not among them.
        listed: Missed mutants that are listed as equivalent, by part.
        missed: Missed mutants that are not listed.
    """

    counts: Counter[tuple[str, Verdict]] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)
    missed: list[tuple[Mutant, Verdict]] = field(default_factory=list)

    def lines(self, made: Mapping[str, int]) -> list[str]:
        """Return a table by part.

        Args:
            made: Number of all mutants of each part, tested or not.
        """
        heads = ("part", "mutants", "tested", "killed", "timed out", "survived", "not covered", "equivalent")
        rows: list[tuple[str, ...]] = [heads]
        for part, number in made.items():
            of = {verdict: self.counts[part, verdict] for verdict in Verdict}
            equal = self.listed[part]
            tested = sum(of[verdict] for verdict in FOUND | MISSED) + equal
            last = (of[Verdict.SURVIVED], of[Verdict.NOT_COVERED], equal)
            row = (number, tested, of[Verdict.KILLED], of[Verdict.TIMED_OUT], *last)
            rows.append((part, *map(str, row)))
        return ["".join(f"{cell:<14}" if i == 0 else f"{cell:>12}" for i, cell in enumerate(row)) for row in rows]


def run(
    chosen: Iterator[tuple[str, Mutant]],
    parts: Mapping[str, Part],
    copy: Judge,
    equivalent: Collection[Key],
    *,
    seconds: float,
    said: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
) -> Results:
    """Judge mutants until the time is over.

    Args:
        chosen: Mutants with their parts.
        parts: Parts by name.
        copy: What runs the tests.
        equivalent: Mutants that no test can find.
        seconds: Wall-clock seconds after which no mutant is begun; the tests without a mutant are not counted.
        said: Receives a line for each mutant that is missed, as soon as it is.
        now: Clock.

    Raises:
        BaselineError: Tests fail without a mutant.
    """
    end = now() + seconds
    results = Results()
    baselines: dict[str, Baseline] = {}
    for name, mutant in chosen:
        if name not in baselines:
            begun = now()
            baselines[name] = copy.baseline(parts[name])
            end += now() - begun
        left = end - now()
        if left <= 0:
            break
        verdict = copy.judge(mutant, baselines[name], left)
        if verdict in MISSED and key_of(mutant) in equivalent:
            results.listed[name] += 1
            continue
        results.counts[name, verdict] += 1
        if verdict in MISSED:
            results.missed.append((mutant, verdict))
            said(f"{verdict.value}: {mutant}")
    return results
