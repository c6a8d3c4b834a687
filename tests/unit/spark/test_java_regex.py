"""Patterns as Java has them: what they find in names of topics, and which are refused."""

from __future__ import annotations

import warnings

import pytest

from rackassign.errors import ConfigError
from rackassign.spark.java_regex import compiled

NAMES = ("orders", "orders.v1", "Orders", "a-b", "a_b", "a.b", "abc", "12", "team-a.orders", "__consumer_offsets")


def found(pattern: str) -> list[str]:
    with warnings.catch_warnings():
        # Of sets that Python may come to read otherwise.
        warnings.simplefilter("error")
        return [name for name in NAMES if compiled(pattern).search(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", ["orders", "orders.v1", "team-a.orders"]),
        ("^orders$", ["orders"]),
        (r"\Aorders\z", ["orders"]),
        (r"^orders\Z", ["orders"]),
        # What Python reads otherwise, or not at all.
        (r"^\p{Lower}+$", ["orders", "abc"]),
        (r"^\p{Lu}", ["Orders"]),
        (r"^\pL+$", ["orders", "Orders", "abc"]),
        (r"^\P{L}+$", ["12"]),
        (r"^[\p{L}\-]+$", ["orders", "Orders", "a-b", "abc"]),
        (r"^[^\P{Alpha}]+$", ["orders", "Orders", "abc"]),
        (r"^[a-z&&[^ord]]+$", ["abc"]),
        (r"^[a-c[d-s]]+$", ["orders", "abc"]),
        (r"^[\w-.]+$", list(NAMES)),
        (r"^\Qa.b\E$", ["a.b"]),
        (r"^a\Q.b", ["a.b"]),
        (r"^[\Q-.\Eab]+$", ["a-b", "a.b"]),
        (r"^(?<team>\w+)-\w+\.\w+$", ["team-a.orders"]),
        (r"(?<c>o)\w*ff\w*\k<c>?", ["__consumer_offsets"]),
        (r"(f)\1", ["__consumer_offsets"]),
        (r"^\x61\u002d\x{62}$", ["a-b"]),
        (r"^\061", ["12"]),
        ("(?i)^orders$", ["orders", "Orders"]),
        ("(?iu)^orders$", ["orders", "Orders"]),
        ("^(?i:ORD)ers$", ["orders", "Orders"]),
        (r"^(?!__).*s$", ["orders", "Orders", "team-a.orders"]),
        (r"^[]a]-b$", ["a-b"]),
        (r"^[a&]bc", ["abc"]),
        (r"^\w{2}$", ["12"]),
        (r"\h|\R|[\v]", []),
    ],
)
def test_patterns_find_what_java_finds(pattern: str, names: list[str]) -> None:
    assert found(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("", "expected a regular expression, got none"),
        ("(", "expected a regular expression: "),
        ("*a", "expected a regular expression: nothing to repeat"),
        # Python alone has these.
        ("(?P<a>a)", r"\(\?P begins no group"),
        ("(?P=a)", r"\(\?P begins no group"),
        ("(?#a)", r"\(\?# begins no group"),
        ("(a)?(?(1)b|c)", r"\(\?\( begins no group"),
        ("a{,3}", "at 1: { is no repetition here"),
        ("a{", "{ is no repetition here"),
        (r"\U00000061", r"\\U cannot be kept"),
        # Java alone has these.
        ("a(?i)b", r"\(\?i\) in the midst of a pattern cannot be kept; \(\?i:"),
        ("(?x)a b", 'flag "x" cannot be kept'),
        (r"\p{InGreek}", 'the property "InGreek" cannot be kept'),
        (r"\Ga", r"\\G cannot be kept"),
        (r"\X", r"\\X cannot be kept"),
        (r"\cA", r"\\c cannot be kept"),
        (r"\b{g}", r"\\b{ cannot be kept"),
        (r"(a)\12", r"which group is meant.*\\k<name>"),
        ("(?i)[a[bc]]", "a class made of classes cannot be kept where case is ignored"),
        # Neither has these.
        ("[a", "a class has no end"),
        ("[]", "a class has no end"),
        ("[a&&]", "expected characters behind &&"),
        ("[z-a]", '"z" to "a" is no range'),
        (r"[a-\d]", "cannot be kept"),
        (r"[\b]", r"\\b cannot be kept"),
        (r"\y", r"\\y cannot be kept"),
        ("\\", "a backslash ends it"),
        (r"\x6", r"\\x without a code"),
        (r"\08", r"\\0 without a code"),
        (r"\p", r"\\p without a property"),
        ("(?<1>a)", "expected the name of a group"),
        (r"\k", "expected the name of a group"),
        ("a{99999999999999999999}", "expected a regular expression: "),
    ],
)
def test_what_cannot_be_kept_is_named(pattern: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^subscribePattern: .*{told}|^subscribePattern: {told}") as refused:
        compiled(pattern)
    assert "\n" not in str(refused.value)
