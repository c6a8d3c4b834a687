"""Strategies: compute a plan for a group.

Rules of this package:

* A strategy is a pure function of the group and the options: the same members in another order, another process
  or under another hash seed get the same plan.
* `indexed_group` converts names to small ints for the solver, and back.
* A strategy is imported with its first plan (`loading`): only a group's leader needs numpy and the solver, and for
  `range` neither does.
* Every partition of a subscribed topic that has metadata gets exactly one member, and every member an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rackassign.errors import ConfigError
from rackassign.model import Group, Plan, StrategyName
from rackassign.strategies.loading import plan_cooperative, plan_range, plan_sticky
from rackassign.strategies.options import Options

Strategy = Callable[[Group, Options], Plan]

STRATEGIES: Mapping[StrategyName, Strategy] = {
    "range": plan_range,
    "sticky": plan_sticky,
    "cooperative-sticky": plan_cooperative,
}


def strategy(name: str) -> Strategy:
    """Return the strategy with this name; `ConfigError` lists the available ones."""
    for known, decide in STRATEGIES.items():
        if name == known:
            return decide
    raise ConfigError(f"strategy must be one of {', '.join(STRATEGIES)}, got {name!r}")


__all__ = ["STRATEGIES", "Options", "Strategy", "plan_cooperative", "plan_range", "plan_sticky", "strategy"]
