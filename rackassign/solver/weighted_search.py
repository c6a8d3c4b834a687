"""Local search for even loads: the fullest member gives partitions to another member, or swaps with it.

Rules: this module is for assignments that are computed without regard to owners; what moves least is in
`rackassign.solver.weighted_relief`.
"""

from __future__ import annotations

import numpy as np

from rackassign.solver.types import Ints
from rackassign.solver.weighted_instance import ROUNDING, WeightedInstance

_ROUNDS_PER_MEMBER = 8

_MOST_COMPARED = 300
"""Number of partitions of each of two members that are compared for an exchange."""

_EVEN_ENOUGH = 0.001
"""Share of its level by which a load may be above it without being relieved, or `_OF_TOLERANCE` if that is less."""

_OF_TOLERANCE = 0.02
"""Share of the tolerance. An assignment that is kept may be above the best one by fifty times as much."""

_ARCS_OF_A_ROUND = 400
"""How many arcs of a flow can be looked at in the time that a round takes without its exchanges."""

_ARCS_OF_AN_EXCHANGE = 300
"""How many, in the time that the exchanges of one topic class take, however few they are."""

_ARCS_OF_A_PARTITION = 12
"""How many, in the time that it takes to choose whether a partition is compared."""


def with_exchanges(ground: WeightedInstance, reader: Ints) -> Ints:
    """Return the assignment with the fullest members relieved as far as single gifts and swaps can."""
    return _LocalSearch(ground, reader).run()


class _LocalSearch:
    """Gifts and swaps between members, each of which reduces the larger of two loads."""

    def __init__(self, ground: WeightedInstance, reader: Ints) -> None:
        problem, weight, level = ground.problem, ground.weight, ground.level
        self._topic_class, self._weight, self._level, self._readers = problem.topic_class, weight, level, ground.readers
        self._cost, self._near, self._rack = problem.cost, problem.cost_row, problem.rack
        self._subscription_class, self._reads = problem.subscription_class, ground.reads
        self._reader: Ints = reader.copy()
        self._has: list[list[int]] = [[] for _ in level]
        for partition, member in enumerate(reader.tolist()):
            self._has[member].append(partition)
        self._over = ground.loads(reader) - level
        self._even_enough = level * min(_EVEN_ENOUGH, ground.tolerance * _OF_TOLERANCE)
        self._work = ground.work

    def run(self) -> Ints:
        """Relieve the fullest member, until loads are even, none can be relieved, or the limit of rounds is reached."""
        stuck = np.zeros(len(self._level), bool)
        for _ in range(_ROUNDS_PER_MEMBER * len(stuck)):
            if stuck.all() or (self._over <= self._even_enough).all() or self._work.end():
                break
            self._work.spend_part(_ARCS_OF_A_ROUND + len(stuck) // 16)
            fullest = int(np.argmax(np.where(stuck, -np.inf, self._over)))
            found = self._best(fullest)
            if found is None:
                stuck[fullest] = True
                continue
            give, take, other = found
            self._move(give, fullest, other)
            if take is not None:
                self._move(take, other, fullest)
            stuck[[fullest, other]] = False
        return self._reader

    def _move(self, partition: int, giver: int, taker: int) -> None:
        self._has[giver].remove(partition)
        self._has[taker].append(partition)
        self._over[giver] -= self._weight[partition]
        self._over[taker] += self._weight[partition]
        self._reader[partition] = taker

    def _best(self, giver: int) -> tuple[int, int | None, int] | None:
        """Return what to give, what to take for it (if anything) and the other member; avoid a higher cost."""
        best: tuple[tuple[bool, float, int, int], tuple[int, int | None, int]] | None = None
        topic_classes: dict[int, list[int]] = {}
        for partition in self._has[giver]:
            topic_classes.setdefault(int(self._topic_class[partition]), []).append(partition)
        for topic_class, gifts in topic_classes.items():
            readers = self._readers[topic_class]
            other = int(readers[np.argmin(self._over[readers])])
            difference = float(self._over[giver] - self._over[other])
            # Two loads that differ only by rounding are equal.
            if difference <= ROUNDING * float(self._level.max()):
                continue
            for give, take, moved in self._exchanges(gifts, other, giver, difference):
                dearer = self._dearer(give, giver, other) + (0 if take is None else self._dearer(take, other, giver))
                score = (dearer > 0, abs(difference / 2 - moved), give, -1 if take is None else take)
                if best is None or score < best[0]:
                    best = score, (give, take, other)
        return None if best is None else best[1]

    def _exchanges(
        self, gifts: list[int], other: int, giver: int, difference: float
    ) -> list[tuple[int, int | None, float]]:
        """Return exchanges that move more than nothing and less than the whole difference."""
        self._work.spend_part(_ARCS_OF_AN_EXCHANGE + _ARCS_OF_A_PARTITION * (len(gifts) + len(self._has[other])))
        gifts = self._sample(gifts)
        subscription_class = int(self._subscription_class[giver])
        back = self._sample([q for q in self._has[other] if self._reads[int(self._topic_class[q]), subscription_class]])
        self._work.spend_part(len(gifts) * len(back) // 6)
        taken: list[int | None] = [None, *back]
        given = self._weight[gifts][:, None] - np.append(0.0, self._weight[back])[None, :]
        fits = (given > difference * ROUNDING) & (given < difference * (1 - ROUNDING))
        rows, columns = np.nonzero(fits)
        # The best few are sufficient: one of them is taken.
        nearest = np.argsort(np.abs(given[rows, columns] - difference / 2), kind="stable")[:4]
        return [(gifts[rows[i]], taken[columns[i]], float(given[rows[i], columns[i]])) for i in nearest.tolist()]

    def _sample(self, partitions: list[int]) -> list[int]:
        """Return all of them, or if they are many, some of every weight."""
        if len(partitions) <= _MOST_COMPARED:
            return partitions
        ordered = sorted(partitions, key=lambda partition: (self._weight[partition], partition))
        return [ordered[i * len(ordered) // _MOST_COMPARED] for i in range(_MOST_COMPARED)]

    def _dearer(self, partition: int, giver: int, taker: int) -> int:
        row = self._cost[self._near[partition]]
        return int(row[self._rack[taker]] - row[self._rack[giver]])
