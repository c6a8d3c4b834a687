"""The pictures of the documentation, drawn by code: `python -m tools.pictures` writes them to `docs/assets/`."""

from __future__ import annotations

from pathlib import Path

from tools.pictures import assignment
from tools.pictures.figures import SEQUENCES

FOLDER = Path(__file__).parents[2] / "docs" / "assets"


def pictures() -> dict[str, str]:
    """Return the content of each file, by its name."""
    drawn = {f"{name}.svg": sequence.svg() for name, sequence in SEQUENCES.items()}
    return {"assignment.svg": assignment.picture(), **drawn}
