"""The page of dependencies has all of them, and is made of what was installed."""

from __future__ import annotations

from datetime import date

import pytest

from tools.dependencies import PAGE, REASONS, Installation, Package, declared, licence, page


def test_each_dependency_has_a_reason_and_a_row() -> None:
    extras = declared()
    names = {name for needed in extras.values() for name in needed}
    assert names == set(REASONS)
    assert {"kafka-python", "crc32c", "numpy"} == set(extras[""])
    written = PAGE.read_text("utf-8")
    assert [name for name in names if f"\n| {name} " not in written] == []
    assert [extra for extra in extras if extra and f"\n| `{extra}` |" not in written] == []


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


def test_an_extra_is_what_it_adds() -> None:
    def packages(*more: str) -> dict[str, Package]:
        names = {name for needed in declared().values() for name in needed} if more else set(declared()[""])
        return {name: Package(name, "1.2", "MIT", 2_500_000) for name in {*names, *more, "rackassign"}}

    core = Installation(packages(), 3.0)
    installed = {extra: Installation(packages("further"), 9.0) if extra else core for extra in declared()}
    made = page(installed, dict.fromkeys(REASONS, date(2026, 1, 2)), date(2026, 11, 27))
    assert "are 10 MB, of which 2.5 MB are rackassign" in made
    assert "| numpy 1.2 | always |" in made
    assert "| 2026-01-02 | 2.5 |" in made
    added = len(packages("further")) - len(core.packages)
    assert f"| `cli` | {added} | {added * 2.5:.0f} | 9 |" in made
