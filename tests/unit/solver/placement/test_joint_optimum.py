"""Nested flows beside one integer program of replicas and leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import highspy
import numpy as np
import pytest

from rackassign.solver.placement import place_replicas
from tests.helpers.reference_placement import items_of, leads, nodes_of


class Joint:
    """Sets and leaders in one integer program: squares of loads first, then squares of leads."""

    def __init__(self, racks: Sequence[int], copies: Sequence[int]) -> None:
        self._racks, self._copies, self._count = racks, copies, len(racks)
        self._model = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0}.items():
            self._model.setOptionValue(option, value)
        self._in = [[self._binary() for _ in racks] for _ in copies]
        self._led = [[self._binary() for _ in racks] for _ in copies]
        self._loads = [[self._binary() for _ in copies] for _ in racks]
        self._leads = [[self._binary() for _ in copies] for _ in racks]

    def _binary(self) -> int:
        self._model.addVar(0.0, 1.0)
        column = self._model.getNumCol() - 1
        self._model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        return column

    def _row(self, low: float, high: float, columns: list[int], factors: list[float]) -> None:
        self._model.addRow(low, high, len(columns), np.asarray(columns, np.int32), np.asarray(factors, np.float64))

    def best(self) -> tuple[int, int]:
        racks = sorted(set(self._racks))
        for item, wanted in enumerate(self._copies):
            self._row(wanted, wanted, self._in[item], [1.0] * self._count)
            self._row(1, 1, self._led[item], [1.0] * self._count)
            sizes = [self._racks.count(rack) for rack in racks]
            most = next(t for t in range(1, wanted + 1) if sum(min(n, t) for n in sizes) >= wanted)
            for rack, size in zip(racks, sizes, strict=True):
                inside = [self._in[item][node] for node in range(self._count) if self._racks[node] == rack]
                self._row(min(size, most - 1), min(size, most), inside, [1.0] * len(inside))
            for node in range(self._count):
                self._row(-1, 0, [self._led[item][node], self._in[item][node]], [1.0, -1.0])
        places = range(len(self._copies))
        for node in range(self._count):
            for chosen, steps in ((self._in, self._loads), (self._led, self._leads)):
                columns = [chosen[item][node] for item in places] + steps[node]
                self._row(0, 0, columns, [1.0] * len(places) + [-1.0] * len(places))
        loads = self._minimised(self._loads)
        columns, factors = self._squares(self._loads)
        self._row(0, loads, columns, factors)
        return loads, self._minimised(self._leads)

    def _squares(self, steps: list[list[int]]) -> tuple[list[int], list[float]]:
        return (
            [column for columns in steps for column in columns],
            [2.0 * k + 1 for columns in steps for k in range(len(columns))],
        )

    def _minimised(self, steps: list[list[int]]) -> int:
        for column in range(self._model.getNumCol()):
            self._model.changeColCost(column, 0.0)
        for column, factor in zip(*self._squares(steps), strict=True):
            self._model.changeColCost(column, factor)
        self._model.run()
        assert self._model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return round(self._model.getInfo().objective_function_value)


JOINT = [
    ([0, 0, 0, 1, 1, 1, 2, 2, 2], [3] * 9),
    ([0, 0, 1, 1, 2, 2], [2] * 7),
    ([0, 0, 1, 1, 2, 2], [3] * 8),
    ([0, 0, 0, 1, 1, 2], [2] * 9),
    ([0, 0, 0, 1, 1, 2], [3] * 8),
    ([0, 0, 0, 0, 0, 1, 1, 1], [3] * 8),
    ([0, 0, 0, 0, 0, 1, 1, 1], [4] * 6),
    ([0, 0, 0, 0, 1, 1, 1, 1, 2], [2] * 10),
    ([0, 1, 2, 3], [1, 2, 3, 4, 1, 2]),
]


@pytest.mark.parametrize(("racks", "copies"), JOINT)
def test_nested_flows_lead_as_evenly_as_the_joint_optimum(racks: list[int], copies: list[int]) -> None:
    found = place_replicas(items_of(copies), nodes_of(racks))
    assert found.proven
    loads = Counter(node for own in found.nodes for node in own)
    mine = sum(n**2 for n in loads.values()), sum(n**2 for n in leads(found).values())
    assert mine == Joint(racks, copies).best()
