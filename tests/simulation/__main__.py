"""`make simulate`: scripts of many seeds, for some minutes; prints what fails, cut down, and the coverage of pairs."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from itertools import count

from tests.simulation import reassigning_scripts, scripts, stateful_scripts

_RAREST = 12


def main() -> int:
    """Run seeds until the time is over; exit with 1 if anything was violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:", help="FIRST:LAST, or FIRST: for as many as there is time for")
    parser.add_argument("--minutes", type=float, default=5.0, help="time limit, by the clock (default: 5)")
    parser.add_argument("--state", action="store_true", help="members with state")
    parser.add_argument("--reassign", action="store_true", help="`reassign apply` and `rollback`")
    options = parser.parse_args()
    made = reassigning_scripts if options.reassign else stateful_scripts if options.state else scripts
    first, _, last = options.seeds.partition(":")
    begun, used = time.monotonic(), time.process_time()
    events, failed, runs = 0, 0, 0
    pairs: Counter[tuple[str, str]] = Counter()
    for seed in range(int(first), int(last)) if last else count(int(first or 0)):
        if time.monotonic() - begun > options.minutes * 60:
            break
        script = made.from_seed(seed)
        result = made.run(script)
        runs += 1
        events += result.events
        pairs += result.pairs
        if result.violation is not None:
            failed += 1
            print(
                f"seed {seed}: {result.violation}\n{scripts.shrink(script, result.violation.rule, play=made.run)}",
                flush=True,
            )
    seconds = time.process_time() - used
    print(f"{runs} seeds from {first or 0}, {failed} failed; {events:,} events, {events / seconds * 60:,.0f} a minute")
    kinds = {kind for pair in pairs for kind in pair}
    print(f"{len(pairs)} pairs of events that follow each other, of {len(kinds)} kinds; the rarest:")
    for (before, after), number in sorted(pairs.items(), key=lambda item: (item[1], item[0]))[:_RAREST]:
        print(f"  {number:6} {before} -> {after}")
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # What clients of killed members have registered for the end of a process would wait for a world that is gone.
    os._exit(code)
