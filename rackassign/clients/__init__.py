"""Kafka clients: one package each, and in it one `host` module for everything private of that client."""
