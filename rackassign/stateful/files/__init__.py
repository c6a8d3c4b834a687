"""Local files: a cache of what changelogs contain, one SQLite file for each task.

* A file contains a state together with its position in the changelog, and both change in one transaction.
* A file that is damaged, too old or of another changelog is never used: the changelog has everything.
* `sqlite_file` is the only module that writes with SQLite. `listing` and `cleaning` look at files from outside, and
  hinder no member.
"""
