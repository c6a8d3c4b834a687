"""What the Kafka clients share: assignors, the rack monitor, fetch metrics.

Rules of this package:

* It imports no Kafka client. What it needs of one is a protocol in `adapter`, which each client implements.
* Nothing raised here reaches a consumer's `poll()`: the group gets a valid assignment, and the log says why, once.
"""
