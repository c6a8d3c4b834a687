"""Mutants of the core: which there are, and that a planted hole in the tests is found."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.mutants import equivalent
from tools.mutants.__main__ import main
from tools.mutants.operators import Mutant, mutants
from tools.mutants.parts import PARTS, Part
from tools.mutants.runner import ROOT, Baseline, BaselineError, Copy, Verdict
from tools.mutants.sample import Results, run, sample

SOURCE = '''
from typing import Literal

LIMIT = 2


def grade(points: int) -> str:
    """Return a grade."""
    if points < LIMIT:
        return "low"
    return "high"


def count_down(start: int) -> int:
    left = start
    while left > 0:
        left -= 1
    return left


def untested(value: int) -> int:
    return value + 5
'''
TESTS = """
from package.grades import count_down, grade


def test_grades():
    assert grade(1) == "low"
    assert grade(5) == "high"


def test_count_down():
    assert count_down(4) == 0
"""
PART = Part("grades", ("package",), ("tests",))


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants("file.py", source.encode())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", {"a < b -> a <= b", "a < b -> a > b", "a < b -> pass"}),
        ("x = a is not b", {"a is not b -> a is b"}),
        ("x = a in b", {"a in b -> a not in b"}),
        ("x = a + b", {"a + b -> a - b"}),
        ("x = a and b and c", {"a and b and c -> a or b or c"}),
        ("x = not a", {"not a -> a"}),
        ("x = 7", {"7 -> 8", "7 -> 6"}),
        ("x = True", {"True -> False"}),
        ("if ready():\n    x = y", {"ready() -> not (ready())"}),
        ("x = [a for a in b if a.c]", {"a.c -> not (a.c)"}),
        ("for a in b:\n    break", {"break -> continue"}),
        ("for a in b:\n    continue", {"continue -> break", "continue -> pass"}),
        ("def f():\n    return a", {"return a -> return None"}),
        ("def f():\n    return", {"return -> pass"}),
        ("def f():\n    return None", set()),
        ("def f():\n    return False", {"False -> True"}),
        ("raise a", {"raise a -> pass"}),
        ("a.b = c", {"a.b = c -> pass"}),
        ("a += b", {"a += b -> pass"}),
        ("a = b", set()),
    ],
)
def test_operators(source: str, expected: set[str]) -> None:
    assert set(changes(source)) == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: Literal[1] | None) -> Literal[2]: ...",
        "@dataclass(frozen=True)\nclass A: ...",
        'x = f"{a + 1}"',
        '"""Text."""',
        "if TYPE_CHECKING:\n    x = 1",
        "x = zip(a, b, strict=True)",
    ],
)
def test_what_does_not_change_the_computation_is_left(source: str) -> None:
    assert changes(source) == []


def test_a_change_replaces_its_place_and_nothing_else() -> None:
    source = "name = 'ä'\nx = (\n    # ü\n    'ö' == b  # comment\n)\n".encode()
    (mutant,) = mutants("file.py", source)
    assert mutant.line == 4
    assert mutant.apply(source).decode() == "name = 'ä'\nx = (\n    # ü\n    ('ö' != b)  # comment\n)\n"


def test_the_same_change_twice_in_a_function_has_two_names() -> None:
    twice = changes("def f():\n    return x in z, x in z")[-2:]
    assert twice == ["x in z -> x not in z", "x in z -> x not in z #2"]
    assert changes("a in b\nb in c").count("a in b -> a not in b") == 1


@pytest.mark.release
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_has_tests_and_mutants_that_compile(part: Part) -> None:
    assert all((ROOT / tests).exists() for tests in part.tests)
    made = part.mutants(ROOT)
    assert len(made) > 100
    for mutant in made[::20]:
        source = (ROOT / mutant.file).read_bytes()
        changed = ast.parse(mutant.apply(source))
        assert ast.dump(changed) != ast.dump(ast.parse(source)), mutant


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_no_two_mutants_have_the_same_key(part: Part) -> None:
    made = part.mutants(ROOT)
    assert len({equivalent.key_of(mutant) for mutant in made}) == len(made)


def test_each_mutant_that_is_listed_as_equivalent_exists() -> None:
    made = {equivalent.key_of(mutant) for part in PARTS for mutant in part.mutants(ROOT)}
    assert set(equivalent.read()) - made == set()


def test_a_listed_mutant_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="expected a reason"):
        equivalent.Equivalent("file.py", "f", "1 -> 2", " ")


def named(*names: str) -> list[Mutant]:
    return [Mutant("file.py", 1, name, "1 -> 2", 0, 1, b"2") for name in names]


def test_a_sample_takes_from_each_part_in_turn_and_is_the_same_for_a_seed() -> None:
    made = {"b": named(*"uvwxyz"), "a": named(*"cd")}
    first = list(sample(made, 1))
    assert [part for part, _ in first] == ["a", "b", "a", "b", "b", "b", "b", "b"]
    assert list(sample(dict(reversed(made.items())), 1)) == first
    assert list(sample(made, 2)) != first
    assert len({mutant.where for _, mutant in first}) == 8


class Scripted:
    """Judges by the name of a mutant, and takes a second for each."""

    def __init__(self, verdicts: dict[str, Verdict]) -> None:
        self.verdicts = verdicts
        self.time = 0.0

    def baseline(self, part: Part) -> Baseline:
        assert part.name == "a"
        # Longer than any time limit here, as on a busy machine.
        self.time += 1000
        return Baseline({}, {})

    def judge(self, mutant: Mutant, baseline: Baseline, wall_s: float) -> Verdict:
        assert wall_s > 0
        del baseline
        self.time += 1
        return self.verdicts[mutant.where]


def judged(verdicts: dict[str, Verdict], seconds: float = 99) -> tuple[Results, list[str]]:
    scripted, said = Scripted(verdicts), list[str]()
    made = named(*verdicts)
    results = run(
        (("a", mutant) for mutant in made),
        {"a": Part("a", (), ())},
        scripted,
        {("file.py", "listed", "1 -> 2")},
        seconds=seconds,
        said=said.append,
        now=lambda: scripted.time,
    )
    return results, said


def test_a_run_shows_what_is_missed_and_not_listed() -> None:
    results, said = judged(
        {
            "killed": Verdict.KILLED,
            "slow": Verdict.TIMED_OUT,
            "missed": Verdict.SURVIVED,
            "listed": Verdict.SURVIVED,
            "new": Verdict.NOT_COVERED,
            "last": Verdict.UNFINISHED,
        }
    )
    assert said == ["survived: file.py:1 missed: 1 -> 2", "not covered: file.py:1 new: 1 -> 2"]
    assert [mutant.where for mutant, _ in results.missed] == ["missed", "new"]
    heads, row = (line.split() for line in results.lines({"a": 40}))
    assert heads[:3] == ["part", "mutants", "tested"]
    assert row == ["a", "40", "5", "1", "1", "1", "1", "1"]


def test_a_run_ends_with_its_time_of_which_the_tests_without_a_mutant_are_no_part() -> None:
    results, _ = judged(dict.fromkeys("abcdef", Verdict.KILLED), seconds=3)
    assert sum(results.counts.values()) == 3


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    def make(tests: str = TESTS) -> Path:
        root = tmp_path / "root"
        for name, text in {
            "package/__init__.py": "",
            "package/grades.py": SOURCE,
            "tests/test_grades.py": tests,
            "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-p", "no:cacheprovider"]\n',
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, "utf-8")
        return root

    return make


def of(part: Part, root: Path, *wanted: str) -> Iterator[Mutant]:
    made = {mutant.change: mutant for mutant in part.mutants(root)}
    return (made[change] for change in wanted)


@pytest.mark.release
def test_a_hole_in_the_tests_is_found(project: Callable[..., Path]) -> None:
    root = project()
    before = {file: file.read_bytes() for file in root.rglob("*.py")}
    with Copy(root) as copy:
        baseline = copy.baseline(PART)
        expected = {
            "points < LIMIT -> points <= LIMIT": Verdict.SURVIVED,
            "points < LIMIT -> points > LIMIT": Verdict.KILLED,
            "2 -> 3": Verdict.SURVIVED,
            "2 -> 1": Verdict.KILLED,
            "left -= 1 -> pass": Verdict.TIMED_OUT,
            "value + 5 -> value - 5": Verdict.NOT_COVERED,
        }
        assert {m.change: copy.judge(m, baseline, 600) for m in of(PART, root, *expected)} == expected
        # Each mutant is taken back, also the one whose tests were stopped.
        assert (copy.path / "package/grades.py").read_bytes() == (root / "package/grades.py").read_bytes()
    assert not copy.path.exists()
    assert {file: file.read_bytes() for file in root.rglob("*.py")} == before


@pytest.mark.release
def test_only_tests_that_execute_the_line_are_run(project: Callable[..., Path]) -> None:
    root = project()
    with Copy(root) as copy:
        baseline = copy.baseline(PART)
    (mutant, of_module) = of(PART, root, "points < LIMIT -> points <= LIMIT", "2 -> 3")
    assert baseline.tests_of(mutant) == ["tests/test_grades.py::test_grades"]
    assert sorted(baseline.tests_of(of_module)) == [
        "tests/test_grades.py::test_count_down",
        "tests/test_grades.py::test_grades",
    ]


@pytest.mark.release
def test_a_mutant_of_the_same_size_is_not_hidden_by_compiled_code_that_all_runs_share(
    project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    root = project("from package.calls import made\n\n\ndef test_made():\n    assert made() == [1]\n")
    source = root / "package/calls.py"
    source.write_text("def made():\n    found = []\n    a = found.append\n    a(1)\n    return found\n", "utf-8")
    with Copy(root) as copy:
        baseline = copy.baseline(PART)
        (mutant,) = of(PART, root, "a(1) -> pass")
        assert len(mutant.apply(source.read_bytes())) == source.stat().st_size
        compiled = set(copy.path.parent.rglob("calls.*.pyc"))
        assert len(compiled) == 1
        assert not copy.path.joinpath("package/__pycache__").exists()
        before = copy.path.joinpath("package/calls.py").stat().st_mtime_ns
        assert copy.judge(mutant, baseline, 600) is Verdict.KILLED
        assert set(copy.path.parent.rglob("calls.*.pyc")) == compiled
        # What was compiled before is valid for the next mutant, which may be in another file.
        assert copy.path.joinpath("package/calls.py").stat().st_mtime_ns == before


LATE = """
def test_first():
    from package.grades import grade
    assert grade(1) == "low"


def test_second():
    from package.grades import count_down
    assert count_down(4) == 0
"""


@pytest.mark.release
def test_of_a_module_that_the_first_test_imports_all_tests_are_run(project: Callable[..., Path]) -> None:
    root = project(LATE)
    with Copy(root) as copy:
        baseline = copy.baseline(PART)
    (in_function, of_module) = of(PART, root, "left > 0 -> left >= 0", "2 -> 3")
    assert baseline.tests_of(in_function) == ["tests/test_grades.py::test_second"]
    assert sorted(baseline.tests_of(of_module)) == [
        "tests/test_grades.py::test_first",
        "tests/test_grades.py::test_second",
    ]


@pytest.mark.release
def test_tests_that_fail_without_a_mutant_are_an_error(project: Callable[..., Path]) -> None:
    with Copy(project("def test_wrong():\n    assert 1 == 2\n")) as copy, pytest.raises(BaselineError, match="1 == 2"):
        copy.baseline(PART)


def test_an_unknown_part_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "wires"]) == 2
    assert "no such part: wires; there are wire, strategies" in capsys.readouterr().err
