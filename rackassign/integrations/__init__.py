"""Frameworks whose public settings are not enough to read locally. A package for each.

Rules of this package:

* A framework that accepts a consumer's options, or a consumer, needs nothing here: `docs/how-to/frameworks.md`.
* Nothing of a framework is patched: its classes are subclassed. Its private names are used in the `internals` of its
  package only, each with the versions in which it was seen.
* If the installed framework differs, or its version is not among the supported ones, it runs as it does without
  rackassign, and a warning describes what is missing.
"""
