"""A plugin for pytest with two uses: to record what each test executes, or to run chosen tests, the quickest first.

It reads what to do from the environment: `MUTANTS_RECORD` names a file to write, `MUTANTS_CHOSEN` a file to read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if written := os.environ.get("MUTANTS_RECORD"):
        config.pluginmanager.register(Recorder(Path(written), config.rootpath))
    if chosen := os.environ.get("MUTANTS_CHOSEN"):
        config.pluginmanager.register(Chooser(json.loads(Path(chosen).read_text("utf-8"))))


class Chooser:
    """Leaves out other tests.

    Args:
        chosen: IDs of tests, in the order in which they are run.
    """

    def __init__(self, chosen: list[str]) -> None:
        self._places = {test: place for place, test in enumerate(chosen)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._places), key=lambda item: self._places[item.nodeid])


class Recorder:
    """Writes the tests of each line, by file, and the CPU seconds of each test; for `coverage run -m pytest`.

    The empty ID has the CPU seconds before the first test, for imports and the collection of tests.

    Args:
        written: File to write.
        root: Root of the project.
    """

    def __init__(self, written: Path, root: Path) -> None:
        from coverage import Coverage  # noqa: PLC0415 - only the run that records needs it

        # Begun before pytest was, so that what runs when a module is imported is also recorded.
        coverage = Coverage.current()
        assert coverage is not None
        self._coverage = coverage
        self._written = written
        self._root = root
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        start = time.process_time()
        self._seconds.setdefault("", start)
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.process_time() - start
            self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        data = self._coverage.get_data()
        lines = {
            Path(file).relative_to(self._root).as_posix(): data.contexts_by_lineno(file)
            for file in data.measured_files()
        }
        self._written.write_text(json.dumps({"lines": lines, "seconds": self._seconds}), "utf-8")
