"""`rackassign state describe` on real brokers: it shows what members themselves report."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rackassign.testing import Cluster
from rackassign.testing.harness import TIMEOUT_S, wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.stateful_group import SPREAD, Fleet

pytestmark = [pytest.mark.brokers, pytest.mark.local]


@pytest.mark.long
def test_it_shows_the_active_member_and_the_copies_of_each_partition(
    rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str], tmp_path: Path
) -> None:
    group = unique_name()
    three = Fleet(rack_cluster.bootstrap, group, make_topic(replicas=SPREAD), tmp_path, 1)
    with closing(three):
        for name in ("ax", "by", "cx"):
            three.start(name)
        wait_until(lambda: three.settled(1), "three members with their copies")
        three.write(600)
        wait_until(lambda: three.done() >= 600, "records being processed")
        # Partitions move to members once their copies are warm.
        three.come_to_rest(1, TIMEOUT_S)
        shown = json.loads(
            rackassign("state describe", rack_cluster.bootstrap, "--group", group, "--output", "json").stdout
        )
        table = rackassign("state describe", rack_cluster.bootstrap, "--group", group).stdout
        folders = [word for name in ("ax", "by", "cx") for word in ("--state-dir", str(tmp_path / name))]
        words = ("--group", group, *folders)
        sized = json.loads(rackassign("state describe", rack_cluster.bootstrap, *words, "--output", "json").stdout)
        sized_table = rackassign("state describe", rack_cluster.bootstrap, *words).stdout
        now = three.now()
        # Their files were neither opened nor locked meanwhile.
        three.write(100)
        wait_until(lambda: three.done() >= 700, "records being processed beside it")
        three.end()
    # Its members have left: the partitions are those of its committed offsets.
    stopped = rackassign("state describe", rack_cluster.bootstrap, "--group", group, "--output", "json", code=1)
    left = json.loads(stopped.stdout)
    assert (left["members"], [row["active"] for row in left["partitions"]]) == ([], [None] * len(SPREAD))
    assert [row["changelog"] for row in left["partitions"]] == [row["changelog"] for row in shown["partitions"]]
    assert len(shown["members"]) == 3
    active = sorted(len([row for row in shown["partitions"] if row["active"] == m["id"]]) for m in shown["members"])
    copies = sorted(
        len([one for row in shown["partitions"] for one in row["copies"] if one["member"] == m["id"]])
        for m in shown["members"]
    )
    assert (active, copies) == (
        sorted(len(runs) for runs, _ in now.values()),
        sorted(len(kept) for _, kept in now.values()),
    )
    for row in shown["partitions"]:
        (copy,) = row["copies"]
        assert copy["member"] != row["active"]
        assert copy["lag_at_most"] is None or copy["lag_at_most"] >= 0
    assert f"{group}: {len(SPREAD)} partitions on 3 members, {len(SPREAD)} copies" in table
    assert "local files" not in table
    for row in shown["partitions"]:
        assert row["changelog"] == f"{group}-{row['topic']}-changelog"
        # Of fifty records each, of three words, a commit has each word once.
        assert 100 < row["changelog_bytes"] < 1_000_000
        assert row["local_files"] == []
    assert sized["other_local_files"] == []
    where = {m["id"]: m["tags"]["zone"] + m["tags"]["cluster"] for m in sized["members"]}
    for row in sized["partitions"]:
        holders = sorted(str(tmp_path / where[each]) for each in (row["active"], row["copies"][0]["member"]))
        files = [file for file in row["local_files"] if file["state_dir"] in holders]
        assert sorted(file["state_dir"] for file in files) == holders
        assert all(file["bytes"] > 1_000 for file in files)
    assert "local files" in sized_table
    assert f"{tmp_path / 'ax'}: " in sized_table
    missing = rackassign("state describe", rack_cluster.bootstrap, "--group", f"{group}-", code=2)
    assert "there is no consumer group" in missing.stderr
