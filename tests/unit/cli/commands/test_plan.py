"""`rackassign plan` with input that is valid and odd."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import SCENARIO, Cli


@pytest.mark.parametrize("output", ["json", "jsonl", "table"])
def test_a_byte_order_mark_is_no_mistake(cli: Cli, output: str) -> None:
    text = json.dumps(SCENARIO).encode()
    plain = cli("plan", "--output", output, given=text)
    marked = cli("plan", "--output", output, given=b"\xef\xbb\xbf" + text)
    assert plain.code == marked.code == 0
    assert len(plain.out.splitlines()) == len(marked.out.splitlines())
    assert marked.err == ""


def weighted(**weights: list[float]) -> str:
    return json.dumps(SCENARIO | {"topics": {"t": [[1], [2], [1]]}, "weights": weights})


@pytest.mark.parametrize(
    ("weights", "warnings"),
    [
        ({"t": [1.0, 2.0, 3.0]}, []),
        ({"t": [1.0]}, ["t has 3 partitions and 1 weights"]),
        ({"t": [1.0] * 4}, ["t has 3 partitions and 4 weights"]),
        ({"tt": [1.0] * 3}, ["not in topics, which are ignored: tt", "t has 3 partitions and 0 weights"]),
    ],
)
def test_weights_that_do_not_fit_the_topics_are_warned_of_once(
    cli: Cli, weights: dict[str, Any], warnings: list[str]
) -> None:
    lines = "\n".join([weighted(**weights)] * 3)
    code, out, err = cli("plan", "--strategy", "sticky", "--output", "jsonl", given=lines)
    assert (code, len(out.splitlines())) == (0, 3)
    found = [line for line in err.splitlines() if "weight" in line and "proven" not in line]
    assert len(found) == len(warnings)
    assert all(warning in line for warning, line in zip(warnings, found, strict=True))
