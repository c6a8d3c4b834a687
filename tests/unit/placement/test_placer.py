"""Placers of users' own, and what commands make of the answers and settings of any."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

from rackassign.admin.describe import DescribedTopic
from rackassign.cli.app import run
from rackassign.cli.commands import placement as create_command
from rackassign.cli.shared_options import settings_of
from rackassign.errors import ConfigError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.placement import create_topic as making
from rackassign.placement.audit import audit
from rackassign.placement.cluster_state import ClusterState
from rackassign.placement.placer import PlacerError, ValidatedPlacer, load_validated_placer
from rackassign.placement.state_file import PlacementState, read, write
from rackassign.reassignment import ReassignmentRequest, operations
from rackassign.solver.network_flow import BudgetExhaustedError
from rackassign.solver.placement import network_builder
from tests.helpers.json_schemas import parsed

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("aabbcc", 1))


class Answers:
    """Answers what it was told to."""

    answer: Any = None
    seen: ClassVar[list[Any]] = []
    configs: ClassVar[dict[str, Any]] = {}

    def configure(self, configs: dict[str, Any]) -> None:
        Answers.configs = configs

    def place(self, _start: int, partitions: int, replicas: int, brokers: Iterable[Any]) -> Any:
        Answers.seen = list(brokers)
        answer = Answers.answer
        return answer(partitions, replicas) if callable(answer) else answer

    def close(self) -> None:
        pass


class Hostile(dict[str, Any]):
    def __repr__(self) -> str:
        return "\x1b[2J\nnothing"


def fails(*_: object) -> None:
    raise ValueError("\x1b[31mno\nroom")


def leaves(*_: object) -> None:
    raise SystemExit(0)


def fair(partitions: int, replicas: int) -> list[list[int]]:
    return [list(range(1, replicas + 1)) for _ in range(partitions)]


WRONG = [
    (None, "its result is not a list: null"),
    ({"a": 1}, "its result is not a list: an object of 1"),
    ("12", 'its result is not a list: "12"'),
    ([[1, 2, 3]], "1 lists for 2 partitions"),
    ([[1, 2, 3]] * 3, "3 lists for 2 partitions"),
    ([[1, 2, 3], None], "list 1 is not a list: null"),
    ([[1, 2, 3], [1, 2]], "list 1 has 2 of 3 replicas"),
    ([[1, 2, 3], [1, 2, 3, 4]], "list 1 has 4 of 3 replicas"),
    ([[1, 2, 3], []], "list 1 has 0 of 3 replicas"),
    ([[1, 2, 2], [1, 2, 3]], "list 0 contains a broker twice"),
    ([[1, 2, -1], [1, 2, 3]], "list 0 contains broker -1, which was not offered"),
    ([[1, 2, 99], [1, 2, 3]], "list 0 contains broker 99, which was not offered"),
    ([[1, 2, True], [1, 2, 3]], "list 0 contains true, which is not a broker ID"),
    ([[1, 2, "3"], [1, 2, 3]], 'list 0 contains "3", which is not a broker ID'),
    ([[1, 2, 3.0], [1, 2, 3]], "list 0 contains 3.0, which is not a broker ID"),
    ([[1, 2, Hostile()], [1, 2, 3]], "list 0 contains an object of 0, which is not a broker ID"),
    (fails, "place() failed with ValueError: \\x1b[31mno room"),
    (leaves, "place() failed with SystemExit: 0"),
]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[list[int]]]]:
    """Play a cluster of six; return the topics that are made."""
    topics: dict[str, list[list[int]]] = {}

    class Told:
        min_isr = 1

    class Played:
        def __init__(self, _: object) -> None:
            pass

        def validate(self, *_: object) -> Any:
            return Told()

        def create(self, name: str, _: object, lists: list[list[int]]) -> None:
            topics[name] = lists

    there = {"old": DescribedTopic((Partition((1, 2, 3), 1),) * 4, ((1, 2, 3),) * 4, ((),) * 4)}
    monkeypatch.setattr(making, "TopicAdmin", Played)
    monkeypatch.setattr(making, "cluster_id", lambda _: "c")
    monkeypatch.setattr(making, "list_brokers", lambda _: BROKERS)
    monkeypatch.setattr(making, "describe_topics_on", lambda *_: there)
    monkeypatch.setattr(create_command, "admin_client", lambda *_: nullcontext())
    monkeypatch.chdir(tmp_path)
    yield topics
    Answers.answer, Answers.seen, Answers.configs = None, [], {}


def create(*words: str) -> int:
    return run(["create-topic", "t", "--bootstrap-server", "b:1", "--partitions", "2", *words])


OURS = f"{__name__}:Answers"


@pytest.mark.parametrize(("answer", "problem"), WRONG)
def test_what_an_own_placer_answers_is_looked_at_and_nothing_is_made(
    answer: Any, problem: str, made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Answers.answer = answer if callable(answer) else staticmethod(lambda *_: answer)
    layout = {"brokers": [{"id": b.id, "rack": b.rack} for b in BROKERS], "topics": {"t": [[1, 2, 3]] * 2}}
    (tmp_path / "l.json").write_text(json.dumps(layout))
    for words in (
        ["create-topic", "t", "--bootstrap-server", "b:1", "--partitions", "2"],
        ["simulate-placement", "l.json"],
    ):
        assert run([*words, "--placer", OURS]) == 2
        said = capsys.readouterr()
        assert not said.out
        assert said.err == f'rackassign: placer "{OURS}": {problem}; nothing was done\n'
    assert not made
    assert not Path("rackassign-state.json").exists()


def test_a_sound_answer_is_taken_and_the_placer_told_what_there_is(made: dict[str, Any]) -> None:
    Answers.answer = staticmethod(fair)
    assert create("--placer", OURS, "--placer-config", "size=3", "--placer-config", 'names=["x"]') == 0
    assert made == {"t": [[1, 2, 3], [1, 2, 3]]}
    assert Answers.configs == {"size": 3, "names": ["x"]}
    assert [(b.id, b.replicas, b.leaders, b.fenced) for b in Answers.seen[:3]] == [
        (1, 4, 4, False),
        (2, 4, 0, False),
        (3, 4, 0, False),
    ]


def test_an_own_placer_is_told_who_is_away(made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    away = tuple(replace(broker, fenced=broker.id == 3) for broker in BROKERS)
    monkeypatch.setattr(making, "list_brokers", lambda _: away)
    Answers.answer = staticmethod(fair)
    assert create("--placer", OURS, "--policy", "enabled_prefer_observed") == 0
    assert [broker.id for broker in Answers.seen if broker.fenced] == [3]
    assert made["t"] == [[1, 2, 3]] * 2


class Breaks(Answers):
    def configure(self, _: dict[str, Any]) -> None:
        raise KeyError("disk")


class Refuses(Answers):
    def configure(self, _: dict[str, Any]) -> None:
        raise ConfigError("disk: \x1b[2Jexpected a name")


class Unmade(Answers):
    def __init__(self) -> None:
        raise OSError("no\nplace")


class Unclosed(Answers):
    def close(self) -> None:
        raise OSError("no route")


def test_a_placer_that_cannot_be_closed_does_not_hide_what_was_done(
    made: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    closing = f'rackassign: placer "{__name__}:Unclosed": close() failed with OSError: no route'
    Answers.answer = staticmethod(fair)
    assert create("--placer", f"{__name__}:Unclosed") == 0
    assert made == {"t": [[1, 2, 3], [1, 2, 3]]}
    said = capsys.readouterr()
    assert said.err == f"{closing}\n"
    assert said.out
    # Neither does it hide why nothing was done.
    Answers.answer = staticmethod(fails)
    assert create("--placer", f"{__name__}:Unclosed") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == closing
    assert second.endswith("place() failed with ValueError: \\x1b[31mno room; nothing was done")


class Deferred(Answers):
    async def configure(self, _: dict[str, Any]) -> None:  # type: ignore[override]
        raise AssertionError("never called")


def test_a_placer_whose_settings_would_be_ignored_is_none() -> None:
    with pytest.raises(
        ConfigError, match=r"Deferred\": configure\(\) is a coroutine function \(async def\), whose body"
    ):
        load_validated_placer(f"{__name__}:Deferred", {"disk": 1})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Breaks", "configure() failed with KeyError: 'disk'"),
        ("Refuses", "disk: \\x1b[2Jexpected a name"),
        ("Unmade", "the constructor failed with OSError: no place"),
    ],
)
def test_a_placer_that_cannot_be_made_is_told_in_one_line(name: str, problem: str) -> None:
    with pytest.raises(PlacerError) as caught:
        load_validated_placer(f"{__name__}:{name}", {"disk": 1})
    assert str(caught.value) == f'placer "{__name__}:{name}": {problem}; nothing was done'


def test_a_module_that_fails_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_placer.py").write_text("raise RuntimeError('\\x1b[2J')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PlacerError, match="the import failed with RuntimeError"):
        load_validated_placer("broken_placer:Any")


def test_no_answer_of_ours_is_refused() -> None:
    for name in ("kafka", "striped", "optimal", "hadoop", "redis", "elasticsearch"):
        assert len(load_validated_placer(name).place(0, 5, 3, BROKERS)) == 5
    left_out = load_validated_placer("elasticsearch", {"forced_racks": ["d", "e", "f"]}).place(0, 5, 4, BROKERS)
    assert all(sum(broker < 0 for broker in row) == 1 for row in left_out)
    assert ValidatedPlacer.of(ValidatedPlacer.of(Answers())).own


def test_more_replicas_than_brokers_were_ever_seen_need_a_word(
    made: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for policy in ("disabled", "enabled", "enabled_prefer_observed"):
        assert create("--replication-factor", "50", "--policy", policy) == 2
        assert capsys.readouterr().err == (
            "rackassign: replication factor 50 is more than the 6 brokers ever seen"
            " (offline ones are listed from Kafka 4.0); --allow-placeholders plans placeholders for future brokers\n"
        )
    # Nobody is to be away, as KIP-409 has it, unless it is said.
    assert create("--replication-factor", "7", "--allow-placeholders") == 1
    assert "7 replicas need as many brokers, but only 6 are online" in capsys.readouterr().err
    assert not made
    assert create("--replication-factor", "7", "--allow-placeholders", "--policy", "enabled") == 0
    assert {len(row) for row in made["t"]} == {6}
    state = read(Path("rackassign-state.json"))
    assert {row[-1] for row in state.plans.values()} == {-1}
    # Seen once is seen, wherever it is now.
    write(Path("rackassign-state.json"), replace(state, brokers={**state.brokers, 7: "d"}))
    assert create("--replication-factor", "7", "--policy", "enabled") == 0


def test_a_repair_to_more_replicas_than_brokers_were_seen_needs_a_word_too() -> None:
    seen, registry = ClusterState(BROKERS, {}), PlacementState({7: "a"})
    operations._check_seen(seen, ReassignmentRequest(replication_factor=7), registry)
    operations._check_seen(seen, ReassignmentRequest(replication_factor=8, allow_placeholders=True), registry)
    with pytest.raises(ConfigError, match="replication factor 8 is more than the 7 brokers ever seen"):
        operations._check_seen(seen, ReassignmentRequest(replication_factor=8), registry)


def test_placeholders_that_wait_are_found() -> None:
    rows = DescribedTopic((Partition((1, 3), 1),) * 2, ((1, 3),) * 2, ((),) * 2)
    state = ClusterState(BROKERS, {"t": rows})
    # One waits, one was given other replicas since, and of one the topic is gone.
    plans = {TopicPartition("t", 0): (1, 3, -1), TopicPartition("t", 1): (2, 4, -1), TopicPartition("u", 0): (1, -1)}
    (found,) = audit(state, plans=plans).findings
    assert (found.kind, found.partitions) == ("placeholder", (TopicPartition("t", 0),))
    assert found.problem == "1 partition with 1 replica that waits for a broker"


def test_one_broker_without_a_rack_is_placed_on_when_that_is_said(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = (*BROKERS, Broker(7, None))
    monkeypatch.setattr(making, "list_brokers", lambda _: some)
    layout = {"brokers": [{"id": b.id, "rack": b.rack} for b in some], "topics": {"t": [[1, 2, 3]] * 7}}
    (tmp_path / "l.json").write_text(json.dumps(layout))
    for placer in ("optimal", "kafka"):
        for words in (
            ["create-topic", "t", "--bootstrap-server", "b:1", "--partitions", "7"],
            ["simulate-placement", "l.json"],
        ):
            assert run([*words, "--placer", placer]) == 2
            said = capsys.readouterr().err
            assert "--disable-rack-aware" in said
            assert said.count("\n") == 1
            for option in ("--disable-rack-aware", "--ignore-racks"):
                assert run([*words, "--placer", placer, option]) == 0
            capsys.readouterr()
        assert any(7 in row for row in made["t"])


@pytest.mark.usefixtures("made")
def test_doubts_of_the_solver_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object) -> NoReturn:
        raise BudgetExhaustedError("the budget of the plan is used up")

    monkeypatch.setattr(network_builder, "min_cost_flow", ends)
    layout = {"brokers": [{"id": b.id, "rack": b.rack} for b in BROKERS], "topics": {"t": [[1, 2, 3]] * 7}}
    (tmp_path / "l.json").write_text(json.dumps(layout))
    assert create("--output", "json") == 0
    said = capsys.readouterr()
    assert "rackassign: not proven optimal: the budget of the plan is used up\n" in said.err
    assert "the budget of the plan is used up" in parsed("create-topic", said.out)["notes"]
    for placer in ("optimal", "hadoop"):
        assert run(["simulate-placement", "l.json", "--placer", placer, "--output", "json"]) == 0
        said = capsys.readouterr()
        assert f"rackassign: {placer}: not proven optimal: the budget of the plan is used up\n" in said.err
        assert parsed("simulate-placement", said.out)["placers"][placer]["notes"]
    resonant = {"brokers": layout["brokers"], "topics": {"t": [[1, 2, 3]] * 30}}
    (tmp_path / "l.json").write_text(json.dumps(resonant))
    assert run(["simulate-placement", "l.json", "--output", "json"]) == 0
    found = parsed("simulate-placement", capsys.readouterr().out)["placers"]["optimal"]
    # Not proven, and as even as with it all the same.
    assert (found["replicas_per_broker"], found["leaders_per_broker"]) == (1.0, 1.0)


class Prints(Answers):
    """Prints in each of its methods."""

    def __init__(self) -> None:
        print("constructed")

    def configure(self, configs: dict[str, Any]) -> None:
        print("configured", configs)

    def place(self, _start: int, partitions: int, replicas: int, _brokers: Iterable[Any]) -> Any:
        print("placed")
        return fair(partitions, replicas)

    def close(self) -> None:
        print("closed")


def test_what_a_placer_prints_is_no_part_of_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = {"brokers": [{"id": i, "rack": "a"} for i in range(1, 4)], "topics": {"t": [[1, 2]]}}
    (tmp_path / "l.json").write_text(json.dumps(layout))
    assert run(["simulate-placement", str(tmp_path / "l.json"), "--placer", PRINTS, "--output", "json"]) == 0
    said = capsys.readouterr()
    assert parsed("simulate-placement", said.out)["placers"][PRINTS]["topics"] == {"t": [[1, 2]]}
    assert said.err.splitlines() == ["constructed", "configured {}", "placed", "closed"]


PRINTS = f"{__name__}:{Prints.__qualname__}"


def test_settings_come_from_the_command_line_and_a_file(tmp_path: Path, made: Mapping[str, Any]) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"leaders": "rack", "forced_racks": ["z"]}')
    texts = ["forced_racks=d,e", "exclude=7", 'weights={"1": 2}', "on_shortage=relax"]
    assert settings_of("elasticsearch", texts, str(file)) == {
        "leaders": "rack",
        "forced_racks": ["d", "e"],
        "exclude": [7],
        "weights": {"1": 2},
        "on_shortage": "relax",
    }
    # A rack may be named by a number, and a broker is one.
    assert settings_of("optimal", ["forced_racks=1,2", "leader_racks=1", "exclude=1,2"], "") == {
        "forced_racks": ["1", "2"],
        "leader_racks": ["1"],
        "exclude": [1, 2],
    }
    assert settings_of(OURS, ["exclude=7", "text=a,b"], "") == {"exclude": 7, "text": "a,b"}
    assert create("--placer", "elasticsearch", "--placer-config", "forced_racks=c,d", "--replication-factor", "4") == 0
    assert all(len(row) == 3 for row in made["t"])
    assert (
        create(
            "--placer",
            "examples.placers:FreeSpacePlacer",
            "--placer-config",
            'free={"1":9,"2":9,"3":9,"4":1,"5":9,"6":9}',
        )
        == 0
    )
    assert create("--placer", "examples.placers:FreeSpacePlacer") == 2
    for words in (["--placer-config", "x"], ["--placer-config", "a=1", "--placer-config", "a=2"]):
        assert create(*words) == 2
    assert create("--placer-config", "nonsense=1") == 2
    assert create("--placer-config-file", "there-is-none.json") == 2


def test_settings_hold_although_what_brokers_carry_is_counted_in(made: dict[str, Any]) -> None:
    """Telling a placer where replicas are once set all that was set before back."""
    assert create("--placer-config", "leader_racks=c", "--partitions", "6") == 0
    assert {row[0] for row in made["t"]} <= {5, 6}
