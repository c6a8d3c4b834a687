"""Kafka clients: one package for each library; what a consumer fetches is counted for all in `fetch_metrics`.

Private attributes of a client library are used only in the `internals` and `patches` of its package.
"""
