"""Pages of the reference, which are made with the site, and the list of stable names.

`python -m tools.reference` writes the list. A test compares it with the names of the code.
"""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias

import typer
from prometheus_client import Metric
from typer.cli import get_docs_for_click

import rackassign
from rackassign import errors
from rackassign.bill import snapshots
from rackassign.bill.gauges import BillMetrics
from rackassign.bill.report import BILL_FORMAT
from rackassign.cli import ExitCode
from rackassign.cli.app import app
from rackassign.errors import ClusterError, KafkaUnavailableError, RackassignError
from rackassign.monitoring import ClusterReport, Price
from rackassign.monitoring.prometheus import ConsumerMetrics
from rackassign.monitoring.report import INSPECTION_FORMAT
from rackassign.monitoring.report_metrics import ReportMetrics
from rackassign.placement import state_file
from rackassign.placement.create_topic import NotEnoughBrokersError
from rackassign.reassignment import journal
from rackassign.reassignment.plan import UnevenError
from rackassign.scenario import PLAN_FORMAT, SCENARIO_FORMAT
from rackassign.spark._options import DISPLAY_NAMES
from rackassign.stateful.prometheus import StateMetrics
from tests.helpers.builders import cluster, group, inspected, member, rates
from tools.dependencies import dependencies_page

Command: TypeAlias = Any
"""A command or a group of commands of typer, whose classes depend on its version."""

_COMMANDS_TITLE = """All commands and options

What commands have in common, exit codes and output are described in [Commands](commands.md)."""

_LISTED = re.compile(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n")
"""Where typer lists commands before their sections, with texts that are cut off."""

_INDENTED = re.compile(r":\n((?: +\S.*\n)+)")
"""Examples and exit codes, as help has them: without an empty line before them they would be one paragraph."""


def walk_commands() -> Iterator[tuple[tuple[str, ...], Command, Any]]:
    """Yield all commands and groups of commands, each with its words and its context."""
    root = typer.main.get_command(app)
    found: list[tuple[tuple[str, ...], Command, Any]] = [
        (("rackassign",), root, root.make_context("rackassign", [], resilient_parsing=True))
    ]
    while found:
        path, command, context = found.pop()
        yield path, command, context
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            below = command.get_command(context, name)
            found.append(((*path, name), below, below.make_context(name, [], parent=context, resilient_parsing=True)))


def commands_page() -> str:
    """Return the page of all commands and options, in Markdown, as typer writes it."""
    _, root, context = next(walk_commands())
    text = get_docs_for_click(obj=root, ctx=context, name="rackassign", title=_COMMANDS_TITLE)
    return _INDENTED.sub(lambda found: ":\n\n" + indent(found[1], "    "), _LISTED.sub("", text))


_ERRORS_HEAD = """# Errors and exit codes

All errors are subclasses of `rackassign.errors.RackassignError`, and the message of each is one line. A consumer's
`poll()` raises none of them because of an assignor: if an assignment fails, the group gets a plain one, and [a
warning](log-messages.md) is logged. Arguments that are wrong are reported when an object is created.

## Errors

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


def error_classes() -> list[type[RackassignError]]:
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


def errors_page() -> str:
    """Return the page of all errors and of the exit codes, in Markdown."""
    codes = "".join(f"| {int(code)} | {code.meaning[0].upper()}{code.meaning[1:]}. |\n" for code in ExitCode)
    return _ERRORS_HEAD + "".join(map(_error_row, error_classes())) + _CODES + codes


def _error_row(kind: type[RackassignError]) -> str:
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


_METRICS_HEAD = """# Metrics

This page is made from the metrics themselves. [Monitor groups](../how-to/monitor-groups.md#questions-in-promql) has
queries, alerts and a dashboard. Metrics of an exporter and of consumers with the same name have the same labels.
"""


def families() -> dict[str, list[Metric]]:
    """Return all metrics by who serves them."""
    there, known = cluster({"t": [[1], [2]]}), rates({("t", 0): 100.0, ("t", 1): 50.0})
    live = group(member("m1", "b", {"t": [0]}), member("m2", None, {"t": [1]}))
    exported, bill = ReportMetrics(Price()), BillMetrics(Price())
    report = ClusterReport(there, (inspected(live, there, known),), (), known)
    exported.take(report)
    bill.take(report)
    return {
        "`rackassign exporter`": [*exported.collect(), *bill.collect()],
        "Consumers: `ConsumerMetrics`": list(ConsumerMetrics().describe()),
        "`StatefulConsumer`: `StateMetrics`": list(StateMetrics().describe()),
    }


def metrics_page() -> str:
    """Return the page of all metrics, in Markdown."""
    return "\n".join([_METRICS_HEAD, *(_metric_section(name, of) for name, of in families().items())])


def _metric_section(name: str, metrics: Iterable[Metric]) -> str:
    lines = [f"## {name}\n\n| metric | type | labels | description |\n| --- | --- | --- | --- |\n"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in labels_of(metric))
        # A client library appends it where metrics are scraped.
        suffix = "_total" if metric.type == "counter" else ""
        lines.append(f"| `{metric.name}{suffix}` | {metric.type} | {labels} | {metric.documentation} |\n")
    return "".join(lines)


def labels_of(metric: Metric) -> tuple[str, ...]:
    """Return the names of the labels of a metric, which may have no samples yet."""
    # There is no public attribute.
    return tuple(metric._labelnames)  # type: ignore[attr-defined]


_ROOT = Path(__file__).parents[1]

_WHOLE = (
    "rackassign",
    "rackassign.clients.aiokafka",
    "rackassign.clients.confluent",
    "rackassign.clients.kafka_python",
    "rackassign.integrations.faust",
    "rackassign.spark",
    "rackassign.stateful",
    "rackassign.testing",
    "rackassign.testing.harness",
)
"""Modules of which all public names are for users."""

_SINGLE = {
    "rackassign.errors": tuple(name for name, value in vars(errors).items() if isinstance(value, type)),
    "rackassign.monitoring.opentelemetry": ("OpenTelemetryMetrics",),
    "rackassign.monitoring.prometheus": ("ConsumerMetrics",),
    "rackassign.stateful.prometheus": ("StateMetrics",),
}

_UNINSTALLED = {("rackassign.integrations.quix", "RackAwareApplication"): "rackassign/integrations/quix.py"}
"""Classes whose framework is not in the environment of the tests, and the files with them."""

_FORMATS = (
    BILL_FORMAT,
    INSPECTION_FORMAT,
    PLAN_FORMAT,
    SCENARIO_FORMAT,
    journal.FORMAT,
    snapshots.FORMAT,
    state_file.FORMAT,
)


def stable_names() -> str:
    """Return what programs of users rely on, as JSON.

    It is recorded, so that none of it changes by accident. Which of it may change, and how, is on the page
    `docs/reference/stability.md`.
    """
    names = {
        "names": {module: _names(module, import_module(module).__all__) for module in _WHOLE}
        | {module: _names(module, names) for module, names in _SINGLE.items()}
        | {module: {name: _written_parameters(name, file)} for (module, name), file in _UNINSTALLED.items()},
        "commands": {
            " ".join(path): sorted(option for parameter in command.params for option in parameter.opts)
            for path, command, _ in walk_commands()
        },
        "formats": sorted(_FORMATS),
        "columns of snapshots": {column.name: str(column.type) for column in snapshots.SCHEMA},
        "spark options": sorted(DISPLAY_NAMES.values()),
        "metrics": {
            name: {metric.name: [metric.type, *labels_of(metric)] for metric in of} for name, of in families().items()
        },
    }
    return json.dumps(names, indent=1, sort_keys=True) + "\n"


def _names(module: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return names of a module, each with its parameters."""
    imported = import_module(module)
    return {name: _parameters(getattr(imported, name)) for name in names}


def _parameters(value: Any) -> list[str]:
    if not callable(value):
        return []
    try:
        return list(inspect.signature(value).parameters)
    except ValueError:
        # An alias of a type has no signature.
        return []


def _written_parameters(name: str, file: str) -> list[str]:
    """Return the parameters of a class as they are written in its file."""
    nodes = ast.walk(ast.parse((_ROOT / file).read_text("utf-8")))
    (of,) = (node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in of.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    given = init.args
    optional = [each.arg for each in (given.vararg, *given.kwonlyargs, given.kwarg) if each is not None]
    return [each.arg for each in [*given.posonlyargs, *given.args]][1:] + optional


_API_HEAD = """# Python API

The names that you import. Options that all assignors have are on the page [Options of the assignors and
consumers](options-of-assignors.md), exceptions on [Errors and exit codes](errors.md). [Versions and
stability](stability.md) states what you can rely on. [Test your consumers on a multi-rack
cluster](../how-to/test-on-a-multi-rack-cluster.md) shows how to use `rackassign.testing`.
"""


def api_page() -> str:
    """Return the page of all stable names but errors, for mkdocstrings; each is shown where it is first exported."""
    exported = {module: [*import_module(module).__all__] for module in _WHOLE} | {
        module: [*names] for module, names in _SINGLE.items() if module != RackassignError.__module__
    }
    shown: set[int] = set()
    lines = [_API_HEAD]
    for module, names in exported.items():
        values = {name: getattr(import_module(module), name) for name in names}
        lines.append(f"## `{module}`\n")
        lines += [f"::: {module}.{name}\n" for name, value in values.items() if id(value) not in shown]
        shown.update(map(id, values.values()))
    lines += [f"## `{module}`\n\n::: {module}.{name}\n" for module, name in _UNINSTALLED]
    return "\n".join(lines)


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/command-options.md": commands_page,
    "reference/dependencies.md": dependencies_page,
    "reference/errors.md": errors_page,
    "reference/metrics.md": metrics_page,
    "reference/python-api.md": api_page,
}
"""The pages of the site that are not kept, and what makes each of them."""

STABLE_NAMES = _ROOT / "tests/data/stable_names.json"

if __name__ == "__main__":
    STABLE_NAMES.write_text(stable_names(), "utf-8")
