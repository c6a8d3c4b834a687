"""Helpers that know neither Kafka nor any other package of this project except `errors`."""
