"""Weighted groups as mixed integer programs: the lowest heaviest load, and the least weight that has to move."""

from __future__ import annotations

import math
from collections.abc import Mapping

import highspy
import numpy as np

from rackassign.model import Group, Partitions, TopicPartition
from tests.helpers.highs import new_highs
from tests.helpers.reference_solver import owners, spelled

_FEASIBLE = 2

_SETTINGS = {"mip_rel_gap": 1e-3, "mip_abs_gap": 1e-9, "mip_feasibility_tolerance": 1e-9, "time_limit": 30.0}


def loads_of(group: Group, target: Mapping[str, Partitions]) -> dict[str, float]:
    """Return the sum of the weights of each member's partitions."""
    loads = dict.fromkeys(target, 0.0)
    for member, topic, p in spelled(target):
        loads[member] += group.weights[topic][p]
    return loads


def moved_weight(group: Group, target: Mapping[str, Partitions]) -> float:
    """Return the weight of the partitions that leave their owner."""
    reader = {TopicPartition(topic, p): member for member, topic, p in spelled(target)}
    return sum(group.weights[tp.topic][tp.partition] for tp, owner in owners(group).items() if reader[tp] != owner)


def lowest_heaviest_load(group: Group) -> float:
    """Return the heaviest load of the assignment in which it is lowest."""
    return _solved(group, None)


def least_moved_weight(group: Group, limit: float) -> float:
    """Return the least weight that moves if all loads are to be within this limit; infinite if none are."""
    return _solved(group, limit)


def _solved(group: Group, limit: float | None) -> float:
    """Solve the program: a column for each partition and reader, and one for the heaviest load."""
    members = sorted(group.members, key=lambda member: member.id)
    current = owners(group)
    costs: list[float] = []
    starts, rows, values = [0], list[int](), list[float]()
    partitions = [
        TopicPartition(topic, p) for topic, known in sorted(group.topology.topics.items()) for p in range(len(known))
    ]
    partitions = [tp for tp in partitions if any(tp.topic in member.topics for member in members)]
    for i, tp in enumerate(partitions):
        weight = group.weights[tp.topic][tp.partition]
        for j, member in enumerate(members):
            if tp.topic in member.topics:
                moves = tp in current and current[tp] != member.id
                costs.append(weight if limit is not None and moves else 0.0)
                rows += [i, len(partitions) + j]
                values += [1.0, weight]
                starts.append(len(rows))
    wide = len(costs)
    if limit is None:
        costs.append(1.0)
        rows += [len(partitions) + j for j in range(len(members))]
        values += [-1.0] * len(members)
        starts.append(len(rows))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(costs), len(partitions) + len(members)
    model.col_cost_ = np.asarray(costs)
    model.col_lower_ = np.zeros(len(costs))
    model.col_upper_ = np.append(np.ones(wide), np.full(len(costs) - wide, math.inf))
    model.row_lower_ = np.append(np.ones(len(partitions)), np.full(len(members), -math.inf))
    model.row_upper_ = np.append(np.ones(len(partitions)), np.full(len(members), limit or 0.0))
    kinds = [highspy.HighsVarType.kInteger] * wide + [highspy.HighsVarType.kContinuous] * (len(costs) - wide)
    model.integrality_ = kinds
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.asarray(starts, np.int32)
    model.a_matrix_.index_ = np.asarray(rows, np.int32)
    model.a_matrix_.value_ = np.asarray(values)
    highs = new_highs(_SETTINGS)
    highs.passModel(model)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return math.inf
    assert highs.getInfo().primal_solution_status == _FEASIBLE
    return float(highs.getInfo().objective_function_value)
