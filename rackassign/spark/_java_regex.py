"""Translates Java's regular expressions to Python's, for the names of topics.

`subscribePattern` is a Java pattern in the JVM source, and many patterns have the same meaning in both languages.
Syntax with another meaning is translated here, or rejected if Python has no equivalent. Syntax that only Python
supports is rejected, as in Java. Topic names are ASCII, so every character class is handled as a set of ASCII
characters.

Source: `java.util.regex.Pattern` of Java 17, and `re`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping

from rackassign.errors import ConfigError
from rackassign.text import short_repr

Chars = frozenset[str]

_ALL = frozenset(map(chr, range(128)))
_LETTERS, _LOWER, _UPPER, _DIGITS = map(
    frozenset, (string.ascii_letters, string.ascii_lowercase, string.ascii_uppercase, string.digits)
)
_BLANK, _VERTICAL = frozenset(" \t"), frozenset("\n\x0b\f\r")

_PREDEFINED: Mapping[str, Chars] = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": _BLANK | _VERTICAL,
    "h": _BLANK,
    "v": _VERTICAL,
}
"""Predefined classes in lower case. The same letter in upper case denotes the complement."""

_PROPERTIES: Mapping[str, Chars] = {
    **dict.fromkeys(("Lower", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "IsUppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Alpha", "IsAlphabetic", "IsLetter", "IsLatin"), _LETTERS),
    **dict.fromkeys(("Digit", "IsDigit"), _DIGITS),
    "Alnum": _LETTERS | _DIGITS,
    "XDigit": frozenset(string.hexdigits),
    "Punct": frozenset(string.punctuation),
    "Graph": _LETTERS | _DIGITS | frozenset(string.punctuation),
    "Print": _LETTERS | _DIGITS | frozenset(string.punctuation) | {" "},
    "Blank": _BLANK,
    "Space": _BLANK | _VERTICAL,
    "Cntrl": frozenset(char for char in _ALL if unicodedata.category(char) == "Cc"),
    "ASCII": _ALL,
}
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "a": "\a", "e": "\x1b"}

_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_NAME = re.compile(r"<([A-Za-z][A-Za-z0-9]*)>")
_REPEAT = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,5})\}|u([0-9A-Fa-f]{4})")
_OCTAL = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY = re.compile(r"[pP](?:\{(\w+)\}|([A-Z]))")
_SUPPORTED_FLAGS, _WITHOUT_EFFECT = "ims", "duU"
"""Supported flags, and flags without effect: line ends and Unicode do not occur in topic names."""


def compile_java_regex(pattern: str) -> re.Pattern[str]:
    """Return a Python pattern that matches the same topic names as this Java pattern."""
    if not pattern:
        raise ConfigError("subscribePattern: expected a regular expression, got none")
    try:
        return re.compile(_Translation(pattern).translate(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"subscribePattern: expected a regular expression: {error}") from None


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._ignores_case = re.search(r"\(\?[a-zA-Z]*i", pattern) is not None

    def translate(self) -> str:
        parts = []
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if char == "\\":
                self._at += 1
                parts.append(self._escape())
            elif char == "[":
                self._at += 1
                parts.append(_python_class(*self._class()))
            elif char == "(":
                parts.append(self._group())
            elif char == "{":
                parts.append(self._expect(_REPEAT, "{ does not start a repetition; use \\{ for the character")[0])
            else:
                parts.append(char)
                self._at += 1
        return "".join(parts)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"subscribePattern: {short_repr(self._pattern)}, at {self._at}: {what}")

    def _next(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self._pattern[self._at : self._at + 1]

    def _accept(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _expect(self, syntax: re.Pattern[str], problem: str) -> re.Match[str]:
        match = syntax.match(self._pattern, self._at)
        if match is None:
            raise self._error(problem)
        self._at = match.end()
        return match

    def _group(self) -> str:
        begin = self._at
        for plain in ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"):
            if self._accept(plain):
                return plain
        if not self._accept("(?"):
            self._at += 1
            return "("
        if self._next() == "<":
            return f"(?P<{self._expect(_NAME, 'expected the name of a group')[1]}>"
        self._at = begin
        found = self._expect(_FLAGS, f"{self._pattern[begin : begin + 3]} does not start a group in Java")
        on, off, end = found.groups("")
        unknown = set(on + off.removeprefix("-")) - set(_SUPPORTED_FLAGS + _WITHOUT_EFFECT)
        if unknown:
            raise self._error(f"flag {short_repr(min(unknown))} is not supported")
        if end == ")" and (begin or off):
            raise self._error(f"{found[0]} is only supported at the start of the pattern; use (?i:...)")
        on, off = ("".join(flag for flag in _SUPPORTED_FLAGS if flag in flags) for flags in (on, off))
        if end == ")":
            return f"(?{on})" if on else ""
        return f"(?{on}{'-' if off else ''}{off}:"

    def _escape(self) -> str:
        """Return the translation of an escape sequence outside of a class."""
        kind = self._next()
        if kind and kind in "AbB":
            self._at += 1
            if self._next() == "{" and kind == "b":
                raise self._error("\\b{ is not supported")
            return f"\\{kind}"
        if kind and kind in "zZ":
            self._at += 1
            # Java's \Z also matches before a final line end, which topic names do not have.
            return r"\Z"
        if self._accept("R"):
            return r"(?:\r\n|[\n\x0b\f\r])"
        if self._accept("k"):
            return f"(?P={self._expect(_NAME, 'expected the name of a group')[1]})"
        if kind in set("123456789"):
            self._at += 1
            if self._next().isdigit():
                raise self._error("the group depends on how many groups the pattern has; use \\k<name>")
            return f"(?:\\{kind})"
        if kind == "Q":
            return re.escape(self._quoted())
        chars, negated = self._of_class()
        return _python_class(chars, negated)

    def _quoted(self) -> str:
        end = self._pattern.find("\\E", self._at)
        text = self._pattern[self._at + 1 : end if end >= 0 else None]
        self._at = end + 2 if end >= 0 else len(self._pattern)
        return text

    def _of_class(self) -> tuple[Chars, bool]:
        """Return the characters of an escape sequence, and whether it denotes their complement."""
        kind = self._next()
        if kind and kind.lower() in _PREDEFINED:
            self._at += 1
            return _PREDEFINED[kind.lower()], kind.isupper()
        if kind and kind in "pP":
            found = self._expect(_PROPERTY, f"expected a property after \\{kind}")
            return self._property(found[1] or found[2]), kind == "P"
        return frozenset(self._single()), False

    def _property(self, name: str) -> Chars:
        if name in _PROPERTIES:
            return _PROPERTIES[name]
        category = name.removeprefix("Is")
        if category in {"L", "M", "N", "P", "S", "Z", "C"} or (len(category) == 2 and category[0] in "LMNPSZC"):  # noqa: PLR2004 - as Unicode calls them
            return frozenset(char for char in _ALL if unicodedata.category(char).startswith(category))
        raise self._error(f"the property {short_repr(name)} is not supported")

    def _single(self) -> str:
        kind = self._next()
        if kind in _CHARACTERS:
            self._at += 1
            return _CHARACTERS[kind]
        if kind and kind in "xu":
            digits = next(filter(None, self._expect(_CODE, f"expected a code after \\{kind}").groups()))
            return chr(int(digits, 16))
        if kind == "0":
            return chr(int(self._expect(_OCTAL, "expected an octal code after \\0")[1], 8))
        if not kind or (kind.isascii() and kind.isalnum()):
            raise self._error(f"\\{kind} is not supported" if kind else "the pattern ends with a backslash")
        self._at += 1
        return kind

    def _class(self) -> tuple[Chars, bool]:
        """Return the characters of the class whose bracket was just read, and whether it denotes their complement."""
        negated = self._accept("^")
        operands: list[set[str]] = [set()]
        has_members = False
        while not (has_members and self._accept("]")):
            if not self._next():
                raise self._error("a character class has no closing bracket")
            if has_members and self._accept("&&"):
                self._check_case()
                operands.append(set())
                if self._next() in {"]", "&"}:
                    raise self._error("expected characters after &&")
                continue
            operands[-1] |= self._part()
            has_members = True
        found = frozenset(operands[0]).intersection(*operands[1:])
        return found, negated

    def _part(self) -> Chars:
        """Return the characters of a part of a class: a class, a range or a character."""
        if self._accept("["):
            self._check_case()
            chars, negated = self._class()
            return _ALL - chars if negated else chars
        if self._next() == "\\":
            self._at += 1
            if self._next() == "Q":
                return frozenset(self._quoted())
            kind = self._next()
            if kind and (kind.lower() in _PREDEFINED or kind in "pP"):
                chars, negated = self._of_class()
                return _ALL - chars if negated else chars
            first = self._single()
        else:
            first = self._next()
            self._at += 1
        behind = self._pattern[self._at + 1 : self._at + 2]
        if self._next() != "-" or behind in {"", "]", "["}:
            return frozenset(first)
        self._at += 1
        if self._accept("\\"):
            last = self._single()
        else:
            last = self._next()
            self._at += 1
        if last < first:
            raise self._error(f"{short_repr(first)} to {short_repr(last)} is not a valid range")
        return frozenset(char for char in _ALL if first <= char <= last) | {first, last}

    def _check_case(self) -> None:
        if self._ignores_case:
            raise self._error("nested character classes are not supported with the flag i")


def _python_class(chars: Chars, negated: bool) -> str:  # noqa: FBT001 - takes the result of `_class`
    """Return a class in Python's syntax; an empty class matches nothing."""
    if not chars:
        return r"[\s\S]" if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(map(re.escape, sorted(chars)))}]"
