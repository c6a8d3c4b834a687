"""Processes that end with the process that started them, and what runs on this machine."""
