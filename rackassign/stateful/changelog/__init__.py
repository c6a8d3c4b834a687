"""Changelogs: what defines the state of a task, whichever member wrote it.

* `records` and `replay` only compute: the format, and which records count. `claims` compares owners.
* `client` reads and writes changelogs with kafka-python, and `topics` creates, extends and checks the topics.
"""
