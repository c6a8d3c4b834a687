"""Transactions: records that a member writes are committed together with its state and its input offsets (KIP-98).

* `output` is what the user's functions write to; it only collects records.
* `output_topics` checks that the topics of the output exist and may be written to.
* `producer` commits records and offsets with kafka-python, within limits of time.
"""
