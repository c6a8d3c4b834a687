"""Who leads and who is next, with every copy left where it is."""

from __future__ import annotations

from rackassign.optimum.linear import SolverError, Work
from rackassign.optimum.spread.fallback import greedy_leads
from rackassign.optimum.spread.order import MOST_CELLS, Order, ordered
from rackassign.optimum.spread.problem import DEFAULT_WORK, Goals, Items, Limits, Nodes, Problem, Spreading

_NOBODY = -1


def lead(
    items: Items,
    nodes: Nodes,
    limits: Limits | None = None,
    goals: Goals | None = None,
    *,
    keep: bool = False,
    work: int = DEFAULT_WORK,
) -> Spreading:
    """Choose who leads each item and who is next, among the nodes that hold it.

    Leaders are as even as they can be, by node, rack and group as goals say; then as few change as possible; then who
    is next is even, and as few items change as possible. An item keeps its order where neither of the two changes,
    and where none of its nodes may lead.

    Args:
        items: What has copies; how many it wants plays no part.
        nodes: Where they are.
        limits: In which racks leaders must be; no other limit plays a part.
        goals: Whose leads are evened.
        keep: Whether who is next is left alone where the leader does not change.
        work: Budget, in iterations of the solver.
    """
    problem = Problem(items, nodes, limits or Limits(), goals or Goals())
    racks = problem.limits.leader_racks
    many = (int(items.group.max(initial=0)) + 1) * len(nodes.rack) > MOST_CELLS
    try:
        if many and any(items.keep) and problem.goals.leaders == "broker":
            # Few are to be chosen, and none for its group's sake.
            first, second = greedy_leads(problem, items.held)
            found = Order([], first, second, (0.0, 0), "there are too many groups to prove the leaders of each even")
        else:
            found = ordered(problem, [list(held) for held in items.held], Work(work), grouped=True, keep=keep)
    except SolverError as error:
        first, second = greedy_leads(problem, items.held)
        found = Order([], first, second, (0.0, 0), f"leaders: {error}")
    doubts = tuple(doubt for doubt in (found.doubt, outside(found.first, nodes, racks)) if doubt)
    lists = tuple(
        _in_order(held, leader, next_, nodes)
        for held, leader, next_ in zip(items.held, found.first, found.second, strict=True)
    )
    return Spreading(lists, 0, 0, proven=not doubts, doubts=doubts, leads_proven=not doubts)


def outside(leading: list[int], nodes: Nodes, racks: frozenset[int] | None) -> str:
    """Tell how many items are led from outside the racks where leaders must be; nothing if none is."""
    count = 0 if racks is None else sum(node >= 0 and int(nodes.rack[node]) not in racks for node in leading)
    return f"{count} have nobody to lead them in the racks where leaders must be" if count else ""


def _in_order(held: tuple[int, ...], leader: int, second: int, nodes: Nodes) -> tuple[int, ...]:
    front = tuple(node for node in (leader, second) if node != _NOBODY)
    if front == held[: len(front)]:
        return held
    rest = (node for node in held if node not in front)
    return (*front, *sorted(rest, key=lambda node: not nodes.eligible[node]))
