"""Describing and changing a cluster through kafka-python's admin client.

Rules of this package:

* It knows nothing of assignment and of consumers.
* kafka-python's admin client has private names that are needed here: `raw_requests` and `groups` use them, say what
  for, and name the version they were seen in.
* A function that asks one broker asks that broker alone, and a missing permission is an `AuthorizationError`.
"""
