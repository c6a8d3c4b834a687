"""What programs of users rely on: names to import with their parameters, commands, formats of JSON, options of
Spark, metrics.

The list is recorded, so that none of it changes by accident. Which of it may change, and how, is on the page
`docs/reference/stability.md`.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from rackassign import errors
from rackassign.cli.commands.fleet import FLEET_AUDIT_FORMAT
from rackassign.fleet import schema
from rackassign.monitoring.report import INSPECTION_FORMAT
from rackassign.placement import state_file
from rackassign.reassignment import journal
from rackassign.scenario import PLAN_FORMAT, SCENARIO_FORMAT
from rackassign.spark._options import DISPLAY_NAMES
from tools.reference import commands, metrics

_ROOT = Path(__file__).parents[2]

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
    FLEET_AUDIT_FORMAT,
    INSPECTION_FORMAT,
    PLAN_FORMAT,
    SCENARIO_FORMAT,
    journal.FORMAT,
    schema.FORMAT,
    state_file.FORMAT,
)


def text() -> str:
    """Return the list as JSON."""
    names = {
        "names": {module: _names(module, import_module(module).__all__) for module in _WHOLE}
        | {module: _names(module, names) for module, names in _SINGLE.items()}
        | {module: {name: _written_parameters(name, file)} for (module, name), file in _UNINSTALLED.items()},
        "commands": {
            " ".join(path): sorted(option for parameter in command.params for option in parameter.opts)
            for path, command, _ in commands.walk()
        },
        "formats": sorted(_FORMATS),
        "columns of fleet snapshots": {column.name: str(column.type) for column in schema.SCHEMA},
        "spark options": sorted(DISPLAY_NAMES.values()),
        "metrics": {
            name: {metric.name: [metric.type, *metrics.labels_of(metric)] for metric in of}
            for name, of in metrics.families().items()
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
