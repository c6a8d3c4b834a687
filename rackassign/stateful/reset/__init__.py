"""Resetting the state of a group: `decision` is what may be deleted, and `cluster` asks Kafka and deletes it."""
