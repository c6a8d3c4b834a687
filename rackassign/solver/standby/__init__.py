"""Placement of standbys over the values of client tags."""
