"""Test a sample of mutants of the core.

Exits 0 if each one is found by a unit test or listed as equivalent, 1 if not, and 2 if the input is bad.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.helpers.machine_speed import machine_factor
from tools.mutants import equivalent
from tools.mutants.parts import PARTS
from tools.mutants.runner import ROOT, BaselineError, Copy
from tools.mutants.sample import run, sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the options name, and return the exit code."""
    options = _options(arguments)
    parts = {part.name: part for part in PARTS if not options.only or part.name in options.only}
    if unknown := {*options.only} - {part.name for part in PARTS}:
        known = ", ".join(part.name for part in PARTS)
        print(f"no such part: {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
        return 2
    if options.tests:
        parts = {name: replace(part, tests=tuple(options.tests)) for name, part in parts.items()}
    made = {name: [m for m in part.mutants(ROOT) if options.match in str(m)] for name, part in parts.items()}
    # Kept in the environment: otherwise each run of tests measures the machine again.
    machine_factor()
    try:
        with Copy() as copy:
            results = run(
                sample(made, options.seed),
                parts,
                copy,
                equivalent.read().keys(),
                seconds=60 * options.minutes,
                said=lambda line: print(line, flush=True),
            )
    except BaselineError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(results.lines({name: len(of) for name, of in made.items()})))
    return 1 if results.missed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes for mutants, default 30")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample, default 1")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="only this part; repeatable")
    parser.add_argument("--match", default="", metavar="TEXT", help="only mutants whose printed line contains the text")
    parser.add_argument(
        "--tests",
        action="append",
        default=[],
        metavar="PATH",
        help="tests to run instead of those of the part, such as new ones of one module; repeatable",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
