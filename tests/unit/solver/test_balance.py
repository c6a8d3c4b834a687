"""Balance: the constraints describe all optimal loads, and the greedy flow within them keeps what owners have."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from rackassign.solver.balance import BalanceConstraints, compute_balance, stickiest_flow
from rackassign.solver.network_flow import Ints, SolveBudget

WORK = SolveBudget(10**9)


class Classes(NamedTuple):
    """Topic classes with their number of partitions, subscription classes with their size, and who reads what."""

    supply: list[int]
    sizes: list[int]
    pairs: list[tuple[int, int]]

    def arrays(self) -> tuple[Ints, Ints, Ints, Ints]:
        topic_class, subscription_class = zip(*self.pairs, strict=True)
        return tuple(np.asarray(row, np.int64) for row in (self.supply, self.sizes, topic_class, subscription_class))  # type: ignore[return-value]

    def flows(self) -> Iterator[tuple[int, ...]]:
        """Yield each way of assigning the partitions, as their number for each pair."""
        per_topic_class = [
            list(shares(number, sum(topic_class == f for topic_class, _ in self.pairs)))
            for f, number in enumerate(self.supply)
        ]
        for chosen in itertools.product(*per_topic_class):
            yield tuple(itertools.chain.from_iterable(chosen))

    def totals(self, flow: tuple[int, ...]) -> list[int]:
        out = [0] * len(self.sizes)
        for (_, subscription_class), number in zip(self.pairs, flow, strict=True):
            out[subscription_class] += number
        return out

    def loads(self, flow: tuple[int, ...]) -> list[int]:
        """Return the loads of all members, from large to small, if those of a class are as equal as possible."""
        loads: list[int] = []
        for total, size in zip(self.totals(flow), self.sizes, strict=True):
            loads += [total // size + (i < total % size) for i in range(size)]
        return sorted(loads, reverse=True)

    def within(self, flow: tuple[int, ...], balance: BalanceConstraints) -> bool:
        ceilings = zip(self.totals(flow), self.sizes, balance.max_load.tolist(), strict=True)
        return all(
            not number or allowed for number, allowed in zip(flow, balance.allowed.tolist(), strict=True)
        ) and all((most - 1) * size <= total <= most * size for total, size, most in ceilings)


def shares(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (number,)
        return
    for first in range(number + 1):
        for rest in shares(number - first, parts - 1):
            yield (first, *rest)


def classes(seed: int) -> Classes:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 5))]
    readers = [
        sorted(rng.sample(range(len(sizes)), rng.randrange(1, min(3, len(sizes)) + 1)))
        for _ in range(rng.randrange(1, 5))
    ]
    # Each subscription class reads something.
    for c in range(len(sizes)):
        if not any(c in of for of in readers):
            readers[0] = sorted({*readers[0], c})
    supply = [rng.randrange(1, 6) for _ in readers]
    return Classes(supply, sizes, [(f, c) for f, of in enumerate(readers) for c in of])


@pytest.mark.parametrize("seed", range(60))
def test_the_constraints_hold_for_all_optimal_assignments_and_no_others(seed: int) -> None:
    group = classes(seed)
    balance = compute_balance(*group.arrays(), WORK.spend)
    loads = {flow: group.loads(flow) for flow in group.flows()}
    best = min(loads.values())
    optimal = {flow for flow in loads if loads[flow] == best}
    assert {flow for flow in loads if group.within(flow, balance)} == optimal


def test_nothing_to_assign_has_no_constraints() -> None:
    none = np.zeros(0, np.int64)
    for sizes in (none, np.asarray([2, 1], np.int64)):
        balance = compute_balance(none, sizes, none, none, WORK.spend)
        assert (len(balance.max_load), len(balance.allowed)) == (len(sizes), 0)
    assert (balance.max_load <= 1).all()


@pytest.mark.parametrize("seed", range(60))
def test_the_greedy_flow_is_balanced_and_keeps_what_it_can(seed: int) -> None:
    group = classes(seed)
    supply, sizes, topic_class, subscription_class = group.arrays()
    balance = compute_balance(supply, sizes, topic_class, subscription_class, WORK.spend)
    rng = random.Random(seed)
    optimal = [flow for flow in group.flows() if group.within(flow, balance)]
    # Owners have what one of the optimal assignments gives them, or less, or anything.
    wish = rng.choice(optimal if seed % 3 else list(group.flows()))
    held = tuple(number if seed % 2 else rng.randint(0, number) for number in wish)
    pairs = topic_class, subscription_class
    flow = stickiest_flow(balance, pairs, supply, sizes, np.asarray(held, np.int64))
    assert tuple(flow.tolist()) in set(optimal)
    kept = sum(min(had, has) for had, has in zip(held, flow.tolist(), strict=True))
    most = max(sum(map(min, held, other)) for other in optimal)
    assert kept <= most
    if seed % 3:
        assert kept == most == sum(held)
