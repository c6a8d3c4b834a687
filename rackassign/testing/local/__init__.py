"""Brokers as processes of this machine, without Docker or an installed Java."""
