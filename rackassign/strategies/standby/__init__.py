"""Standbys: who keeps a warm copy of what others run (KIP-708)."""
