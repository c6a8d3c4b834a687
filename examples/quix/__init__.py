"""A Quix Streams application."""
