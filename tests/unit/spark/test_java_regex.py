"""Patterns as Java has them: what they find in names of topics, and which are refused."""

from __future__ import annotations

import warnings

import pytest

from rackassign.errors import ConfigError
from rackassign.spark._java_regex import compile_java_regex

NAMES = ("orders", "orders.v1", "Orders", "a-b", "a_b", "a.b", "abc", "12", "team-a.orders", "__consumer_offsets")


def found(pattern: str) -> list[str]:
    with warnings.catch_warnings():
        # Of sets that Python may come to read otherwise.
        warnings.simplefilter("error")
        return [name for name in NAMES if compile_java_regex(pattern).search(name)]


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
        ("(?P<a>a)", r"\(\?P does not start a group"),
        ("(?P=a)", r"\(\?P does not start a group"),
        ("(?#a)", r"\(\?# does not start a group"),
        ("(a)?(?(1)b|c)", r"\(\?\( does not start a group"),
        ("a{,3}", "at 1: { does not start a repetition"),
        ("a{", "{ does not start a repetition"),
        (r"\U00000061", r"\\U is not supported"),
        # Java alone has these.
        ("a(?i)b", r"\(\?i\) is only supported at the start of the pattern; use \(\?i:"),
        ("(?x)a b", 'flag "x" is not supported'),
        (r"\p{InGreek}", 'the property "InGreek" is not supported'),
        (r"\Ga", r"\\G is not supported"),
        (r"\X", r"\\X is not supported"),
        (r"\cA", r"\\c is not supported"),
        (r"\b{g}", r"\\b{ is not supported"),
        (r"(a)\12", r"the group depends on how many groups.*\\k<name>"),
        ("(?i)[a[bc]]", "nested character classes are not supported with the flag i"),
        # Neither has these.
        ("[a", "a character class has no closing bracket"),
        ("[]", "a character class has no closing bracket"),
        ("[a&&]", "expected characters after &&"),
        ("[z-a]", '"z" to "a" is not a valid range'),
        (r"[a-\d]", "not supported"),
        (r"[\b]", r"\\b is not supported"),
        (r"\y", r"\\y is not supported"),
        ("\\", "the pattern ends with a backslash"),
        (r"\x6", r"expected a code after \\x"),
        (r"\08", r"expected an octal code after \\0"),
        (r"\p", r"expected a property after \\p"),
        ("(?<1>a)", "expected the name of a group"),
        (r"\k", "expected the name of a group"),
        ("a{99999999999999999999}", "expected a regular expression: "),
    ],
)
def test_what_cannot_be_kept_is_named(pattern: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^subscribePattern: .*{told}|^subscribePattern: {told}") as refused:
        compile_java_regex(pattern)
    assert "\n" not in str(refused.value)
