"""Strategies: a group in, a plan out.

Rules of this room:

* A strategy is a pure function of the group and the options: the same members in another order, another process
  or under another hash seed get the same plan.
* Names become small ints at this door and strings again on the way out.
* Every partition of a subscribed topic that has metadata gets exactly one member, and every member an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rackassign.errors import ConfigError
from rackassign.model import Group, Plan, StrategyName
from rackassign.strategies.options import Options
from rackassign.strategies.range import plan_range
from rackassign.strategies.sticky import plan_cooperative, plan_sticky

Strategy = Callable[[Group, Options], Plan]

STRATEGIES: Mapping[StrategyName, Strategy] = {
    "range": plan_range,
    "sticky": plan_sticky,
    "cooperative-sticky": plan_cooperative,
}


def strategy(name: str) -> Strategy:
    """Return the strategy of that name; `ConfigError` lists those there are."""
    for known, decide in STRATEGIES.items():
        if name == known:
            return decide
    raise ConfigError(f"strategy must be one of {', '.join(STRATEGIES)}, got {name!r}")


__all__ = ["STRATEGIES", "Options", "Strategy", "plan_cooperative", "plan_range", "plan_sticky", "strategy"]
