"""Run the tests of a mutant in a copy of the project; the working tree is not changed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mutants.operators import Mutant
from tools.mutants.parts import Part

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]
_IGNORED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
_PLUGIN = "tools.mutants.pytest_plugin"
_FACTOR = 5.0
_WALL_FACTOR = 20.0
"""A test that waits uses no CPU, so there is also a limit in wall-clock time, which a busy machine must not reach."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_COVERED = "not covered"
    UNFINISHED = "unfinished"


class BaselineError(Exception):
    """The tests of a part fail without any change; the message has the end of their output."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the tests of a part execute.

    Args:
        lines: IDs of tests by line by file; the empty ID stands for what runs when a module is imported.
        seconds: CPU seconds of each test; those of the empty ID pass before the first test.
    """

    lines: dict[str, dict[int, frozenset[str]]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `pytest_plugin.Recorder` has written."""
        found = json.loads(file.read_text("utf-8"))
        lines = {f: {int(n): frozenset(tests) for n, tests in of.items()} for f, of in found["lines"].items()}
        return cls(lines, found["seconds"])

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute the changed line, the quickest first.

        Of a line that is executed when its module is imported, they are all tests that execute anything of the file.
        """
        of_file = self.lines.get(mutant.file, {})
        tests = of_file.get(mutant.line, frozenset())
        # The first line is executed by the import only: with no test, or with the first one that uses the module.
        if tests and tests <= of_file[min(of_file)]:
            tests = frozenset().union(*of_file.values())
        return sorted(tests - {""}, key=lambda test: (self.seconds.get(test, 0.0), test))


class Copy:
    """A copy of the project, for a `with` block.

    Args:
        root: Root of the project to copy.
        more_cpu_s: CPU seconds that a run may take besides `_FACTOR` times those without a mutant.
    """

    def __init__(self, root: Path = ROOT, *, more_cpu_s: float = 2.0) -> None:
        self._root = root
        self._more_cpu_s = more_cpu_s

    def __enter__(self) -> Self:
        self._held = tempfile.TemporaryDirectory(prefix="mutants-")
        self.path = Path(self._held.name) / "project"
        self._bytecode = Path(self._held.name) / "bytecode"
        shutil.copytree(self._root, self.path, ignore=_IGNORED)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.cleanup()

    def baseline(self, part: Part) -> Baseline:
        """Run all tests of a part and record what they execute.

        Raises:
            BaselineError: A test fails.
        """
        written = self.path.parent / f"{part.name}.json"
        environment = {
            "MUTANTS_RECORD": str(written),
            "COVERAGE_FILE": str(written.with_suffix(".coverage")),
            # Empty is as good as not set: the runs of all mutants load what this one compiles.
            "PYTHONDONTWRITEBYTECODE": "",
        }
        under = ("-m", "coverage", "run", "--rcfile=", f"--include={self.path}/*", f"--omit={self.path}/tests/*")
        ran = self._pytest(part.tests, environment, under=under)
        if ran.returncode:
            raise BaselineError(f"the tests of {part.name} fail without a mutant:\n{ran.stdout[-3000:]}")
        return Baseline.read(written)

    def judge(self, mutant: Mutant, baseline: Baseline, wall_s: float) -> Verdict:
        """Apply a mutant, run the tests that execute its line, and restore the file.

        Args:
            mutant: The change.
            baseline: What the tests of its part execute.
            wall_s: Wall-clock seconds that are left.
        """
        tests = baseline.tests_of(mutant)
        if not tests:
            return Verdict.NOT_COVERED
        file = self.path / mutant.file
        before, changed_ns = file.read_bytes(), file.stat().st_mtime_ns
        file.write_bytes(mutant.apply(before))
        # Bytecode is valid for a size and a second: the size may be the same, so the second is another one.
        os.utime(file, ns=(changed_ns, changed_ns + 10**10))
        try:
            return self._verdict(tests, baseline, wall_s)
        finally:
            file.write_bytes(before)
            os.utime(file, ns=(changed_ns, changed_ns))
            shutil.rmtree(self.path / ".hypothesis", ignore_errors=True)

    def _verdict(self, tests: list[str], baseline: Baseline, wall_s: float) -> Verdict:
        chosen = self.path.parent / "chosen.json"
        chosen.write_text(json.dumps(tests), "utf-8")
        cpu_s = self._more_cpu_s + _FACTOR * sum(baseline.seconds.get(test, 0.0) for test in ("", *tests))
        files = sorted({test.partition("::")[0] for test in tests})
        limit_s = min(wall_s, _WALL_FACTOR * cpu_s)
        environment = {"MUTANTS_CHOSEN": str(chosen), "PYTHONDONTWRITEBYTECODE": "1"}
        start = time.monotonic()
        try:
            ran = self._pytest(files, environment, cpu_s=cpu_s, wall_s=limit_s)
        except subprocess.TimeoutExpired:
            return Verdict.UNFINISHED if limit_s == wall_s else Verdict.TIMED_OUT
        if ran.returncode < 0 and time.monotonic() - start > 1:
            return Verdict.TIMED_OUT
        return Verdict.KILLED if ran.returncode else Verdict.SURVIVED

    def _pytest(
        self,
        tests: Iterable[str],
        environment: dict[str, str],
        *,
        under: Iterable[str] = (),
        cpu_s: float | None = None,
        wall_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *under, "-m", "pytest", "-x", "-q", "--hypothesis-seed=0", "-p", _PLUGIN, *tests]
        path = os.pathsep.join(filter(None, (str(self.path), str(ROOT), os.environ.get("PYTHONPATH"))))

        def limit() -> None:
            if cpu_s is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))

        # A mutant may print without end: only the end of the output is of use, and a file takes it.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            ran = subprocess.run(
                command,
                cwd=self.path,
                env=os.environ | {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(self._bytecode)} | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=wall_s,
                preexec_fn=limit,
                check=False,
            )
            output.seek(0)
            return subprocess.CompletedProcess(command, ran.returncode, output.read())
