"""Supervision of child processes that end with their owner, and the list of processes on this machine."""
