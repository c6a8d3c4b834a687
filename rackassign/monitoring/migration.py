"""Where a group is on its way from an eager strategy to `cooperative-sticky`, as far as that can be seen.

What is shown of a group is the strategy it has chosen and what members sent for that one, not what else they offer. A
member that holds on to what it has when it joins again offers no eager strategy, since beside one it would give
everything up before it joins. One that held nothing may be either.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.model import STRATEGY_NAMES
from rackassign.monitoring.groups import GroupDescription

_COOPERATIVE = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """Where a group is.

    Args:
        now: What is known.
        next: What to do next to get to `cooperative-sticky`; empty if there is nothing to do.
        unseen: What cannot be seen from outside; empty if all can.
    """

    now: str
    next: str = ""
    unseen: str = ""


def migration_step(group: GroupDescription) -> MigrationStep:
    """Say where a group is."""
    if group.kind == "consumer":
        return MigrationStep("the broker assigns, the strategies of the members rest")
    if not group.is_visible or not group.strategy:
        return MigrationStep("no strategy is shown now")
    if group.strategy not in {*STRATEGY_NAMES, "roundrobin"}:
        return MigrationStep(f"{group.strategy}, which is none of the standard strategies")
    if group.strategy != _COOPERATIVE:
        return MigrationStep(
            f"{group.strategy} is chosen, so not every member offers {_COOPERATIVE} before it",
            f"for {_COOPERATIVE}, restart the members one by one with both, {_COOPERATIVE} first; when it is chosen,"
            " once more with it alone",
            "which members offer both already",
        )
    others = [m.client_id for m in group.members if m.subscription is None or not m.subscription.owned]
    if not others:
        return MigrationStep(f"{_COOPERATIVE} alone on all members")
    alone = len(group.members) - len(others)
    return MigrationStep(
        f"{_COOPERATIVE} is chosen, so all offer it; {alone} of {len(group.members)} are seen to offer it alone",
        f"restart the others with {_COOPERATIVE} alone, unless that is done: {', '.join(others)}",
        "whether members that held nothing when they joined last offer an eager strategy too",
    )
