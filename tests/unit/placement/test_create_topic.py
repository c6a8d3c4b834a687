"""Creating topics without a cluster: what is kept in the state file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from rackassign.admin.alter import TopicValidation
from rackassign.cli.app import run
from rackassign.cli.commands import create_topic as command
from rackassign.model import Broker, TopicPartition
from rackassign.placement import create_topic, state_file
from rackassign.placement.state_file import PlacementState

ELSEWHERE = {TopicPartition("other", 0): (1, -1)}


class FakeController:
    """Plays the controller; another process keeps placeholders of its topic while this one is validated."""

    created: tuple[str, ...] = ()

    def __init__(self, _admin: object) -> None:
        pass

    def validate(
        self, _name: str, _configs: Mapping[str, str], _lists: Sequence[Sequence[int]] | None = None
    ) -> TopicValidation:
        state_file.write(Path("rackassign-state.json"), PlacementState({9: "z"}, ELSEWHERE, "c"))
        return TopicValidation(1)

    def create(self, name: str, _configs: Mapping[str, str], _lists: Sequence[Sequence[int]]) -> None:
        FakeController.created += (name,)


def test_placeholders_that_another_process_keeps_meanwhile_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(FakeController, "created", ())
    monkeypatch.setattr(command, "admin_client", lambda *_: nullcontext())
    monkeypatch.setattr(create_topic, "TopicAdmin", FakeController)
    monkeypatch.setattr(create_topic, "cluster_id", lambda _: "c")
    monkeypatch.setattr(create_topic, "list_brokers", lambda _: (Broker(1, "a"), Broker(2, "b")))
    monkeypatch.setattr(create_topic, "_observe_load", lambda *_: None)
    words = ["create-topic", "mine", "--bootstrap-server", "b:1", "--policy", "enabled", "--allow-placeholders"]
    assert run(words) == 0
    assert FakeController.created == ("mine",)
    found = state_file.read(Path("rackassign-state.json"))
    assert {tp: row for tp, row in found.plans.items() if tp.topic == "other"} == ELSEWHERE
    assert [row[-1] for tp, row in found.plans.items() if tp.topic == "mine"] == [-1]
    assert found.brokers == {1: "a", 2: "b", 9: "z"}
