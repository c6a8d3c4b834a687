"""Helpers that depend neither on Kafka nor on any other package of this project except `errors`."""
