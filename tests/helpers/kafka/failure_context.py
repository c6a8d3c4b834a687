"""What to know of a test on brokers that has failed: its groups and why they rebalanced, last lines of logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from rackassign.admin.groups import GroupAdmin
from rackassign.monitoring import describe_group
from rackassign.testing import Cluster

Section = tuple[str, str]
"""A title and a text, as in a report of pytest."""

LINES = 15
_REBALANCES = 60
_COORDINATORS = ("(org.apache.kafka.coordinator.group.", "(kafka.coordinator.group.")
"""What lines of a group coordinator contain."""
_WHOLE = 10_000_000
_MOST_FILES = 12
_ENDS = {".err", ".out", ".log"}
_TIMEOUT_MS = 60_000


def failure_context(item: pytest.Item) -> list[Section]:
    """Return what is known of the clusters, groups and files of a test; nothing of it raises."""
    given: dict[str, Any] = getattr(item, "funcargs", {})
    clusters = {id(each): each for each in given.values() if isinstance(each, Cluster)}
    found: list[Section] = []
    for cluster in clusters.values():
        found += _guarded("groups of the test", partial(groups, cluster, _prefix(item)))
        for broker in cluster.brokers:
            found += _guarded(f"broker {broker.id}", partial(_log, cluster, broker.id, _prefix(item)))
    folder = given.get("tmp_path")
    if isinstance(folder, Path):
        found += _guarded("files", lambda: list(tails(folder)))
    return found


def _guarded(title: str, look: Callable[[], Iterable[Section]]) -> list[Section]:
    try:
        return list(look())
    except Exception as error:  # noqa: BLE001 - the failure of the test is what is to be shown
        return [(title, f"not available: {error!r}")]


def _log(cluster: Any, broker: int, prefix: str) -> list[Section]:
    runs = "runs" if broker in cluster.running else "does not run"
    rack = next(each.rack for each in cluster.brokers if each.id == broker)
    title = f"broker {broker} in rack {rack}, which {runs}"
    if not hasattr(cluster, "log_tail"):
        # Those in containers have their logs in the engine.
        return [(f"{title}: last lines", "see docker logs")]
    rebalances, others = of_groups(cluster.log_tail(broker, _WHOLE).splitlines(), prefix)
    found = [(f"{title}: last lines", "\n".join(others))]
    return [*found, (f"{title}: rebalances of the test's groups", "\n".join(rebalances))] if rebalances else found


def of_groups(lines: Iterable[str], prefix: str) -> tuple[list[str], list[str]]:
    """Return the last lines of the group coordinator about groups of a test, and the last of all others."""
    rebalances: list[str] = []
    others: list[str] = []
    for line in lines:
        if not any(mark in line for mark in _COORDINATORS):
            others.append(line)
        elif prefix in line:
            rebalances.append(line)
    return rebalances[-_REBALANCES:], others[-LINES:]


def _prefix(item: pytest.Item) -> str:
    """Return what names of `unique_name` begin with."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in item.name)[:80]


def groups(cluster: Cluster, prefix: str) -> list[Section]:
    """Return the groups of a test, with their members and what these have."""
    config = {**cluster.client_config(), "request_timeout_ms": _TIMEOUT_MS}
    with closing(KafkaAdminClient(**config)) as admin:
        names = sorted(each["group_id"] for each in admin.list_groups() if each["group_id"].startswith(prefix))
        return [(f"group {name}", _described(GroupAdmin(admin), name)) for name in names]


def _described(admin: GroupAdmin, name: str) -> str:
    found = describe_group(admin, name)
    lines = [f"{found.state}, {len(found.members)} members"]
    lines += [f"{member.client_id} {member.id}: {dict(member.assigned)}" for member in found.members]
    return "\n".join(lines)


def tails(folder: Path) -> Iterable[Section]:
    """Yield the last lines of what programs have written in a folder, of the files that were written last."""
    files = [file for file in folder.rglob("*") if file.suffix in _ENDS and file.is_file() and file.stat().st_size]
    for file in sorted(files, key=lambda file: file.stat().st_mtime)[-_MOST_FILES:]:
        lines = file.read_text("utf-8", "replace").splitlines()[-LINES:]
        yield f"{file.relative_to(folder)}: last lines", "\n".join(line[:500] for line in lines)
