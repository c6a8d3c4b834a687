"""Strategies: a group in, a plan out.

Rules of this room:

* A strategy is a pure function of the group: the same members in another order, another process or under
  another hash seed get the same plan.
* Names become small ints at this door and strings again on the way out.
* Every partition of a subscribed topic that has metadata gets exactly one member, and every member an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rackassign.errors import ConfigError
from rackassign.model import Group, LocalityMode, Plan
from rackassign.strategies.range import plan_range

Strategy = Callable[[Group, LocalityMode], Plan]

STRATEGIES: Mapping[str, Strategy] = {"range": plan_range}
"""The strategies by the names they have on the wire."""


def strategy(name: str) -> Strategy:
    """Return the strategy of that name; `ConfigError` lists those there are."""
    found = STRATEGIES.get(name)
    if found is None:
        raise ConfigError(f"strategy must be one of {', '.join(STRATEGIES)}, got {name!r}")
    return found


__all__ = ["STRATEGIES", "Strategy", "plan_range", "strategy"]
