"""The assignors of all Kafka clients: what is between a client and a strategy, and the rack monitor.

Rules of this package:

* It imports no Kafka client. What it needs of one is a protocol in `adapter`, which each client package implements.
* No exception of this package reaches a consumer's `poll()`: the group gets a valid assignment, and the reason is
  logged once.
"""
