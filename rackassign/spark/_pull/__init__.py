"""Pulled splits: executors request the next splits from a coordinator on the driver, and get local splits first."""
