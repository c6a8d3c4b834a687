"""The page of all errors and of the exit codes, made from the classes."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

import rackassign
from rackassign.cli import ExitCode
from rackassign.errors import ClusterError, KafkaUnavailableError, RackassignError
from rackassign.placement.create_topic import NotEnoughBrokersError
from rackassign.reassignment.plan import UnevenError

_HEAD = """# Errors and exit codes

This page is made from the code, by `make reference`.

All errors are subclasses of `rackassign.errors.RackassignError`, and the message of each is one line. A consumer's
`poll()` raises none of them because of an assignor: if an assignment fails, the group gets a plain one, and [a
warning](log-messages.md) is logged. Arguments that are wrong are reported when an object is created.

"""
_ERRORS = """## Errors

The last column is the exit code of a command that ends with the error.

| error | also a | meaning | exit code |
| --- | --- | --- | --: |
"""
_CODES = """
## Exit codes

| exit code | meaning |
| --: | --- |
"""
_NO = (NotEnoughBrokersError, UnevenError)
"""Errors that commands catch: they are the answer "no"."""
_NEEDS_A_FRAMEWORK = ("rackassign.integrations.quix",)
"""Not installed where this page is made; it defines no errors."""


def classes() -> list[type[RackassignError]]:
    """Return all classes of errors that users meet, those of `rackassign.errors` first."""
    for module in pkgutil.walk_packages(rackassign.__path__, "rackassign.", onerror=lambda _: None):
        if not module.name.startswith(_NEEDS_A_FRAMEWORK) and not module.name.endswith("__main__"):
            import_module(module.name)
    found = {each for each in _below(RackassignError) if not each.__name__.startswith("_")}
    common = RackassignError.__module__
    return sorted(found, key=lambda each: (each.__module__ != common, each.__module__, each.__name__))


def _below(kind: type[RackassignError]) -> Iterator[type[RackassignError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


def page() -> str:
    """Return the page, in Markdown."""
    codes = "".join(f"| {int(code)} | {code.meaning[0].upper()}{code.meaning[1:]}. |\n" for code in ExitCode)
    return _HEAD + _ERRORS + "".join(map(_row, classes())) + _CODES + codes


def _row(kind: type[RackassignError]) -> str:
    standard = {each.__name__ for each in kind.__mro__ if each.__module__ == "builtins"}
    standard -= {"object", "BaseException", "Exception"}
    parents = {each.__name__ for each in kind.__bases__ if issubclass(each, RackassignError)} - {"RackassignError"}
    also = ", ".join(f"`{name}`" for name in [*sorted(parents), *sorted(standard)])
    meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    return f"| `{_importable(kind)}` | {also} | {meaning} | {int(exit_code(kind))} |\n"


def exit_code(kind: type[RackassignError]) -> ExitCode:
    """Return the exit code of a command that ends with an error of this class."""
    if issubclass(kind, _NO):
        return ExitCode.NO
    return ExitCode.NO_ANSWER if issubclass(kind, (KafkaUnavailableError, ClusterError)) else ExitCode.BAD_INPUT


def _importable(kind: type[RackassignError]) -> str:
    """Return the shortest path by which a class is imported."""
    parts = kind.__module__.split(".")
    packages = (".".join(parts[: i + 1]) for i in range(len(parts)))
    exports = (name for name in packages if kind.__name__ in getattr(import_module(name), "__all__", ()))
    return f"{next(exports, kind.__module__)}.{kind.__name__}"
