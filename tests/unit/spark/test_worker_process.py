"""The finders of Spark's archives in a worker process."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import pytest

from rackassign.spark.worker_process import forget_finders_of_spark


def _archive(file: Path, package: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr(f"{package}/first.py", "")
        archive.writestr(f"{package}/second.py", "number = 2\n")
    return file


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.5.jar"])
def test_finders_of_archives_of_spark_are_removed(tmp_path: Path, name: str) -> None:
    archive = _archive(tmp_path / name, "package")
    paths = [str(archive), f"{archive}/package"]
    finders: dict[str, Any] = {path: zipimporter(path) for path in paths}
    forget_finders_of_spark(finders)
    assert not finders


@pytest.mark.parametrize("name", ["mine.zip", "my-pyspark.zip", "py4j.zip", "spark-sql_2.13-4.0.5.jar", "a.jar"])
def test_finders_of_other_archives_and_of_folders_stay(tmp_path: Path, name: str) -> None:
    # An archive of the user may be replaced by another one of the same name, which only its finder notices.
    finders: dict[str, Any] = {
        "archive": zipimporter(str(_archive(tmp_path / name, "package"))),
        "folder": importlib.machinery.FileFinder(str(tmp_path)),
        "nothing": None,
    }
    before = dict(finders)
    forget_finders_of_spark(finders)
    assert finders == before


def test_modules_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "rackassign_test_of_finders"
    archive = str(_archive(tmp_path / "pyspark.zip", package))
    monkeypatch.setattr(sys, "path", [archive, *sys.path])
    try:
        importlib.import_module(f"{package}.first")
        assert f"{archive}/{package}" in sys.path_importer_cache
        forget_finders_of_spark()
        assert not [path for path in sys.path_importer_cache if path.startswith(archive)]
        assert importlib.import_module(f"{package}.second").number == 2
    finally:
        for module in [name for name in sys.modules if name.startswith(package)]:
            del sys.modules[module]
        for path in [path for path in sys.path_importer_cache if path.startswith(archive)]:
            del sys.path_importer_cache[path]
