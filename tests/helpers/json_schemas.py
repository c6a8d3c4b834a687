"""The published schemas of JSON that commands write, and what they write compared with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[2] / "docs/reference/schemas"

OF_COMMAND = {
    "audit": "audit",
    "balance-leaders": "balance-leaders",
    "bill": "bill",
    "cluster kill-rack": "cluster-rack",
    "cluster start-rack": "cluster-rack",
    "cluster up": "cluster-up",
    "create-topic": "create-topic",
    "detect-rack": "detect-rack",
    "doctor": "doctor",
    "estimate": "estimate",
    "inspect": "inspection",
    "plan": "plan",
    "reassign abandon": "reassign-status",
    "reassign apply": "reassign-apply",
    "reassign plan": "reassign-plan",
    "reassign rollback": "reassign-apply",
    "reassign status": "reassign-status",
    "scale": "scale",
    "simulate-placement": "simulate-placement",
    "snapshot": "scenario",
    "spark-doctor": "spark-doctor",
    "state clean": "state-clean",
    "state describe": "state-describe",
    "state reset": "state-reset",
}
"""The schema of the output of each command that can write JSON."""


def schema(name: str) -> dict[str, Any]:
    """Return a schema as it is published."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def strict(published: Any) -> Any:
    """Return a schema that allows no undocumented properties; a published one may, for later versions."""
    if isinstance(published, list):
        return [strict(each) for each in published]
    if not isinstance(published, dict):
        return published
    inner = {key: strict(value) for key, value in published.items()}
    return {"additionalProperties": False, **inner} if "properties" in published else inner


def check(name: str, value: Any) -> None:
    """Fail unless a value has exactly what the schema documents."""
    Draft202012Validator(strict(schema(name))).validate(value)


def parsed(command: str, text: str) -> Any:
    """Return what a command wrote with `--output json`, which has to be what is documented."""
    value = json.loads(text)
    check(OF_COMMAND[command], value)
    return value
