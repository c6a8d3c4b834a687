"""A Faust application."""
