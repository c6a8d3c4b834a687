"""The page of dependencies has all of them."""

from __future__ import annotations

import pytest

from tools.dependencies import REASONS, closure, declared, dependencies_page, licence


def test_each_dependency_has_a_reason_and_a_row() -> None:
    extras = declared()
    names = {name for needed in extras.values() for name in needed}
    assert names == set(REASONS)
    assert {"kafka-python", "crc32c", "numpy"} == set(extras[""])
    page = dependencies_page()
    assert [name for name in names if f"\n| {name} " not in page] == []
    assert [extra for extra in extras if extra and f"\n| `{extra}` |" not in page] == []


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"license_expression": "MIT", "license": "x"}, "MIT"),
        ({"license": "Apache-2.0", "classifier": ["License :: OSI Approved :: Apache Software License"]}, "Apache-2.0"),
        ({"license": "Copyright\nall of it", "classifier": ["License :: OSI Approved :: BSD License"]}, "BSD License"),
        ({"license": "", "classifier": ["Topic :: X"]}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_a_licence_is_read_from_any_of_its_places(metadata: dict[str, object], expected: str) -> None:
    assert licence(metadata) == expected


def test_an_extra_brings_the_dependencies_of_its_dependencies() -> None:
    assert {"typer", "rich", "markdown-it-py"} <= closure(("cli",))
    assert {"pyspark", "py4j", "pyarrow"} <= closure(("spark",))
