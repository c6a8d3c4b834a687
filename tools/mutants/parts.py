"""The parts of the core that are mutated, and the tests of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.mutants.operators import Mutant, mutants


@dataclass(frozen=True, slots=True)
class Part:
    """Sources with their tests.

    Args:
        name: Name of the part.
        sources: A package or modules, relative to the root of the project.
        tests: Test folders or modules, relative to the root.
    """

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def mutants(self, root: Path) -> list[Mutant]:
        """Return all mutants of the part, by file and line."""
        files: list[Path] = []
        for source in self.sources:
            path = root / source
            files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return [mutant for file in files for mutant in mutants(file.relative_to(root).as_posix(), file.read_bytes())]


PARTS = (
    Part("wire", ("rackassign/wire",), ("tests/unit/wire",)),
    # What plans are is tested with the solver, and what they are when time is over with the strategies.
    Part("strategies", ("rackassign/strategies",), ("tests/unit/strategies", "tests/unit/solver/test_solver.py")),
    Part("solver", ("rackassign/solver",), ("tests/unit/solver", "tests/unit/strategies/test_strategies.py")),
    Part(
        "rack-monitor",
        ("rackassign/assignor/rack_monitor.py",),
        # What connects it to a client is tested with the assignors.
        (
            "tests/unit/assignor/test_rack_monitor.py",
            "tests/unit/assignor/test_monitoring_leader.py",
            "tests/unit/clients/aiokafka/test_assignors.py",
            "tests/unit/clients/kafka_python/test_sticky_assignors.py",
        ),
    ),
    Part(
        "reassignment",
        ("rackassign/reassignment",),
        (
            "tests/unit/reassignment",
            "tests/unit/cli/commands/test_reassign.py",
            "tests/unit/placement/test_placer.py",
        ),
    ),
)
