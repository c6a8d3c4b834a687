"""Mutants that no test can find, each with its reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tools.mutants.operators import Mutant

LIST = Path(__file__).with_name("equivalent.json")
Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A listed mutant.

    It is named without its line, so that it is found after a change elsewhere in the file.

    Args:
        file: Path of the file, relative to the root of the project.
        where: Qualified name of the function or class; empty for the module.
        change: Old and new code, as the program prints it.
        reason: Why the program computes the same.
    """

    file: str
    where: str
    change: str
    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError(f"{self.file} {self.where}: {self.change}: expected a reason")

    @property
    def key(self) -> Key:
        """What it has in common with its mutant."""
        return self.file, self.where, self.change


def key_of(mutant: Mutant) -> Key:
    """Return what a mutant has in common with its entry in the list."""
    return mutant.file, mutant.where, mutant.change


def read(file: Path = LIST) -> dict[Key, Equivalent]:
    """Read the list.

    Raises:
        ValueError: An entry has no reason.
    """
    entries = [Equivalent(**entry) for entry in json.loads(file.read_text("utf-8"))]
    return {entry.key: entry for entry in entries}
