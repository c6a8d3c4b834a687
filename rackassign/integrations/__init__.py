"""Frameworks whose public settings are not enough to read locally. A package for each.

Rules of this package:

* A framework that accepts a consumer's options, or a consumer, needs nothing here: `docs/how-to/frameworks.md`.
* Nothing global is patched: classes of a framework are subclassed, and methods are shadowed on one instance. Its
  private names are used in the functions that its module names, each with the versions in which it was seen.
* If the installed framework differs, or its version is not among the supported ones, a warning describes it. What is
  missing stays off, and the rest runs as it does without rackassign.
"""

import re
from importlib.metadata import version

from rackassign.text import WarnOnce, with_version


def warn_of_version(distribution: str, first: tuple[int, int], last: tuple[int, int], once: WarnOnce) -> None:
    """Warn if the installed version of a framework is not among the supported ones, from `first` to `last`."""
    number = re.match(r"(\d+)\.(\d+)", version(distribution))
    if number is None or not first <= (int(number[1]), int(number[2])) <= last:
        supported = f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
        once.warn("version", "%s is not a version that rackassign supports: %s", with_version(distribution), supported)
