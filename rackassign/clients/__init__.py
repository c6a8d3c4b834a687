"""Kafka clients: the shared part in `common`, and one package for each client library.

Private attributes of a client library are used only in the `internals` and `patches` of its package.
"""
