"""Placement of standby copies over tag values."""
