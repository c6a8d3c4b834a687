"""Shared part of the Kafka clients: assignors, the rack monitor, fetch metrics.

Rules of this package:

* It imports no Kafka client. What it needs of one is a protocol in `adapter`, which each client package implements.
* No exception of this package reaches a consumer's `poll()`: the group gets a valid assignment, and the reason is
  logged once.
"""
