"""The sticky strategies: balance, then locality, then as few moves as possible, all of it exact.

`sticky` hands everything out at once: its members gave up what they had before they joined. `cooperative-sticky`
has members that go on with what they own, so a partition is handed to a new reader only when nobody else claims it;
until then it is *withheld*. Whoever holds it gives it up, joins again, and the next rebalance hands it over. That
one finds nothing to move: the target of the first is still an optimum, and it costs no move. So two are enough,
always.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from rackassign.model import Group, Partitions, Plan, StrategyName
from rackassign.optimum import solve
from rackassign.strategies.door import Door
from rackassign.strategies.explain import explain
from rackassign.strategies.options import Options


def plan_sticky(group: Group, options: Options | None = None) -> Plan:
    """Assign for the eager protocol: everybody has given up everything, and gets it all back but what must move.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: How; the default ones if left out.
    """
    return _plan(group, options or Options(), "sticky", cooperative=False)


def plan_cooperative(group: Group, options: Options | None = None) -> Plan:
    """Assign for the cooperative protocol (KIP-429): what somebody else still claims is withheld for now.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: How; the default ones if left out.
    """
    return _plan(group, options or Options(), "cooperative-sticky", cooperative=True)


def _plan(group: Group, options: Options, name: StrategyName, *, cooperative: bool) -> Plan:
    start = time.perf_counter()
    door = Door.of(group, options.locality)
    problem = door.problem()
    solution = solve(problem, max_skew=options.max_skew, work=options.work)
    reader = solution.reader
    target = door.spell_out(reader)
    assignment: Mapping[str, Partitions] = target
    withheld: Partitions = {}
    if cooperative:
        assignment, withheld = door.held_back(target, reader, door.claims.withheld(reader))
    plan = Plan(
        strategy=name,
        locality=options.locality,
        assignment=assignment,
        target=target,
        withheld=withheld,
        moved=door.claims.moved(reader),
        optimal=solution.proven,
        seconds=time.perf_counter() - start,
    )
    wider = replace(options, max_skew=options.max_skew + 1)

    def again(changed: Group, how: Options = options) -> Plan:
        return _plan(changed, how, name, cooperative=cooperative)

    return replace(plan, explainer=lambda: explain(group, plan, again, (wider.max_skew, partial(again, how=wider))))
