"""Kafka clients: what they share in `common`, then one package for each client library.

What is private to a client library is used only in that client's `internals` and `patches`.
"""
