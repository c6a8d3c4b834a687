"""Schedules that are played one after the other, each of its own seed."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from .checker import Rules, check
from .history import History


def seed_parser(program: str, description: str | None, seeds: int) -> argparse.ArgumentParser:
    """Return a parser with the options that `play_seeds` reads."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=seeds, help="how many schedules (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="keep what is recorded in this folder, also if nothing is wrong")
    return parser


def play_seeds(
    chosen: argparse.Namespace, play: Callable[[int, Path], History], told: Callable[[History], str], rules: Rules
) -> int:
    """Play each seed and check what was recorded; return the exit code, 1 if something is wrong with one of them."""
    # `rules`: what must hold.
    root = chosen.keep or Path(tempfile.mkdtemp(prefix="rackassign-chaos-"))
    wrong = []
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        folder = root / f"seed-{seed}"
        folder.mkdir(parents=True)
        try:
            history = play(seed, folder)
            violations = check(history, rules)
            line, right = f"{told(history)}; {len(violations)} violations", not violations
            line += "".join(f"\n  {violation.rule}: {violation.what}" for violation in violations)
        except Exception:  # noqa: BLE001 - the other seeds are played, and then it counts
            line, right = traceback.format_exc(), False
        print(f"seed {seed}: {line}", flush=True)
        if not right:
            wrong.append(seed)
            print(f"  recorded: {folder}", flush=True)
        elif chosen.keep is None:
            shutil.rmtree(folder)
    if not any(root.iterdir()):
        root.rmdir()
    print(f"{chosen.seeds} seeds: {f'something is wrong with {wrong}' if wrong else 'nothing is wrong'}")
    return int(bool(wrong))
