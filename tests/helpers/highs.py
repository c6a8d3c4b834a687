"""HiGHS, with which tests compare results of the solver."""

from __future__ import annotations

from collections.abc import Mapping
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
