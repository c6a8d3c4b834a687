"""The files that are made, and what makes each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import commands, errors, metrics, stable_names

_ROOT = Path(__file__).parents[2]

FILES: Mapping[Path, Callable[[], str]] = {
    _ROOT / "docs/reference/command-options.md": commands.page,
    _ROOT / "docs/reference/errors.md": errors.page,
    _ROOT / "docs/reference/metrics.md": metrics.page,
    _ROOT / "tests/data/stable_names.json": stable_names.text,
}
