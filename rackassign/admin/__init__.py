"""Queries and changes of a cluster through kafka-python's admin client.

Rules of this package:

* It does not depend on assignment or on consumers.
* Private names of kafka-python's admin client are needed here: only `raw_requests` uses them, states the
  purpose, and names the version in which they exist.
* A function that queries one broker sends requests to that broker alone, and a missing permission is an
  `AuthorizationError`.
"""
