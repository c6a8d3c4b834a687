"""Pulled splits: executors request the next split from a coordinator on the driver, and get local splits first."""
