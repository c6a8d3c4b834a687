"""The strategies, whose modules are imported when the first plan is computed.

This is the one place where the core imports late. All strategies but `range` need numpy, and standbys need HiGHS, which
take longer to import than kafka-python and more memory than an idle consumer has left. But of all members of a group
only the leader plans. So everything outside of `strategies/` calls a strategy through this module, and the modules
behind it import at their top, as usual. What a member needs before it plans (options, names, the types of results)
imports neither.

A client calls its assignors where it also sends heartbeats, so `load` is for a thread beside that: of an attached
consumer once it is elected leader, of any other at its first join (`load_on_thread`). Nothing but imports is slow the
first time: the first plan behind them takes as long as the second. Threads need no lock here: Python imports a module
once, and other threads wait for that at the lock of the module. A module whose import fails is imported again with the
next plan.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    # The package of the standbys exports `assign_standbys` from here.
    from rackassign.model import Group, Plan, TopicPartition
    from rackassign.strategies.options import Options
    from rackassign.strategies.standby.options import StandbyOptions
    from rackassign.strategies.standby.plan import StandbyPlan
    from rackassign.strategies.standby.warmup import Copies

_RANGE, _STICKY, _STANDBY, _COPARTITION, _INDEXED = (
    f"{__package__}.{name}" for name in ("range", "sticky", "standby.assign", "copartition", "indexed_group")
)

Planned: TypeAlias = Literal["range", "sticky", "standbys"]

_PLANNED: Mapping[Planned, str] = {"range": _RANGE, "sticky": _STICKY, "standbys": _STANDBY}


def load(planned: Planned) -> None:
    """Import what a plan needs: some tenths of a second the first time, for `range` some milliseconds.

    Args:
        planned: What is planned: `range`, or by a `sticky` strategy, or with `standbys`.

    Raises:
        Exception: Whatever the import of numpy raises if it is broken.
    """
    import_module(_PLANNED[planned])


def load_on_thread(planned: Planned) -> None:
    """Begin to import what a plan needs, on a thread; nothing is done if another one has begun.

    Errors are left to the first plan, which imports the same. The thread is no daemon: a process that ends waits for
    the import, because numpy cannot be interrupted while it is initialized.

    Args:
        planned: As for `load`.
    """
    if _PLANNED[planned] in sys.modules:
        return
    # A process that ends, or has too many threads, cannot start one.
    with suppress(RuntimeError):
        Thread(target=_load_quietly, args=(planned,), name="rackassign-load").start()


def _load_quietly(planned: Planned) -> None:
    with suppress(Exception):
        load(planned)


def plan_range(group: Group, options: Options | None = None) -> Plan:
    """Assign like Java's `RangeAssignor`: `rackassign.strategies.range.plan_range`."""
    plan: Plan = _imported(_RANGE).plan_range(group, options)
    return plan


def plan_sticky(group: Group, options: Options | None = None) -> Plan:
    """Assign optimally for the eager protocol: `rackassign.strategies.sticky.plan_sticky`."""
    plan: Plan = _imported(_STICKY).plan_sticky(group, options)
    return plan


def plan_cooperative(group: Group, options: Options | None = None) -> Plan:
    """Assign optimally for the cooperative protocol: `rackassign.strategies.sticky.plan_cooperative`."""
    plan: Plan = _imported(_STICKY).plan_cooperative(group, options)
    return plan


def copartition_exceptions(group: Group) -> list[tuple[tuple[str, ...], str]]:
    """Return sets of topics that are not kept together, or not as a whole: `rackassign.strategies.copartition`."""
    return list(_imported(_COPARTITION).exceptions(group)) if group.copartition else []


def valid_owners(group: Group) -> dict[TopicPartition, str]:
    """Return the valid owner of each partition that has one: `rackassign.strategies.ownership`."""
    indexed = _imported(_INDEXED).IndexedGroup.of(group, "any-replica")
    owners: dict[TopicPartition, str] = indexed.members_by_partition(indexed.claims.owner.tolist())
    return owners


def assign_standbys(
    group: Group,
    copies: Copies,
    options: StandbyOptions | None = None,
    active: Options | None = None,
) -> StandbyPlan:
    """Assign active members and standbys: `rackassign.strategies.standby.assign.assign_standbys`."""
    plan: StandbyPlan = _imported(_STANDBY).assign_standbys(group, copies, options, active)
    return plan


def assign_eager_standbys(
    group: Group,
    copies: Copies,
    options: StandbyOptions | None = None,
    active: Options | None = None,
) -> StandbyPlan:
    """Assign both for the eager protocol: `rackassign.strategies.standby.assign.assign_eager_standbys`."""
    plan: StandbyPlan = _imported(_STANDBY).assign_eager_standbys(group, copies, options, active)
    return plan


def _imported(module: str) -> Any:  # noqa: ANN401 - a module
    return import_module(module)
