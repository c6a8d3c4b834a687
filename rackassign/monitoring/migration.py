"""The progress of a group's migration from an eager strategy to `cooperative-sticky`, as far as it is visible.

A group shows the strategy that it has chosen and what members sent for that one, not which others they offer. A member
that keeps its partitions when it rejoins offers no eager strategy, since with one it would revoke everything before it
joins. A member that owned nothing may offer either.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackassign.model import STRATEGY_NAMES
from rackassign.monitoring.groups import GroupDescription
from rackassign.util.text import join_first

_COOPERATIVE = "cooperative-sticky"

_NAMED = 5
"""Number of members that are named; others are counted."""


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """Progress of a group's migration.

    Args:
        now: The current state.
        next: The next step towards `cooperative-sticky`; empty if there is none.
        unseen: What is not visible from outside; empty if everything is.
    """

    now: str
    next: str = ""
    unseen: str = ""


def migration_step(group: GroupDescription) -> MigrationStep:
    """Return the progress of a group's migration."""
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
    others = sorted({m.client_id for m in group.members if m.subscription is None or not m.subscription.owned})
    if not others:
        return MigrationStep(f"{_COOPERATIVE} alone on all members")
    # A new group looks the same as one in the middle of its migration, so this is no step to recommend.
    return MigrationStep(
        f"all members offer {_COOPERATIVE}",
        unseen="whether these members offer an eager strategy too, as between the two restarts of a migration; they"
        f" show it when they rejoin with partitions: {join_first(others, _NAMED)}",
    )
