"""Brokers as processes of this machine, with neither Docker nor an installed Java."""
