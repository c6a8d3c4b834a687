"""kafka-python's defects on real brokers, without and with the patches: what `make defects` shows.

The tests hold each defect where it bites, every time. Here nothing is held: the same situations as they come, counted.
"""
