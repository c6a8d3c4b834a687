"""HiGHS, with which tests compare results of the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import highspy
import numpy as np

from rackassign.solver.network_flow import Ints, Network

_SETTINGS: dict[str, Any] = {
    # First, since any other call may write.
    "output_flag": False,
    # One thread and one order of work: the same result everywhere.
    "threads": 1,
    "parallel": "off",
    "random_seed": 0,
}


def new_highs(options: Mapping[str, Any]) -> highspy.Highs:
    """Return a solver with these options, which writes nothing anywhere."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {**_SETTINGS, **options}.items():
        assert highs.setOptionValue(option, value) != highspy.HighsStatus.kError, option
    return highs


def lowest_cost(network: Network, cost: Ints) -> int:
    """Return the lowest cost of a flow, by the simplex method."""
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(network.low)
    model.col_cost_ = cost.astype(np.float64)
    model.col_lower_, model.col_upper_ = network.lower.astype(np.float64), network.upper.astype(np.float64)
    model.row_lower_, model.row_upper_ = network.low.astype(np.float64), network.high.astype(np.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * len(cost) + 1, 2, dtype=np.int32)
    model.a_matrix_.index_ = np.stack([network.tail, network.head], axis=1).ravel().astype(np.int32)
    model.a_matrix_.value_ = np.tile(np.asarray([1.0, -1.0]), len(cost))
    highs = new_highs({"solver": "simplex"})
    highs.passModel(model)
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(highs.getInfo().objective_function_value)


def cheapest_choice(costs: Sequence[Mapping[int, int]], low: Sequence[int], high: Sequence[int]) -> int | None:
    """Return the lowest sum of costs if each item chooses one of its nodes, as an integer program; None if none is."""
    arcs = [(item, node, cost) for item, of in enumerate(costs) for node, cost in of.items()]
    if not arcs:
        return 0
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(arcs), len(costs) + len(low)
    model.col_cost_ = np.asarray([cost for *_, cost in arcs], np.float64)
    model.col_lower_, model.col_upper_ = np.zeros(len(arcs)), np.ones(len(arcs))
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(arcs)
    model.row_lower_ = np.asarray([*[1] * len(costs), *low], np.float64)
    model.row_upper_ = np.asarray([*[1] * len(costs), *high], np.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.arange(0, 2 * len(arcs) + 1, 2, dtype=np.int32)
    model.a_matrix_.index_ = np.asarray([(item, len(costs) + node) for item, node, _ in arcs], np.int32).ravel()
    model.a_matrix_.value_ = np.ones(2 * len(arcs))
    highs = new_highs({"mip_rel_gap": 0.0, "mip_abs_gap": 1e-9})
    highs.passModel(model)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return round(highs.getInfo().objective_function_value)
